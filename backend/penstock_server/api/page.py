"""The built page: index.html with a nonce a response, everything else as files."""

import gzip
import mimetypes
import secrets
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fastapi.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

NONCE_PLACEHOLDER = "__CSP_NONCE__"
API_PREFIX = "/api/"
_ASSETS = "assets/"
_COMPRESSED_SUFFIXES = frozenset({".js", ".css", ".svg", ".json", ".html", ".map", ".txt"})
_MISSING_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Penstock</title></head><body>
<h1>The page has not been built</h1><p>The API is running. Build the page with <code>make run</code>, or install a
released package, which has it inside.</p></body></html>"""


@dataclass(frozen=True)
class _File:
    body: bytes
    zipped: bytes | None
    media_type: str


def find_page_folder(setting: Path | None) -> Path | None:
    """The setting, else the page inside the installed package, else the build in this checkout."""
    package = Path(__file__).resolve().parents[1]
    candidates = [setting] if setting else [package / "_page", package.parents[1] / "frontend" / "dist"]
    return next((folder for folder in candidates if (folder / "index.html").is_file()), None)


def content_policy(nonce: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            f"style-src 'self' 'nonce-{nonce}'",
            "style-src-attr 'none'",
            "img-src 'self' data: blob:",
            "font-src 'self'",
            "connect-src 'self'",
            "manifest-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


class PageApp:
    """Answers what no route of the API answers; the page does its own routing, so unknown paths get index.html."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder.resolve() if folder else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise HTTPException(404)
        request = Request(scope, receive)
        path = request.url.path
        if path.startswith(API_PREFIX) or path == API_PREFIX.rstrip("/"):
            raise HTTPException(404)
        if request.method not in {"GET", "HEAD"}:
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        response = await run_in_threadpool(self._respond, path, request.headers.get("accept-encoding", ""))
        await response(scope, receive, send)

    def _respond(self, path: str, accepted: str) -> Response:
        relative = path.lstrip("/")
        file = self._file(relative)
        if file is not None:
            return _file_response(file, accepted, is_immutable=relative.startswith(_ASSETS))
        if relative.startswith(_ASSETS) or Path(relative).suffix in {*_COMPRESSED_SUFFIXES, ".png", ".ico", ".woff2"}:
            raise HTTPException(404)
        return self._index()

    def _index(self) -> Response:
        nonce = secrets.token_urlsafe(18)
        headers = {"Content-Security-Policy": content_policy(nonce), "Cache-Control": "no-store"}
        if self._folder is None:
            return HTMLResponse(_MISSING_PAGE, 503, headers)
        html = (self._folder / "index.html").read_text(encoding="utf-8")
        return HTMLResponse(html.replace(NONCE_PLACEHOLDER, nonce), headers=headers)

    def _file(self, relative: str) -> _File | None:
        if self._folder is None or not relative or relative == "index.html" or "\x00" in relative:
            return None
        path = (self._folder / relative).resolve()
        if not path.is_relative_to(self._folder) or not path.is_file():
            return None
        return _load(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=200)
def _load(path: Path, _changed_at: int) -> _File:
    body = path.read_bytes()
    is_text = path.suffix in _COMPRESSED_SUFFIXES and len(body) > 1024
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return _File(body, gzip.compress(body, 6) if is_text else None, media_type)


def _file_response(file: _File, accepted: str, *, is_immutable: bool) -> Response:
    headers = {"Cache-Control": "public, max-age=31536000, immutable" if is_immutable else "no-cache"}
    if file.zipped is None:
        return Response(file.body, media_type=file.media_type, headers=headers)
    headers["Vary"] = "Accept-Encoding"
    if "gzip" not in accepted:
        return Response(file.body, media_type=file.media_type, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(file.zipped, media_type=file.media_type, headers=headers)
