"""The conversation of chat_script.py, held by a stateless client over HTTP: every step sends all messages again, with
the answers as texts. Counts for each step how many tokens of the prompt the server processes, and the minimum; with
`--peer` also for llama-server.

    python benchmarks/chat_http.py MODEL.gguf [--peer path/to/llama-server] [--answer 24]

Some answers are sampled at a high temperature, as tool calls and constrained answers are: encoding their text again
gives other tokens than were sampled. The minimum is what the text itself needs: the tokens after the longest prefix
shared with an earlier prompt and its answer, and the last token of that answer; 0 if a prompt is sent twice. Each
server plays with its own answers, in one slot. Nothing is timed, so the machine need not be idle.
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

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Step:
    """One request: its prompt's tokens, the processed tokens, and the minimum."""

    name: str
    n_prompt: int
    processed: int
    least: int


class Known:
    """The texts that a server has processed and generated."""

    def __init__(self, tokenizer: Tokenizer, render: Callable[[Messages], str]) -> None:
        self._tokenizer, self._render = tokenizer, render
        self._texts: list[str] = []

    def least(self, messages: Messages) -> int:
        """The number of tokens after the longest known prefix."""
        text = self._render(messages)
        n = max((common(text, known) for known in self._texts), default=0)
        if n == 0:
            return len(rendered_ids(self._tokenizer, self.whole(text)))
        after_answer = any(len(known) == n for known in self._texts if text.startswith(known))
        rest = self._tokenizer.encode(self.whole(text[n:]), add_special=False, parse_special=True, continues=True)
        return len(rest) + after_answer  # its last token was sampled, but not processed

    def whole(self, text: str) -> str:
        """A part of a rendered text as the model reads it."""
        return text

    def add(self, messages: Messages, answer: str) -> None:
        """Add the answer as generated, and as the template renders it when sent back: many strip whitespace."""
        said = answer.strip()
        back = self._render([*messages, {"role": "assistant", "content": answer}])
        self._texts += [self._render(messages) + answer, back[: back.rfind(said) + len(said)] if said else ""]


class Client:
    """Keeps the messages, asks, counts."""

    def __init__(self, server: Running, known: Known, n_answer: int, processed: Callable[[Any], int]) -> None:
        self.server, self.known, self.n_answer, self.processed = server, known, n_answer, processed
        self.steps: list[Step] = []

    def ask(self, name: str, messages: Messages, **drawing: Any) -> Messages:
        """Ask; return the messages with the answer."""
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


def said(text: str) -> dict[str, Any]:
    """A message of the user."""
    return {"role": "user", "content": text}


def play(client: Client) -> None:
    """Play 12 turns, then what people do with a conversation: send prefixes of it again with other ends."""
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
    """Processed tokens, from the usage."""
    usage = reply["usage"]
    return int(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"])


def peers_processed(reply: Any) -> int:
    """Processed tokens, from llama-server's timings."""
    return int(reply["timings"]["prompt_n"])


def table(sides: dict[str, Sequence[Step]]) -> str:
    """A Markdown table of the steps."""
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
    """The steps of our server, or of llama-server if `program` is given."""
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
    """Print the table."""
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
