"""How a piece of work may end other than well."""

from collections.abc import Sequence

from penstock.contract.codes import ErrorCode
from penstock_server.jobs.leases import Aside


class Permanent(Exception):
    """Trying again cannot help: the job ends with this code and detail, which the user sees."""

    def __init__(self, code: ErrorCode, detail: str, *, aside: Sequence[Aside] = ()) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.aside = tuple(aside)


class Transient(Exception):
    """Something the work needs is away for now; it is tried again, and ends with this code if it stays away."""

    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Cancelled(Exception):
    """The user asked for the job to stop."""


class Stopping(Exception):
    """This worker is asked to end; its work goes back for others."""
