"""Small TCP servers for tests of the network itself."""

import socket
import threading
from collections.abc import Callable

Serve = Callable[[socket.socket], None]


class Peer:
    """Listens on a port of loopback and serves each connection on a thread of its own."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        host, port = self._listener.getsockname()[:2]
        self.endpoint = f"{host}:{port}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # Wakes the accept; a plain close would leave it waiting.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def hang_up(self) -> None:
        """Close every connection from this side."""
        for connection in self._connections:
            connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._run, args=[connection], daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        try:
            self._serve(connection)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            # The client or the relay broke it off, which is what these tests are about.
            return


def echo(connection: socket.socket) -> None:
    while data := connection.recv(1 << 16):
        connection.sendall(data)


def sink(connection: socket.socket) -> None:
    buffer = bytearray(1 << 18)
    while connection.recv_into(buffer):
        pass


def source(data: bytes) -> Serve:
    """Sends these bytes to whoever connects, then closes."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(data)

    return serve
