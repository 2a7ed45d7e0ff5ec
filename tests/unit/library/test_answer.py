"""Answers while they are generated: parts, threads, event loops, stopping."""

import _thread
import asyncio
import itertools
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from scripted_chat import CALL, Script

import hybrid
from hybrid.infer.answers.batch.batcher import Batcher


def test_stopping_keeps_what_there_is(model: hybrid.Model) -> None:
    stream = model.complete("A model", tokens=900, temperature=0, stream=True)
    first = next(iter(stream))
    stream.stop()
    assert stream.wait().finish == "stopped" and stream.text.startswith(first) and len(stream.tokens) < 900
    assert stream.timings.tokens == len(stream.tokens) and "stopped" in repr(stream)


def test_ctrl_c_stops_it_and_leaves_the_model(model: hybrid.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while it waits for the next piece, which is most of the time."""
    step, steps = Batcher.step, itertools.count()
    waits = threading.Event()

    def interrupts(self: Batcher) -> object:
        number = next(steps)
        if number == 20:
            assert waits.wait(60)
            _thread.interrupt_main()
        elif number > 20:
            time.sleep(0.1)  # so 90 s are left for the interrupt
        return step(self)

    monkeypatch.setattr(Batcher, "step", interrupts)
    stream = model.complete("A model", tokens=900, temperature=0, stream=True)
    events = stream._events

    class Waiting:
        def get(self) -> object:
            waits.set()
            return events.get()

    stream._events = Waiting()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        stream.wait()
    assert stream.finish == "stopped" and 0 < len(stream.tokens) < 900
    assert model.answering.service.n_jobs == 0
    assert model.complete("A model", tokens=3).finish == "length"


def test_an_answer_that_nobody_reads_ends(model: hybrid.Model) -> None:
    stream = model.complete("A model", tokens=900, temperature=0, stream=True)
    assert model.answering.service.n_jobs == 1
    del stream
    deadline = time.monotonic() + 60
    while model.answering.service.n_jobs and time.monotonic() < deadline:
        time.sleep(0.01)
    assert model.answering.service.n_jobs == 0


@pytest.mark.slow
def test_a_program_that_ends_waits_for_nothing(gguf: Path) -> None:
    code = (
        "import sys, hybrid\n"
        "model = hybrid.load(sys.argv[1], context=1024, threads=1)\n"
        "stream = model.complete('A model', tokens=900, temperature=0, stream=True)\n"
        "print(len(next(iter(stream))) >= 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, gguf], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_event_loops(model: hybrid.Model) -> None:
    async def written(prompt: str) -> str:
        return "".join([piece async for piece in model.complete(prompt, tokens=10, seed=1, stream=True)])

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(written(f"A model {i}") for i in range(3)))

    assert asyncio.run(all_of_them()) == [str(model.complete(f"A model {i}", tokens=10, seed=1)) for i in range(3)]


def test_an_async_for_that_is_left_stops_it(model: hybrid.Model) -> None:
    stream = model.complete("A model", tokens=900, temperature=0, stream=True)

    async def first() -> None:
        pieces = stream.__aiter__()
        await anext(pieces)
        await pieces.aclose()

    asyncio.run(first())
    assert stream.wait().finish == "stopped"


def test_what_a_notebook_shows(model: hybrid.Model) -> None:
    class Printer:
        shown = ""

        def text(self, text: str) -> None:
            self.shown += text

    printer, answer = Printer(), model.complete("A model", tokens=100, temperature=0)
    answer._repr_pretty_(printer, False)
    assert printer.shown == f"{answer}\n[100 tokens, length]" and len(repr(answer)) < 300


def test_parts(thinking: hybrid.Model, script: Script) -> None:
    script.say(f"Let me see.\n</think>\n\nSo: {CALL}")
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    answer = thinking.reply([{"role": "user", "content": "?"}], tools=tools, stream=True)
    parts = list(answer.parts())
    told = {kind: "".join(part.text for part in parts if part.kind == kind) for kind in ("thought", "text", "call")}
    assert told == {"thought": "Let me see.", "text": "So:", "call": "add"}
    assert answer.finish == "tool_calls" and answer.thoughts == "Let me see." and str(answer) == "So:"
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [("add", '{"a": 5, "b": true}')]
    assert [part.text for part in parts if part.kind == "text"] == list(answer)


def test_a_chat_answer_has_no_space_before_it(model: hybrid.Model, script: Script) -> None:
    script.say(" Yes.")
    answer = model.chat().say("?", stream=True)
    assert "".join(answer) == "Yes." == answer.text
