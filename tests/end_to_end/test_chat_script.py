"""A scripted chat on the trained Jamba: how many tokens each step processes, compared with the minimum."""

from pathlib import Path

import pytest
from chat_script import QUESTIONS, Script, common, table

from hybrid.infer import LoadedModel
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.infer.answers.sampling import SamplingParams

HEADER = 12  # tokens of a template between messages: a changed message reuses the text before it up to this
BUDGET = 64 << 20


@pytest.fixture(scope="module")
def gguf(files: dict[str, Path]) -> Path:
    return files["bf16"]


def test_no_prompt_is_processed_twice(gguf: Path, tmp_path: Path) -> None:
    """The script of benchmarks/chat_script.py, with sampling."""
    with LoadedModel.load(gguf, n_ctx=2048, checkpoint_budget=BUDGET) as model:
        chat = Conversation(model, SamplingParams(temp=0.8, seed=4), model.chat_template, max_tokens=24)
        script = Script(chat)
        script.first_half()
        chat.save(tmp_path / "chat.state")
    with LoadedModel.load(gguf, n_ctx=2048, checkpoint_budget=BUDGET) as model:
        chat = Conversation(model, SamplingParams(temp=0.8, seed=5), model.chat_template, max_tokens=24)
        chat.load(tmp_path / "chat.state")
        script.after_restart(chat)
        print(table(script.steps, ()))
        for step in script.steps:
            assert step.processed - step.least <= HEADER, step.name
            if "regenerate" in step.name:
                assert step.processed == step.least == 0, "the logits after the prompt are known"
        assert sum(s.processed for s in script.steps) < sum(s.n_prompt for s in script.steps) / 8

        # the same bits as without reuse
        ids = chat.turns.head.ids if chat.turns.head else []
        chat.seq.resume([*ids, 5])
        chat.seq.prefill([*ids, 5][chat.seq.n_past :])
        logits = chat.seq.logits
        chat.seq.close()
    with LoadedModel.load(gguf, n_ctx=2048) as plain:
        seq = plain.sequence()
        assert logits is not None and seq.prefill([*ids, 5]).tobytes() == logits.tobytes()


def test_steps_say_how_their_prompts_are_made(gguf: Path, tmp_path: Path) -> None:
    """Another program can play the same script with its own answers."""
    with LoadedModel.load(gguf, n_ctx=1024, checkpoint_budget=BUDGET) as model:
        chat = Conversation(model, SamplingParams(temp=0), model.chat_template, max_tokens=12)
        script = Script(chat)
        whole: list[list[int]] = []
        for pieces in (lambda: chat.answer(QUESTIONS[0]), lambda: chat.answer("And?"), lambda: chat.edit(2, "Or?")):
            step = script.step("", pieces())
            whole.append(chat.turns.head.ids if chat.turns.head else [])
            prompt = [*([] if step.base is None else whole[step.base]), *step.added]
            assert len(prompt) == step.n_prompt and common(prompt, whole[-1]) == len(prompt)
        assert [s.base for s in script.steps] == [None, 0, 0]


def test_without_a_budget_it_is_slower_and_the_same(gguf: Path) -> None:
    answers = []
    for budget in (0, 1, BUDGET):
        with LoadedModel.load(gguf, n_ctx=1024, checkpoint_budget=budget) as model:
            chat = Conversation(model, SamplingParams(temp=0), model.chat_template, max_tokens=12)
            said = ["".join(part.text for part in chat.answer(q)) for q in QUESTIONS[:3]]
            said.append("".join(part.text for part in chat.edit(2, "And memory?")))
            said.append("".join(part.text for part in chat.regenerate()))
            answers.append(said)
    assert answers[0] == answers[1] == answers[2]
