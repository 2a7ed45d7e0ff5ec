"""A scripted chat of 12 turns with all that people do in a chat. Counts how many tokens each step processes, and the
minimum; with `--peer` also llama-server's count for the same steps (`timings.prompt_n`).

    python benchmarks/chat_script.py MODEL.gguf [--peer path/to/llama.cpp/build/bin] [--answer 24]

Both sides get the same questions and continue from their own greedy answers of `--answer` tokens. The server has one
slot; the restart saves and restores it. Nothing is timed, so the machine need not be idle.
"""

import argparse
import contextlib
import json
import platform
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from hybrid.infer import LoadedModel
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.bench.machine import cpu_name
from hybrid.infer.text.chat_template import ChatTemplate, special_tokens

QUESTIONS = [
    "What is a state-space model?", "And attention?", "Which of them remembers a long text better, and why is that so?",
    "Give an example.", "Another one, please, with a table of numbers in it.", "Why?", "How much memory does it need?",
    "Compare both in one sentence.", "Is that always true?", "What would you change?", "Summarise our conversation.",
    "Thank you.",
]  # fmt: skip
BUDGET = 1 << 30
CONTEXT = 2048


@dataclass(frozen=True)
class Step:
    """One answer. `prompt` is all tokens of row `base` (prompt and answer), followed by `added`."""

    name: str
    base: int | None
    added: list[int]
    n_prompt: int
    processed: int
    least: int
    restarted: bool  # the program was restarted before it


class Known:
    """Processed texts. At least the tokens after the longest known prefix must be processed.

    The last token of a prompt must be processed if its logits are not known.
    """

    def __init__(self) -> None:
        self._texts: list[list[int]] = []

    def least(self, prompt: Sequence[int]) -> int:
        """The number of tokens of `prompt` after the longest known prefix."""
        return len(prompt) - max((common(prompt, text) for text in self._texts), default=0)

    def add(self, prompt: list[int], answer: list[int], complete: bool) -> None:
        """complete: the model has also processed the answer's last token."""
        self._texts += [prompt, prompt + answer[: None if complete else -1]]


def common(a: Sequence[object], b: Sequence[object]) -> int:
    """The length of the common prefix of two texts, in tokens or characters."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class Script:
    """Plays the chat on our side and counts. `chat` is replaced at the restart, `steps` continues."""

    def __init__(self, chat: Conversation) -> None:
        self.chat = chat
        self.steps: list[Step] = []
        self._known = Known()
        self._row_of: dict[int, int] = {}  # turn number -> its step
        self._restarted = False

    def step(self, name: str, pieces: Iterator[object]) -> Step:
        """Generate an answer to its end; `pieces` is the conversation's iterator for it."""
        before = self.chat.stats.n_prompt
        for _ in pieces:
            pass
        result, head = self.chat.result, self.chat.turns.head
        assert result is not None and head is not None
        n = len(head.ids) - len(result.ids)
        prompt, answer = head.ids[:n], head.ids[n:]
        base = None if head.base is None else self._row_of[head.base.number]
        added = head.added[: len(head.added) - len(answer)]
        processed = self.chat.stats.n_prompt - before
        new_step = Step(name, base, added, n, processed, self._known.least(prompt), self._restarted)
        # the last sampled token is not processed until something follows it
        self._known.add(prompt, answer, complete=result.reason != "length")
        self._row_of[head.number] = len(self.steps)
        self.steps.append(new_step)
        self._restarted = False
        return new_step

    def first_half(self) -> None:
        """Play 12 turns, then switch between branches."""
        chat = self.chat
        for i, question in enumerate(QUESTIONS):
            self.step(f"turn {i + 1}", chat.answer(question))
        self.step("regenerate", chat.regenerate())
        chat.undo()
        self.step("undo, and another question", chat.answer("Goodbye, then."))
        chat.turns.fork("end")
        chat.turns.switch("main")
        self.step("edit of turn 3", chat.edit(3, "Which of them is faster?"))
        chat.turns.switch("end")
        self.step("back to the end", chat.answer("Still there?"))
        chat.turns.switch("6")
        chat.turns.fork("sixth")
        self.step("fork at turn 6", chat.answer("Why not?"))
        chat.turns.switch("main")
        self.step("the edited branch", chat.answer("Go on."))

    def after_restart(self, chat: Conversation) -> None:
        """Continue with `chat`, which has loaded the saved one."""
        self.chat, self._restarted = chat, True
        self.step("restart, the edited branch", chat.answer("And then?"))
        chat.turns.switch("end")
        self.step("restart, back to the end", chat.answer("Still there?"))
        self.step("restart, regenerate", chat.regenerate())
        chat.turns.switch("sixth")
        self.step("restart, edit of turn 2", chat.edit(2, "And memory?"))


def plain_template(model: LoadedModel) -> ChatTemplate:
    """A template for models without one: messages end with the model's EOS."""
    source = """{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}
        {%- if add_generation_prompt %}assistant:{% endif %}"""
    return ChatTemplate(source, tokens=special_tokens(model.tokenizer))


def conversation(model: LoadedModel, n_answer: int) -> Conversation:
    """A conversation with greedy answers of n_answer tokens."""
    params = SamplingParams(temp=0, logit_bias=dict.fromkeys(model.tokenizer.eog, -1e9))
    return Conversation(model, params, model.chat_template or plain_template(model), max_tokens=n_answer)


def play(path: Path, n_answer: int, folder: Path) -> list[Step]:
    """Play the whole script on our side."""
    with LoadedModel.load(path, n_ctx=CONTEXT, checkpoint_budget=BUDGET) as model:
        script = Script(conversation(model, n_answer))
        script.first_half()
        script.chat.save(folder / "chat.state")
    with LoadedModel.load(path, n_ctx=CONTEXT, checkpoint_budget=BUDGET) as model:
        chat = conversation(model, n_answer)
        chat.load(folder / "chat.state")
        script.after_restart(chat)
    return script.steps


class Server:
    """llama-server with one slot."""

    def __init__(self, program: Path, model: Path, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        command = [program, "-m", model, "-c", CONTEXT, "-np", 1, "--port", port, "--slot-save-path", folder]
        self._log = (folder / "server.log").open("ab")
        self._process = subprocess.Popen([str(word) for word in command], stdout=self._log, stderr=self._log)
        for _ in range(600):
            with contextlib.suppress(OSError):
                if self._ask("/health").get("status") == "ok":
                    return
            if self._process.poll() is not None:
                break
            time.sleep(0.5)
        self.close()
        raise SystemExit(f"error: {program} does not answer; its last words are in {folder / 'server.log'}")

    def _ask(self, where: str, values: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if values is None else json.dumps(values).encode()
        request = urllib.request.Request(self._url + where, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=3600) as answer:
            reply: dict[str, Any] = json.load(answer)
        return reply

    def complete(self, prompt: list[int], n: int) -> tuple[list[int], int]:
        """The answer's tokens, and the number of processed tokens of the prompt."""
        reply = self._ask(
            "/completion",
            {
                "prompt": prompt,
                "n_predict": n,
                "temperature": 0,
                "ignore_eos": True,
                "return_tokens": True,
                "cache_prompt": True,
            },
        )
        return reply["tokens"], reply["timings"]["prompt_n"]

    def slot(self, action: str) -> None:
        """`action` is save or restore: of llama-server's whole slot, in a file of its folder."""
        self._ask(f"/slots/0?action={action}", {"filename": "slot.session"})

    def close(self) -> None:
        """End the program and wait for it."""
        self._process.terminate()
        self._process.wait()
        self._log.close()


def play_peer(program: Path, path: Path, steps: Sequence[Step], n_answer: int, folder: Path) -> list[tuple[int, int]]:
    """(processed, minimum) of llama-server for each step."""
    known, whole, counts = Known(), [], []  # type: tuple[Known, list[list[int]], list[tuple[int, int]]]
    server = Server(program, path, folder)
    try:
        for step in steps:
            if step.restarted:
                server.slot("save")
                server.close()
                server = Server(program, path, folder)
                server.slot("restore")
            prompt = [*([] if step.base is None else whole[step.base]), *step.added]
            least = known.least(prompt)
            answer, processed = server.complete(prompt, n_answer)
            known.add(prompt, answer, complete=False)
            whole.append(prompt + answer)
            counts.append((processed, least))
    finally:
        server.close()
    return counts


def table(steps: Sequence[Step], peer: Sequence[tuple[int, int]]) -> str:
    """A Markdown table of the steps."""
    rows = [["step", "prompt", "least", "processed"]]
    rows += [[s.name, str(s.n_prompt), str(s.least), str(s.processed)] for s in steps]
    rows.append(["**sum**", *(str(sum(getattr(s, n) for s in steps)) for n in ("n_prompt", "least", "processed"))])
    if peer:
        rows[0] += ["llama-server's least", "llama-server"]
        for row, counts in zip(rows[1:], [*peer, tuple(map(sum, zip(*peer, strict=True)))], strict=True):
            row += [str(counts[1]), str(counts[0])]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---|" + "---:|" * (len(rows[0]) - 1), *lines[1:]])


def version_of(program: Path) -> str:
    """The version that the program prints."""
    done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False)
    return next((line for line in (done.stdout + done.stderr).splitlines() if line.startswith("version")), "?")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--peer", type=Path, help="folder with llama-server")
    parser.add_argument("--answer", type=int, default=24, help="tokens of an answer (default: 24)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = play(given.model, given.answer, folder)
        peer: list[tuple[int, int]] = []
        if given.peer:
            peer = play_peer(given.peer / "llama-server", given.model, steps, given.answer, folder)
    print(f"{given.model.name}, answers of {given.answer} tokens; {cpu_name()},")
    print(f"Python {platform.python_version()}, numba {metadata.version('numba')}", end="")
    print(f"; llama-server {version_of(given.peer / 'llama-server')}\n" if given.peer else "\n")
    print(table(steps, peer))


if __name__ == "__main__":
    sys.exit(main())
