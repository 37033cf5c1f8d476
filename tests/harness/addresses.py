"""Addresses and ports that belong to one run, so that two runs on one machine never meet."""

import socket
import zlib
from collections.abc import Sequence

from harness.errors import HarnessError

_CLAIM_PORT = 19_999
# Below the kernel's range for outgoing connections, so no client socket can sit on a port that we hand to a server.
_FIRST_PORT, _LAST_PORT = 20_000, 31_999


class LoopbackBlock:
    """A /24 of 127.0.0.0/8 that belongs to one run for as long as its claim socket is open."""

    def __init__(self, seed: str) -> None:
        start = zlib.crc32(seed.encode())
        for attempt in range(4096):
            number = (start + attempt * 7919) % (224 * 256)
            self.prefix = f"127.{16 + number // 256}.{number % 256}"
            claim = socket.socket()
            try:
                claim.bind((f"{self.prefix}.254", _CLAIM_PORT))
                claim.listen(1)
            except OSError:
                claim.close()
                continue
            self._claim = claim
            self._next_port = _FIRST_PORT + start % (_LAST_PORT - _FIRST_PORT)
            self._held: list[socket.socket] = []
            return
        raise HarnessError(
            "no free block of loopback addresses in 127.16.0.0-127.239.255.0; are other test runs stuck?"
        )

    def address(self, host: int) -> str:
        return f"{self.prefix}.{host}"

    def claim_port(self, hosts: Sequence[int]) -> int:
        """A port that is free on all of these addresses, held until the run ends.

        It is held by sockets that are bound and do not listen: a server with SO_REUSEADDR (all of ours) may still
        listen there, now and after a restart, and nobody else is given the port by the kernel.
        """
        for _ in range(_FIRST_PORT, _LAST_PORT):
            port = self._next_port
            self._next_port = _FIRST_PORT + (port + 1 - _FIRST_PORT) % (_LAST_PORT - _FIRST_PORT)
            if _is_free_everywhere(port):
                self._held.extend(_hold(self.address(host), port) for host in hosts)
                return port
        raise HarnessError(f"no free port between {_FIRST_PORT} and {_LAST_PORT}")

    def release(self) -> None:
        for held in (self._claim, *self._held):
            held.close()
        self._held.clear()


def _is_free_everywhere(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True


def _hold(address: str, port: int) -> socket.socket:
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((address, port))
    return holder
