"""Makes docs/pictures/page-*.png: the page of `hybrid serve` in light, in dark and on a phone.

    .venv/bin/python tests/page_pictures.py

The page, the server, the tokens, their reuse and the costs of branches are real; so are the vision tower and the
tokens of the plot. The words of the answers are scripted, as the bundled model cannot chat and the one that sees has
random weights; each scripted token is made a little more likely than the model's own choice.
"""

import io
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from browser import FLAGS, Browsing, executable
from chat_page import ChatPage
from http_server import Server
from page_camera import encoded, give
from PIL import Image, ImageDraw
from playwright.sync_api import sync_playwright
from scripted_chat import WITH_TOOLS, Script, scripted, served
from seeing_models import seeing_model, tower_of

from hybrid.cli.main import run
from hybrid.cli.serve.jobs import Maker
from hybrid.cli.serve.pictures.sight import Sight
from hybrid.infer import LoadedModel
from hybrid.infer.answers.asking.eyes import Eyes
from hybrid.infer.answers.drawing.drawing import Drawing, TextPiece
from hybrid.infer.text.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
MOST_BYTES = 400_000  # all pictures together
LIKELIER = 0.7  # scripted token's logit above the model's highest

ANSWERS = [
    "It keeps a **state of one size** per layer: what it has read is folded into it, token by token.\n\n"
    "```python\nstate = exp(dt * A) * state + dt * outer(x, B)\nout = state @ C + D * x\n```\n\n"
    "So the memory of a long text is that of a short one.",
    "Its memory does not grow:\n\n| | keys and values | state |\n|---|---|---|\n| 1 000 tokens | 8 MiB | 2 MiB |\n"
    "| 100 000 tokens | 800 MiB | 2 MiB |",
    "Only by reading on: a state cannot be taken back. That is why checkpoints are kept.",
    "At most as much as its size allows. Attention layers look up the rest.",
]
OF_PLOT = "The flat one: a state has one size. Keys and values grow with the text, as the other line does."


@contextmanager
def seeing() -> Iterator[Server]:
    """A server with a small model that sees."""
    path = seeing_model(ROOT / "tests" / "data")
    with (
        LoadedModel.load(path, n_ctx=4096, n_seq_max=4, checkpoint_budget=256 << 20) as model,
        closing(Eyes.open(tower_of(path), model)) as eyes,
        closing(Server(model, maker=Maker(model, model.chat_template, 6, sight=Sight(eyes)))) as server,
    ):
        server.served.name = "tiny-qwen-vl"
        yield server


@contextmanager
def bundled() -> Iterator[LoadedModel]:
    """The package's model, converted and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        assert run(["convert", str(ROOT / "library" / "bundled" / "jamba-11m"), "-o", str(path)]) == 0
        with LoadedModel.load(path, n_ctx=4096, n_seq_max=4, checkpoint_budget=256 << 20) as model:
            yield model


@contextmanager
def browser(server: Server) -> Iterator[Browsing]:
    """Chromium for a server's pages; raises an error for their problems."""
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable(), args=list(FLAGS))
        browsing = Browsing(chromium)
        try:
            yield browsing
            browsing.check()
        finally:
            browsing.close()
            chromium.close()


@contextmanager
def talkative(patch: pytest.MonkeyPatch) -> Iterator[Script]:
    """Scripted answers in the tokenizer's own tokens, with probabilities that leave room for others."""
    draw = Drawing.draw
    with scripted(patch) as script:

        def next_token(tokenizer: Tokenizer, answer: str, ids: list[int]) -> int:
            rest = answer.encode()[len(b"".join(map(tokenizer.piece, ids))) :].decode()
            return tokenizer.encode(rest, add_special=False, continues=True)[0] if rest else min(tokenizer.eog)

        def likelier(self: Drawing, logits: np.ndarray) -> TextPiece | None:
            answer = self.__dict__["script"]
            if answer is not None:
                logits = logits.copy()
                token = next_token(self.tokenizer, answer, self.result.ids)
                logits[token] = max(logits[token], np.delete(logits, token).max() + LIKELIER)
            return draw(self, logits)

        patch.setattr(Drawing, "draw", likelier)
        yield script


def plot() -> bytes:
    """A picture to ask about: memory of keys and values, and of a state, by tokens."""
    image = Image.new("RGB", (480, 270), "white")
    draw = ImageDraw.Draw(image)
    draw.line([(40, 20), (40, 240), (460, 240)], "#444444", 3)
    draw.line([(42, 236), (450, 40)], "#0b6b5e", 5)
    draw.line([(42, 205), (450, 205)], "#c8841e", 5)
    return encoded(image)


def talk(chat: ChatPage, script: Script, *, sees: bool = False) -> None:
    """Hold a conversation with branches; sees: the last question has a picture."""
    chat.page.evaluate("localStorage.setItem('hybrid-settings', JSON.stringify({ temperature: '0' }))")
    chat.page.reload()
    chat.answered(script, "Why does a state space model need no growing cache?", ANSWERS[0])
    chat.again(1, script, ANSWERS[1].split(":", 1)[0])
    chat.do(1, "before")
    chat.answered(script, "Can it forget again?", ANSWERS[2])
    question, answer = ("And which line is it here?", OF_PLOT) if sees else ("How much does it remember?", ANSWERS[3])
    script.say(answer)
    chat.do(2, "edit")
    field = chat.page.locator("textarea.edit")
    field.fill(question)
    if sees:
        give(field, "paste", [("memory.png", "image/png", plot())])
        chat.page.locator("form.editing").get_by_role("button", name="Remove memory.png").wait_for()
    chat.page.keyboard.press("Enter")
    chat.messages.nth(3).get_by_text(answer[:7]).wait_for()
    chat.until_ended()


def picture(chat: ChatPage, name: str) -> int:
    """Save a picture of the page; return its bytes."""
    chat.page.mouse.move(0, 0)
    chat.page.wait_for_timeout(500)
    shot = Image.open(io.BytesIO(chat.page.screenshot(animations="disabled"))).convert("RGB")
    path = FOLDER / f"page-{name}.png"
    shot.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)  # half as large
    return path.stat().st_size


def main() -> int:
    """Make all pictures."""
    FOLDER.mkdir(exist_ok=True)
    sizes = []
    with pytest.MonkeyPatch.context() as patch, talkative(patch) as script:

        def opened(browsing: Browsing, server: Server, width: int, scheme: str, *, sees: bool) -> ChatPage:
            viewport = {"width": width, "height": 760}
            chat = ChatPage(browsing.open(server, viewport=viewport, color_scheme=scheme))
            talk(chat, script, sees=sees)
            return chat

        with seeing() as server, browser(server) as browsing:
            chat = opened(browsing, server, 1280, "light", sees=True)
            chat.open_tree()
            chat.tree.locator(".cost:not(:empty)").first.wait_for()
            sizes.append(picture(chat, "light"))
            sizes.append(picture(opened(browsing, server, 390, "light", sees=True), "phone"))
        with bundled() as model, closing(served(model, WITH_TOOLS)) as server, browser(server) as browsing:
            server.served.name = "jamba-11m"
            chat = opened(browsing, server, 1280, "dark", sees=False)
            chat.page.get_by_role("button", name="Probabilities").click()
            chat.again(3, script, ANSWERS[3])
            chat.messages.nth(3).locator(".token").nth(6).click()
            chat.page.locator(".alternatives").wait_for()
            sizes.append(picture(chat, "dark"))
    print(f"{sum(sizes)} bytes in {FOLDER.relative_to(ROOT)}/: {sizes}")
    return int(sum(sizes) > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
