"""The catalog's engine and its unit of work."""

from penstock_server.db.catalog import Catalog
from penstock_server.db.unit import UnitOfWork

__all__ = ["Catalog", "UnitOfWork"]
