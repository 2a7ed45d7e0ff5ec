"""Pictures for tests of the chat page, and a server that seems to have eyes."""

import base64
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from chat_page import ChatPage
from PIL import Image

COLOURS = ((200, 30, 30), (30, 160, 60), (40, 60, 200), (230, 200, 40))
ANSWERS = "**/v1/chat/completions"

# a drop onto an element, or a paste, of [name, type, base64] as files; `more`: other kinds of data
GIVEN = """(element, [kind, files, more]) => {
  const data = new DataTransfer();
  for (const [name, type, text] of files) data.items.add(new File([Uint8Array.fromBase64?.(text) ??
    Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))], name, { type }));
  for (const [type, text] of Object.entries(more)) data.setData(type, text);
  const init = { bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data };
  element.dispatchEvent(kind === "paste" ? new ClipboardEvent(kind, init) : new DragEvent(kind, init));
}"""


def squares(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """A picture whose four quarters differ in colour."""
    image = Image.new(mode, (width, height))
    for at, colour in enumerate(COLOURS):
        x, y = at % 2 * (width // 2), at // 2 * (height // 2)
        image.paste(colour, (x, y, x + width - width // 2, y + height - height // 2))
    return image


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """A picture's file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def give(element: Any, kind: str, files: Sequence[tuple[str, str, bytes]], **more: str) -> None:
    """Drop files (name, type, content) on an element, or paste them."""
    element.evaluate(
        GIVEN, [kind, [[name, type_, base64.b64encode(data).decode()] for name, type_, data in files], more]
    )


def decoded(url: str) -> Image.Image:
    """The picture of a data URL."""
    head, _, text = url.partition(",")
    image = Image.open(io.BytesIO(base64.b64decode(text, validate=True)))
    assert head == f"data:image/{(image.format or '').lower()};base64"
    return image.convert("RGB")


class FakeEyes:
    """Answers for a page's server as one with eyes would, and keeps the requests.

    requests  bodies of chat completions
    usage     that the answers tell
    """

    def __init__(self, chat: ChatPage, *, vision: bool = True) -> None:
        self.requests: list[dict[str, Any]] = []
        self.usage: dict[str, Any] = {"prompt_tokens": 70, "completion_tokens": 2}
        self.chat = chat
        page = chat.page

        def models(route: Any) -> None:
            told = route.fetch().json()
            told["data"][0]["architecture"]["input_modalities"] = ["text", "image"] if vision else ["text"]
            route.fulfill(json=told)

        page.context.route("**/models", models)
        page.context.route(
            ANSWERS, lambda route: route.fulfill(body=self._answer(route), content_type="text/event-stream")
        )
        page.reload()
        page.get_by_role("heading", name="tiny").wait_for()

    def _answer(self, route: Any) -> str:
        self.requests.append(json.loads(route.request.post_data))
        return "".join(f"data: {each}\n\n" for each in self._events())

    def _events(self) -> Iterator[str]:
        for delta, finish in (({"content": f"Seen {len(self.requests)}."}, None), ({}, "stop")):
            yield json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        timings = {"cache_n": 4, "prompt_n": 66, "predicted_n": 2}
        yield json.dumps({"choices": [], "usage": self.usage, "timings": timings})
        yield "[DONE]"

    def sent(self, message: int = -1) -> list[Image.Image | str]:
        """The parts of a message in the last request: pictures decoded, texts as they are."""
        content = self.requests[-1]["messages"][message]["content"]
        if isinstance(content, str):
            return [content]
        return [part["text"] if part["type"] == "text" else decoded(part["image_url"]["url"]) for part in content]
