"""The grammar made for each real template allows the calls that the template writes, and they are read back."""

from pathlib import Path

import pytest
from chat_vocabulary import NORMAL, chat_tokenizer

from hybrid.infer.answers.chat.call_grammar import answer_grammar
from hybrid.infer.answers.chat.call_text import written_calls
from hybrid.infer.answers.chat.probing import probed
from hybrid.infer.answers.chat.reader import AnswerReader
from hybrid.infer.answers.chat.tools import Tool, ToolChoice
from hybrid.infer.answers.constraints import Constraint
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.quant.ggml.errors import HybridError

TEMPLATES = Path(__file__).parents[4] / "data" / "chat" / "templates"
NAMES = sorted(path.name for path in TEMPLATES.glob("*.jinja"))
CALLS = [
    ("abcdefgh1", "get_weather", {"city": "Z\u00fcrich", "days": 2}),
    ("abcdefgh2", "note", {"text": "a\nb <i>"}),
]
STRING = {"type": "string"}
TOOLS = [
    Tool("get_weather", "", {"properties": {"city": STRING, "days": {"type": "integer"}}, "required": ["city"]}, {}),
    Tool("note", "", {"type": "object", "properties": {"text": STRING}}, {}),
]
TOKENIZER = chat_tokenizer(NORMAL)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_calls_of_a_template_may_be_drawn(name: str) -> None:
    format = probed(ChatTemplate((TEMPLATES / name).read_text()))
    for calls in (CALLS[:1], CALLS) if format.calls.between is not None or format.calls.mark else (CALLS[:1],):
        text = written_calls(format.calls, calls)
        reader = AnswerReader(format, TOOLS)
        reader.push(text)
        reader.finish()
        assert [call.name for call in reader.calls] == [called for _, called, _ in calls]
        for mode in ("auto", "required"):
            grammar = answer_grammar(format, TOKENIZER, TOOLS, ToolChoice(mode))  # type: ignore[arg-type]
            assert grammar is not None
            state = Constraint(grammar, TOKENIZER)
            try:
                for token in TOKENIZER.encode(text, add_special=False, continues=True):
                    state.accept(token)
            except HybridError as error:
                raise AssertionError((mode, text, format.calls)) from error
            assert state.may_end, (mode, text, format.calls)
