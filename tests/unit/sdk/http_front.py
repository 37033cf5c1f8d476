"""A `FakeApi` behind a real socket, for what only sockets show."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
from unit.sdk.conftest import FakeApi


@contextmanager
def served(api: FakeApi) -> Iterator[str]:
    """The address at which the API answers; connections are kept alive, and each has a thread of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            response = api.handle(httpx.Request(self.command, f"http://127.0.0.1{self.path}", content=content))
            self.send_response(response.status_code)
            self.send_header("Content-Type", response.headers.get("Content-Type", "application/octet-stream"))
            self.send_header("Content-Length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)

        do_GET = do_POST = answer

        def log_message(self, format: str, *arguments: object) -> None:
            del format, arguments

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    # Handlers that never answer are not waited for.
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
