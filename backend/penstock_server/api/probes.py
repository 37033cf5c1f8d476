"""Looks at the parts that the server needs, bounded in time and in number."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping

import structlog
from pydantic import BaseModel

CHECK_SECONDS = 5.0

_log = structlog.get_logger(__name__)


class Check(BaseModel):
    ok: bool
    detail: str | None = None


class Probes:
    """One look at a part at a time, shared by all who ask meanwhile: a part that hangs costs one thread, not many."""

    def __init__(self, *, seconds: float = CHECK_SECONDS) -> None:
        self._seconds = seconds
        self._looks: dict[str, asyncio.Future[str | None]] = {}

    async def check_all(self, parts: Mapping[str, Callable[[], str | None]]) -> dict[str, Check]:
        """Asks every part, each for what is wrong with it (None: nothing)."""
        found = await asyncio.gather(*(self._check(name, probe) for name, probe in parts.items()))
        return dict(zip(parts, found, strict=True))

    async def _check(self, name: str, probe: Callable[[], str | None]) -> Check:
        look = self._looks.get(name)
        if look is None or look.done():
            look = self._looks[name] = _start_look(name, probe)
        await asyncio.wait([look], timeout=self._seconds)
        detail = look.result() if look.done() else f"no answer within {self._seconds:g} s"
        return Check(ok=detail is None, detail=detail)


def _start_look(name: str, probe: Callable[[], str | None]) -> asyncio.Future[str | None]:
    loop = asyncio.get_running_loop()
    look: asyncio.Future[str | None] = loop.create_future()

    def run() -> None:
        try:
            detail = probe()
        except Exception:
            # A probe that breaks is a part that does not work; anybody may ask, so the reason stays in the log.
            _log.exception("probe.failed", part=name)
            detail = "the check itself failed; see the server's log"
        # The server may have ended meanwhile, and its loop with it.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_tell, look, detail)

    # A thread of its own, not one of the requests': a part that hangs must hold up neither them nor the server's end.
    threading.Thread(target=run, name=f"probe-{name}", daemon=True).start()
    return look


def _tell(look: asyncio.Future[str | None], detail: str | None) -> None:
    if not look.done():
        look.set_result(detail)
