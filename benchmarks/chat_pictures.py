"""A conversation of 8 turns with 3 pictures, an edit and a branch, held by a stateless client over HTTP: every step
sends all messages and pictures again. Counts for each step how many tokens of the prompt the server reads, and the
minimum, as chat_http.py does, and how many pictures the vision tower has read; with `--peer` also for llama-server.

    python benchmarks/chat_pictures.py MODEL.gguf MMPROJ.gguf [--peer path/to/llama-server] [--answer 24]

The pictures have 96 x 128 pixels: both programs read towers of Qwen's kinds and Gemma 3 with as many tokens of them.
"""

import argparse
import base64
import io
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from chat_http import Client, Known, Messages, Step, ours_processed, peers_processed, said, table
from chat_script import CONTEXT, version_of
from PIL import Image
from servers import Running, ours, peer

from hybrid.infer import LoadedModel
from hybrid.infer.answers.asking.eyes import Eyes
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.infer.text.tokenizer import Tokenizer

DRAWING = {"temperature": 0, "ignore_eos": True}
FIRST = 0xE000  # characters that stand for the pictures in rendered texts


def picture(seed: int) -> bytes:
    """A PNG file of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (128, 96, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


PICTURES = [picture(seed) for seed in (7, 8, 9)]


def shown(number: int, text: str) -> dict[str, Any]:
    """A message of the user with a picture."""
    url = f"data:image/png;base64,{base64.b64encode(PICTURES[number]).decode()}"
    return {**said(""), "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]}


class KnownPictures(Known):
    """The texts that a server has read and generated, in which a character stands for each picture."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, eyes: Eyes) -> None:
        super().__init__(tokenizer, self._rendered)
        self._template, self._placeholder = template, eyes.make.placeholder
        self._texts_of = [eyes.read(data).layout.text for data in PICTURES]

    def _rendered(self, messages: Messages) -> str:
        given, numbers = list[dict[str, Any]](), list[int]()
        for message in messages:
            parts = message["content"]
            if isinstance(parts, list):
                data = base64.b64decode(parts[0]["image_url"]["url"].partition(",")[2])
                numbers.append(PICTURES.index(data))
                parts = [{"type": "image"}, parts[1]]
            given.append({**message, "content": parts})
        pieces = self._template.render(given).split(self._placeholder)
        if len(pieces) != len(numbers) + 1:
            raise SystemExit("error: an answer has the text of a picture. Use another model, or another --answer.")
        marks = [chr(FIRST + number) for number in numbers]
        return pieces[0] + "".join(mark + piece for mark, piece in zip(marks, pieces[1:], strict=True))

    def whole(self, text: str) -> str:
        for number, read in enumerate(self._texts_of):
            text = text.replace(chr(FIRST + number), read)
        return text


def play(client: Client) -> None:
    """Eight turns."""

    def ask(name: str, messages: Messages) -> Messages:
        return client.ask(name, messages, **DRAWING)

    begun = ask("a picture", [shown(0, "What does this picture show, and what is unusual about it?")])
    second = ask("a question about it", [*begun, said("Tell me more about its upper left corner, please.")])
    third = ask("a second picture", [*second, shown(1, "Compare it with this one. Which is brighter?")])
    edited = ask("turn 3 edited", [*second, shown(1, "Compare it with this one. Which has more colours?")])
    fifth = ask("a third picture", [*edited, shown(2, "And here is a last one.")])
    sixth = ask("a question about all", [*fifth, said("Which of all of them would you put on a wall?")])
    ask("a branch at turn 3, with the third picture", [*third, shown(2, "What about this?")])
    ask("the first branch, with the first picture again", [*sixth, shown(0, "Look at the first again. Why not that?")])


def pictures_of(server: Running, peers: bool) -> int:
    """How many pictures the tower has read."""
    if peers:
        found = re.findall(r"encoding mtmd batch from .*n_chunks = (\d+)", server.log.read_text(errors="replace"))
        return sum(map(int, found))
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return int(next(line for line in lines if line.startswith("hybrid:pictures_total ")).split()[1])


def steps_of(files: tuple[Path, Path], n_answer: int, program: Path | None = None) -> tuple[list[Step], int]:
    """The steps of our server, or of llama-server if `program` is given, and the pictures that it has read."""
    model, tower = files
    with LoadedModel.load(model, n_ctx=64) as loaded:
        eyes = Eyes.open(tower, loaded)
        if loaded.chat_template is None:
            raise SystemExit(f"error: {model} has no chat template, which this script needs.")
        known = KnownPictures(loaded.tokenizer, loaded.chat_template, eyes)
        eyes.close()
    if program is None:
        context: Any = ours(model, "--mmproj", tower, "--parallel", 1, "-c", CONTEXT)
    else:
        context = peer(program, model, "--mmproj", tower, "-np", 1, "-c", CONTEXT, "--no-webui", "--jinja", "-lv", 4)
    with context as server:
        client = Client(server, known, n_answer, ours_processed if program is None else peers_processed)
        play(client)
        return client.steps, pictures_of(server, program is not None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("mmproj", type=Path)
    parser.add_argument("--peer", type=Path, help="llama-server")
    parser.add_argument("--answer", type=int, default=24, help="tokens of an answer (default: 24)")
    given = parser.parse_args()
    files = given.model, given.mmproj
    found = {"hybrid": steps_of(files, given.answer)}
    if given.peer:
        found["llama-server"] = steps_of(files, given.answer, given.peer)
        print(f"llama-server {version_of(given.peer)}\n")
    print(table({name: steps for name, (steps, _) in found.items()}))
    print("\npictures read: " + ", ".join(f"{name} {n}" for name, (_, n) in found.items()))


if __name__ == "__main__":
    sys.exit(main())
