"""The stream of events behind every live part of the page."""

from typing import Annotated, cast

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse

from penstock.contract.codes import ErrorCode
from penstock_server.api.deps import ServicesDep, action, authorize
from penstock_server.api.security import Authenticator
from penstock_server.api.sse import MEDIA_TYPE, EventStream
from penstock_server.errors import FieldProblem, InvalidInput, ServerError
from penstock_server.events.port import TOPICS, BusEvent, Topic
from penstock_server.policy import Action, Actor, is_allowed

router = APIRouter(prefix="/events", tags=["events"])

# What a caller must be allowed to read to be told about it.
_TOPIC_ACTIONS = {"jobs": Action.JOB_READ, "runs": Action.RUN_READ, "datasets": Action.DATASET_READ}


@router.get(
    "",
    response_class=StreamingResponse,
    responses={200: {"description": "Events as they happen", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}},
    openapi_extra=action(Action.EVENT_READ),
)
async def stream_events(
    request: Request,
    services: ServicesDep,
    actor: Annotated[Actor, Depends(authorize(Action.EVENT_READ))],
    topics: Annotated[str, Query(max_length=200)] = ",".join(TOPICS),
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=64)] = None,
) -> StreamingResponse:
    """Server-sent events `job`, `run` and `dataset`; open one stream a tab and none in hidden tabs."""
    authenticator: Authenticator = request.app.state.authenticator

    async def is_still_allowed() -> bool:
        try:
            return is_allowed(await authenticator.actor_of(request), Action.EVENT_READ)
        except ServerError:
            return False

    def is_visible(event: BusEvent) -> bool:
        return is_allowed(actor, _TOPIC_ACTIONS[event.topic], project_id=event.project_id)

    # Before the answer begins: a page that sees its stream open may rely on it.
    events = await services.bus.subscribe(_topics(topics), last_event_id)
    return EventStream(
        events,
        is_visible=is_visible,
        is_still_allowed=is_still_allowed,
        stopping=request.app.state.stopping,
    ).response()


def _topics(text: str) -> frozenset[Topic]:
    asked = {part.strip() for part in text.split(",") if part.strip()}
    unknown = asked - set(TOPICS)
    if unknown or not asked:
        message = f"topics are {', '.join(TOPICS)}, separated by commas"
        raise InvalidInput(ErrorCode.REQUEST_INVALID, message, errors=[FieldProblem("/query/topics", message)])
    return frozenset(cast("set[Topic]", asked))
