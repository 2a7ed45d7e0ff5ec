"""POST /page/costs predicts for any branch of a conversation the costs that its answer then reports."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from converted_models import converted
from http_server import Server
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scripted_chat import CALL, SECOND, TOOLS, WITH_THOUGHTS, WITH_TOOLS, Script, post, scripted, served

from hybrid.infer import LoadedModel
from hybrid.quant.ggml.types import FileType

TEXTS = ("Yes.", " It keeps  a state,\nand forgets the rest. ", "Because it is so.", "No: 12 + 5 = 17", "é, ü and …")
SPOKEN = {
    WITH_TOOLS: (*TEXTS, CALL, f"Both.\n{CALL}\n{SECOND}"),
    WITH_THOUGHTS: (*(f"Hm, {text}\n</think>\n\n{text}" for text in TEXTS), f"to add\n</think>\n\n{CALL}"),
}
Messages = list[dict[str, Any]]
# a server keeps its texts: repeating a failure does not shrink it
FEW = settings(max_examples=2, phases=[Phase.generate])


@pytest.fixture(scope="module")
def path(bundled: Path) -> Path:
    """The bundled model, which has recurrent layers."""
    return converted(bundled)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    with scripted(monkeypatch) as script:
        yield script


def costs(server: Server, *conversations: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = post(server, "/page/costs", conversations=conversations)["costs"]
    return found


def paid(answer: Any) -> dict[str, int]:
    """The costs that an answer reports, which must agree in both of its places."""
    usage, timings = answer["usage"], answer["timings"]
    n, reused = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    assert (timings["cache_n"], timings["prompt_n"]) == (reused, n - reused)
    return {"tokens": n, "reused": reused, "read": n - reused}


class Tree:
    """A conversation on the page: it can return to every sent text and every answer."""

    def __init__(self, draw: Any, server: Server, script: Script | None, spoken: tuple[str, ...]) -> None:
        self.draw, self.server, self.script, self.spoken = draw, server, script, spoken
        self.more: dict[str, Any] = draw(st.sampled_from([{}, {"tools": TOOLS}]))
        system = {"role": "system", "content": "Say it shortly. " * draw(st.integers(0, 30))}
        self.ends: list[Messages] = [[], [system]]  # texts before a new question
        self.asked: list[Messages] = []  # answered texts

    def next(self) -> Messages:
        """A new question after any text so far, an edited or repeated question, or a continued answer."""
        how = self.draw(st.sampled_from(["ask", "ask", "again", "edit", "go on"]))
        if how == "again" and self.asked:
            return self.draw(st.sampled_from(self.asked))
        if how == "edit" and self.asked:
            asked = self.draw(st.sampled_from(self.asked))
            return [*asked[:-1], {**asked[-1], "content": asked[-1]["content"][:3] + "?"}]
        before = self.draw(st.sampled_from(self.ends))
        calls = before[-1].get("tool_calls", []) if before else []
        if how == "go on" and before and before[-1]["role"] == "assistant" and not calls:
            return before
        if calls:
            return [*before, *({"role": "tool", "tool_call_id": one["id"], "content": "17"} for one in calls)]
        return [*before, {"role": "user", "content": self.draw(st.sampled_from(TEXTS)) * self.draw(st.integers(1, 9))}]

    def answer(self, messages: Messages) -> Any:
        if self.script is not None:
            self.script.say(self.draw(st.sampled_from(self.spoken)))
        answer = post(
            self.server, "/v1/chat/completions", messages=messages, max_tokens=60, temperature=1.5, seed=3, **self.more
        )
        told = answer["choices"][0]["message"]
        self.asked += [messages] if messages[-1]["role"] != "assistant" else []
        if answer["choices"][0]["finish_reason"] != "length":
            self.ends.append([*messages, told] if messages[-1]["role"] != "assistant" else messages)
        return answer


def check(tree: Tree) -> None:
    """Get the prices of several continuations together, then take one of them."""
    ways = [tree.next() for _ in range(3)]
    told = costs(tree.server, *({"messages": way, **tree.more} for way in ways))
    chosen = tree.draw(st.integers(0, 2))
    assert told[chosen] == paid(tree.answer(ways[chosen])), (json.dumps(ways[chosen]), tree.more)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "budget"),
    [(WITH_TOOLS, 64 << 20), (WITH_THOUGHTS, 1 << 20)],
    ids=["tools, all is kept", "thoughts, little is kept"],
)
def test_what_is_told_is_paid(path: Path, script: Script, source: str, budget: int) -> None:
    with (
        LoadedModel.load(path, n_ctx=4096, n_seq_max=4, checkpoint_budget=budget) as model,
        closing(served(model, source)) as server,
    ):

        @FEW
        @given(data=st.data())
        def run(data: Any) -> None:
            tree = Tree(data.draw, server, script, SPOKEN[source])
            for _ in range(6):
                check(tree)

        run()


@pytest.mark.slow
def test_without_recurrent_layers(random_model: Callable[[str, FileType], Path]) -> None:
    """Such models can continue from any token."""
    with (
        LoadedModel.load(random_model("llama-biased", FileType.F32), n_ctx=4096, n_seq_max=4) as model,
        closing(served(model, WITH_TOOLS)) as server,
    ):

        @FEW
        @given(data=st.data())
        def run(data: Any) -> None:
            tree = Tree(data.draw, server, None, ())
            for _ in range(6):
                check(tree)

        run()
