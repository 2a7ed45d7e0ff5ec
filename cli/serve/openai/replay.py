"""The events of an answer in the background, for any connection."""

from starlette.responses import StreamingResponse

from .background import BackgroundAnswer


def replayed(answer: BackgroundAnswer, at: int) -> StreamingResponse:
    """Its events from number `at` on."""
    return StreamingResponse(answer.replay(at), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
