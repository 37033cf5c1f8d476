"""Readers turn a source into a list of samples to ingest: which files, which metadata, in which order."""

from penstock_workers.readers.listing import Listing, Problem, SampleEntry
from penstock_workers.readers.reader import read_source

__all__ = ["Listing", "Problem", "SampleEntry", "read_source"]
