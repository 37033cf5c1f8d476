"""The query copies of this process, and limits that keep queries from starving everything else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

from penstock_server.api.deps import services
from penstock_server.manifests.copies import QueryCopies

# As many as small machines have cores.
HEAVY_QUERIES = 2
BROWSING_QUERIES = 8

P = ParamSpec("P")
T = TypeVar("T")


class Querying:
    """Threads for queries: `heavy` for facets and splits, `browse` for what a page shows.

    A query runs to its end also when its caller is gone, so without limits of their own a few slow ones would hold
    every thread that login and the page need.
    """

    def __init__(self, copies: QueryCopies) -> None:
        self.copies = copies
        self._heavy = CapacityLimiter(HEAVY_QUERIES)
        self._browsing = CapacityLimiter(BROWSING_QUERIES)

    async def heavy(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await to_thread.run_sync(partial(call, *args, **kwargs), limiter=self._heavy)

    async def browse(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await to_thread.run_sync(partial(call, *args, **kwargs), limiter=self._browsing)


async def querying(request: Request) -> Querying:
    # Made with the first query, in the event loop that its limiters belong to.
    found: Querying | None = getattr(request.app.state, "querying", None)
    if found is None:
        found = Querying(QueryCopies(services(request).settings.data_folder))
        request.app.state.querying = found
    return found


QueryingDep = Annotated[Querying, Depends(querying)]
