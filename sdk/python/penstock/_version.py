"""The one version number of Penstock."""

__version__ = "0.1.0"
