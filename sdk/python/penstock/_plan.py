"""From the names that the user gives to the exact subset, by asking the server."""

from penstock._models import LoaderPlan
from penstock._reading import read
from penstock._state import Asked
from penstock._transport import Transport


def resolved(transport: Transport, asked: Asked) -> LoaderPlan:
    """Pin a subset: its version, split, members and store."""
    body = {"dataset": str(asked.dataset), "split": str(asked.split)}
    return read(LoaderPlan, transport.post("/loaders/resolve", body))
