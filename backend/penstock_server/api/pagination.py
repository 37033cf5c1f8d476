"""The query parameters of every list."""

from typing import Annotated

from fastapi import Depends, Query

from penstock_server.domain.pages import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Cursor,
    Page,
    PageRequest,
    decode_cursor,
    encode_cursor,
    page_of,
)

__all__ = ["Cursor", "Page", "PageDep", "PageRequest", "decode_cursor", "encode_cursor", "page_of"]


def page_request(
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
) -> PageRequest:
    return PageRequest(limit=limit, cursor=cursor)


PageDep = Annotated[PageRequest, Depends(page_request)]
