"""A scripted chat on the trained Jamba: what each step processes, beside the least that is possible."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hybrid.cli.conversation import Conversation
from hybrid.convert import convert
from hybrid.infer import Model
from hybrid.infer.sampling import SamplingParams

QUESTIONS = [
    "What is a state-space model?", "And attention?", "Which of them remembers a long text better, and why is that so?",
    "Give an example.", "Another one, please, with a table of numbers in it.", "Why?", "How much memory does it need?",
    "Compare both in one sentence.", "Is that always true?", "What would you change?", "Summarise our conversation.",
    "Thank you.",
]  # fmt: skip
HEADER = 12  # tokens of a template between two messages: where a message differs, the text before it is known so far
BUDGET = 64 << 20


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory, bundled: Path) -> Path:
    path = tmp_path_factory.mktemp("models") / "jamba.gguf"
    convert(bundled, path, outtype="bf16")
    return path


class Script:
    """Counts what a conversation processes, and what nobody could spare: the tokens after the longest known beginning.

    A beginning is known if any text before had it; the last token of a prompt must be processed if its logits are not.
    """

    def __init__(self, chat: Conversation) -> None:
        self.chat, self.known, self.rows = chat, [], []  # type: ignore[var-annotated]

    def step(self, name: str, pieces: Iterator[str]) -> tuple[int, int]:
        before = self.chat.stats.n_prompt
        said = "".join(pieces)
        assert self.chat.result is not None
        head = self.chat.turns.head
        assert head is not None
        drawn = len(self.chat.result.ids)
        prompt = head.ids[: len(head.ids) - drawn]
        least = len(prompt) - max((common(prompt, k) for k in self.known), default=0)
        processed = self.chat.stats.n_prompt - before
        # the token drawn last is not processed until something follows it
        self.known += [prompt, head.ids[: len(head.ids) - (1 if self.chat.result.reason == "length" else 0)]]
        self.rows.append((name, len(prompt), processed, least))
        assert said or drawn == 0
        return processed, least


def common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_no_prompt_is_processed_twice(gguf: Path, tmp_path: Path) -> None:
    with Model.load(gguf, n_ctx=2048, checkpoint_budget=BUDGET) as model:
        chat = Conversation(model, SamplingParams(temp=0.8, seed=4), model.chat_template, max_tokens=24)
        script = Script(chat)
        for i, question in enumerate(QUESTIONS):
            script.step(f"turn {i + 1}", chat.answer(question))
        processed, least = script.step("regenerate", chat.regenerate())
        assert processed == least == 0, "the logits after the prompt are known"
        chat.undo()
        script.step("undo, and another question", chat.answer("Goodbye, then."))
        chat.turns.fork("end")
        chat.turns.switch("main")
        script.step("edit of turn 3", chat.edit(3, "Which of them is faster?"))
        chat.turns.switch("end")
        script.step("back to the end", chat.answer("Still there?"))
        chat.turns.switch("6")
        chat.turns.fork("sixth")
        script.step("fork at turn 6", chat.answer("Why not?"))
        chat.turns.switch("main")
        script.step("the edited branch", chat.answer("Go on."))
        chat.save(tmp_path / "chat.state")
    with Model.load(gguf, n_ctx=2048, checkpoint_budget=BUDGET) as model:
        known, rows = script.known, script.rows
        chat = Conversation(model, SamplingParams(temp=0.8, seed=5), model.chat_template, max_tokens=24)
        chat.load(tmp_path / "chat.state")
        script = Script(chat)
        script.known, script.rows = known, rows
        script.step("restart, the edited branch", chat.answer("And then?"))
        chat.turns.switch("end")
        script.step("restart, back to the end", chat.answer("Still there?"))
        processed, _ = script.step("restart, regenerate", chat.regenerate())
        assert processed == 0
        chat.turns.switch("sixth")
        script.step("restart, edit of turn 2", chat.edit(2, "And memory?"))
        for name, whole, processed, least in script.rows:
            print(f"{name:28} prompt {whole:5}  processed {processed:4}  least {least:4}")
        for name, _, processed, least in script.rows:
            assert processed - least <= HEADER, name
        total = sum(row[2] for row in script.rows)
        assert total < sum(row[1] for row in script.rows) / 8

        # the same bits as without any of it
        ids = chat.turns.head.ids if chat.turns.head else []
        chat.seq.resume([*ids, 5])
        chat.seq.prefill([*ids, 5][chat.seq.n_past :])
        logits = chat.seq.logits
        chat.seq.close()
    with Model.load(gguf, n_ctx=2048) as plain:
        seq = plain.sequence()
        assert logits is not None and seq.prefill([*ids, 5]).tobytes() == logits.tobytes()


def test_without_a_budget_it_is_slower_and_the_same(gguf: Path) -> None:
    answers = []
    for budget in (0, 1, BUDGET):
        with Model.load(gguf, n_ctx=1024, checkpoint_budget=budget) as model:
            chat = Conversation(model, SamplingParams(temp=0), model.chat_template, max_tokens=12)
            said = ["".join(chat.answer(q)) for q in QUESTIONS[:3]]
            said.append("".join(chat.edit(2, "And memory?")))
            said.append("".join(chat.regenerate()))
            answers.append(said)
    assert answers[0] == answers[1] == answers[2]
