"""Files of prompts: work done once per file, once per line, and once per answer."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from converted_models import converted
from fake_chat import TOOLS, FakeModel, Template, thinking_template

from hybrid.infer import LoadedModel
from hybrid.infer.answers.chat import dialect
from hybrid.infer.answers.chat.dialect import ChatOptions
from hybrid.infer.answers.constraints.forms import Forms
from hybrid.infer.answers.prompt_files.prompt_files import PromptBatch, read_prompts
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.quant.ggml.errors import UsageError

TALK = [{"role": "user", "content": "Rain?"}]


def lines(*values: Any) -> str:
    return "\n".join(map(json.dumps, values))


def count(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[int]:
    """A one-element list that counts the calls of a method from now on."""
    method, calls = getattr(owner, name), [0]

    def counted(*given: Any, **more: Any) -> Any:
        calls[0] += 1
        return method(*given, **more)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_a_template_is_looked_into_for_the_first_line_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probing a template takes tens of milliseconds, which a file of plain prompts is spared."""
    model = FakeModel()
    model.chat_template = Template()  # type: ignore[attr-defined]
    made = count(monkeypatch, dialect.Dialect, "__init__")
    assert len(read_prompts(lines("a", {"prompt": "b"}), "f", model)) == 2  # type: ignore[arg-type]
    assert made == [0]
    read_prompts(lines("a", {"messages": TALK}, {"messages": TALK}), "f", model)  # type: ignore[arg-type]
    assert made == [1]


def test_what_the_model_cannot_do_is_said_before_any_line(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    model.chat_template = Template()  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"^the model has no thoughts"):
        read_prompts(lines("a"), "f", model, asked=ChatOptions(think=True))  # type: ignore[arg-type]


def test_a_line_is_rendered_once_for_all_its_answers(bundled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample gets its own copy of the form and its own budget of thoughts."""
    with LoadedModel.load(converted(bundled), n_ctx=512, n_seq_max=4) as model:
        model.file.__dict__["chat_template"] = thinking_template()
        forms = Forms(model.tokenizer)
        asked = ChatOptions(tuple(TOOLS), budget=4)
        text = lines({"messages": TALK}, {"messages": TALK, "choice": ["yes", "no"]})
        prompts = read_prompts(text, "f", model, forms=forms, asked=asked)
        renderings, grammars = (
            count(monkeypatch, ChatTemplate, "render"),
            count(monkeypatch, dialect.Dialect, "grammar"),
        )
        budgets = count(monkeypatch, dialect.Dialect, "budget")
        batch = PromptBatch(model, SamplingParams(seed=1), 12, n_parallel=4, n_samples=5, forms=forms)
        out = io.StringIO()
        assert batch.run(prompts, out).n_answers == 10
        forms.close()
    assert renderings == [0], "their prompts were rendered when the file was read"
    assert grammars == [2], "one for each line"
    assert budgets == [10], "one for each answer: it counts its thoughts"
    answers = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [a["sample"] for a in answers] == [*range(5)] * 2 and len({a["text"] for a in answers[:5]}) > 1
