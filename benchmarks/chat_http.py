"""The conversation of chat_script.py as a stateless client holds it over HTTP: every step sends all messages again,
with the answers as texts. Counts for each step how many tokens of the prompt the server processes and the least that is
possible, and with `--peer` the same for llama-server.

    python benchmarks/chat_http.py MODEL.gguf [--peer path/to/llama-server] [--answer 24]

Some answers are drawn at a high temperature, as tool calls and constrained answers are drawn: their text, encoded
again, gives other tokens than were drawn. The least is what the text itself needs: the tokens of what follows the
longest beginning that any earlier prompt with its answer has, and the last token of that answer; none where a prompt is
sent twice. Each server answers for itself, with one place. Nothing is timed, so the machine need not be idle.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chat_script import CONTEXT, QUESTIONS, common, version_of
from http_connection import Connection
from servers import Running, ours, peer

from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.infer.text.encode import rendered_ids
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.reader import GGUFFile

FREELY = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 7}
GREEDY = {"temperature": 0}
FREE_TURNS = (2, 5, 8)

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Step:
    """One request: tokens of its prompt, what was processed of it, and the least that could be."""

    name: str
    n_prompt: int
    processed: int
    least: int


class Known:
    """The texts that a server has seen and drawn."""

    def __init__(self, tokenizer: Tokenizer, render: Callable[[Messages], str]) -> None:
        self._tokenizer, self._render = tokenizer, render
        self._texts: list[str] = []

    def least(self, messages: Messages) -> int:
        """Tokens of what no known text begins with."""
        text = self._render(messages)
        n = max((common(text, known) for known in self._texts), default=0)
        if n == 0:
            return len(rendered_ids(self._tokenizer, text))
        after_answer = any(len(known) == n for known in self._texts if text.startswith(known))
        rest = self._tokenizer.encode(text[n:], add_special=False, parse_special=True, continues=True)
        return len(rest) + after_answer  # its last token has been drawn, but not read

    def add(self, messages: Messages, answer: str) -> None:
        """As it was drawn, and as the template writes it when it comes back: many strip white space."""
        said = answer.strip()
        back = self._render([*messages, {"role": "assistant", "content": answer}])
        self._texts += [self._render(messages) + answer, back[: back.rfind(said) + len(said)] if said else ""]


class Client:
    """Holds the messages, asks, counts."""

    def __init__(self, server: Running, known: Known, n_answer: int, processed: Callable[[Any], int]) -> None:
        self.server, self.known, self.n_answer, self.processed = server, known, n_answer, processed
        self.steps: list[Step] = []

    def ask(self, name: str, messages: Messages, **drawing: Any) -> Messages:
        """The messages with the answer."""
        return asyncio.run(self._ask(name, messages, drawing or GREEDY))

    async def _ask(self, name: str, messages: Messages, drawing: dict[str, Any]) -> Messages:
        body = {"messages": messages, "max_tokens": self.n_answer, **drawing}
        async with Connection(self.server.port) as connection:
            status, reply = await connection.ask("POST", "/v1/chat/completions", body)
        if status != 200:
            raise SystemExit(f"error: {name}: {status} {reply}")
        answer = reply["choices"][0]["message"]["content"]
        self.steps.append(
            Step(name, reply["usage"]["prompt_tokens"], self.processed(reply), self.known.least(messages))
        )
        self.known.add(messages, answer)
        return [*messages, {"role": "assistant", "content": answer}]


def said(text: str) -> dict[str, str]:
    """A message of the user."""
    return {"role": "user", "content": text}


def play(client: Client) -> None:
    """12 turns, then what people do with a conversation: its beginnings are sent again with other ends."""
    talk: Messages = []
    for i, question in enumerate(QUESTIONS):
        free = i in FREE_TURNS
        talk = client.ask(f"turn {i + 1}{', drawn freely' * free}", [*talk, said(question)], **(FREELY if free else {}))
    client.ask("regenerate", talk[:-1], **FREELY)
    end = client.ask("undo, and another question", [*talk[:-2], said("Goodbye, then.")])
    edited = client.ask("edit of turn 3", [*talk[:4], said("Which of them is faster?")])
    end = client.ask("back to the end", [*end, said("Still there?")])
    client.ask("fork at turn 6", [*talk[:12], said("Why not?")])
    client.ask("the edited branch", [*edited, said("Go on.")])
    client.ask("the end again", [*end, said("And now?")], **FREELY)


def ours_processed(reply: Any) -> int:
    """From the usage."""
    usage = reply["usage"]
    return int(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"])


def peers_processed(reply: Any) -> int:
    """llama-server's timings."""
    return int(reply["timings"]["prompt_n"])


def table(sides: dict[str, Sequence[Step]]) -> str:
    """Markdown."""
    head = ["step"]
    for name in sides:
        head += [f"{name}'s prompt", "least", "processed"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for steps in zip(*sides.values(), strict=True):
        lines.append([steps[0].name, *(str(n) for s in steps for n in (s.n_prompt, s.least, s.processed))])
    sums = ["**sum**"]
    for steps in sides.values():
        processed, least = sum(s.processed for s in steps), sum(s.least for s in steps)
        sums += [str(sum(s.n_prompt for s in steps)), str(least), f"{processed} ({processed / least:.2f} of the least)"]
    return "\n".join(f"| {' | '.join(line)} |" for line in (*lines, sums))


def steps_of(model: Path, n_answer: int, program: Path | None = None) -> list[Step]:
    """Of our server, or of llama-server."""
    gguf = GGUFFile.open(model)
    tokenizer = load_tokenizer(gguf)
    template = ChatTemplate.from_gguf(gguf, tokenizer)
    if template is None:
        raise SystemExit(f"error: {model} has no chat template, which this script needs.")
    known = Known(tokenizer, template.render)
    if program is None:
        context: Any = ours(model, "--parallel", 1, "-c", CONTEXT)
    else:
        context = peer(program, model, "-np", 1, "-c", CONTEXT, "--no-webui", "--jinja")
    with context as server:
        client = Client(server, known, n_answer, ours_processed if program is None else peers_processed)
        play(client)
    return client.steps


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--peer", type=Path, help="llama-server")
    parser.add_argument("--answer", type=int, default=24, help="tokens of an answer (default: 24)")
    given = parser.parse_args()
    sides = {"hybrid": steps_of(given.model, given.answer)}
    if given.peer:
        sides["llama-server"] = steps_of(given.model, given.answer, given.peer)
        print(f"llama-server {version_of(given.peer)}\n")
    print(table(sides))


if __name__ == "__main__":
    sys.exit(main())
