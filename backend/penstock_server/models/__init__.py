"""Every table of the catalog; importing this package registers all of them."""

from penstock_server.models.base import Base
from penstock_server.models.datasets import Dataset, Project, Split, Version
from penstock_server.models.jobs import Job, JobShard, Quarantined
from penstock_server.models.loaders import LoaderPointRow, LoaderRow, Run
from penstock_server.models.people import ApiToken, LoginCode, SessionRow, User
from penstock_server.models.records import AuditEntry, CatalogMark, Event, IdempotencyKey

__all__ = [
    "ApiToken",
    "AuditEntry",
    "Base",
    "CatalogMark",
    "Dataset",
    "Event",
    "IdempotencyKey",
    "Job",
    "JobShard",
    "LoaderPointRow",
    "LoaderRow",
    "LoginCode",
    "Project",
    "Quarantined",
    "Run",
    "SessionRow",
    "Split",
    "User",
    "Version",
]
