"""A model that says what a test wrote, in tokens that no encoder would choose; templates with tools and thoughts."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from http_server import Server

from hybrid.cli.serve.jobs import Maker, ServerDefaults
from hybrid.infer import LoadedModel
from hybrid.infer.answers.drawing.drawing import Drawing, TextPiece
from hybrid.infer.text.chat_template import ChatTemplate, special_tokens
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import UsageError

# of the bundled model's tokens; results of tools are the user's
_MESSAGE = (
    "<|bom|><|{{ 'user' if m.role == 'tool' else m.role }}|> "
    "{% if m.role == 'tool' %}<tool_response>\n{{ m.content }}\n</tool_response>{% else %}"
    "THOUGHTS{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ '\n' }}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}{% endif %}<|eom|>"
)
_TOOLS = (
    "{{ bos_token }}{% if tools %}<|bom|><|system|> Tools:{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}"
    "<|eom|>{% endif %}"
)
WITH_TOOLS = (
    f"{_TOOLS}{{% for m in messages %}}{_MESSAGE.replace('THOUGHTS', '')}{{% endfor %}}"
    "{% if add_generation_prompt %}<|bom|><|assistant|>{% endif %}"
)
# thoughts before the last question are left out, as Qwen's templates do
_KEPT = (
    "{% if m.role == 'assistant' and m.reasoning_content and loop.index0 > ns.last %}"
    "<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
)
WITH_THOUGHTS = (
    f"{_TOOLS}{{% set ns = namespace(last=-1) %}}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    f"{{% for m in messages %}}{_MESSAGE.replace('THOUGHTS', _KEPT)}{{% endfor %}}"
    "{% if add_generation_prompt %}<|bom|><|assistant|> "
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif %}"
)


def function(name: str, **parameters: Any) -> dict[str, Any]:
    """A tool; all parameters are required."""
    schema = {
        "type": "object",
        "properties": parameters,
        "required": list(parameters),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": f"To {name}.", "parameters": schema}}


ADD = function("add", a={"type": "integer", "minimum": 0, "maximum": 99}, b={"type": "boolean"})
LOOK = function("look", what={"enum": ["here", "there"]})
TOOLS = [ADD, LOOK]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 5, "b": true}}\n</tool_call>'
SECOND = '<tool_call>\n{"name": "look", "arguments": {"what": "there"}}\n</tool_call>'


def served(model: LoadedModel, source: str, defaults: ServerDefaults = ServerDefaults(), **more: Any) -> Server:  # noqa: B008  frozen
    """The model with another template; more: fields of `Served`."""
    template = ChatTemplate(source, tokens=special_tokens(model.tokenizer))
    return Server(model, maker=Maker(model, template, 6, defaults=defaults), **more)


def post(server: Server, path: str, **body: Any) -> Any:
    response = server.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def events(server: Server, path: str, **body: Any) -> list[Any]:
    response = server.http.post(path, json={**body, "stream": True})
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


class Loop:
    """What each turn cost beside what was new."""

    def __init__(self) -> None:
        self.held, self.turns = 0, list[tuple[int, int]]()

    def count(self, prompt: int, cached: int, drawn: int) -> None:
        """Tokens of a turn: those that were new, and those that were read."""
        self.turns.append((prompt - self.held, prompt - cached))
        self.held = prompt + drawn

    def check(self) -> None:
        """The token drawn last is read when something follows it."""
        assert all(read <= new + 1 for new, read in self.turns[1:]), self.turns


def call_text(turn: int) -> str:
    """With white space as the model likes it, which no template writes."""
    if turn % 2:
        return f'<tool_call>\n{{"name": "add", "arguments": {{"a":{turn},"b":true}}}}\n</tool_call>'
    return '<tool_call>\n{"name": "look", "arguments": {"what":"here"}}\n</tool_call>'


class Script:
    """Answers to come, one for each that begins; where there is none left, the model says what it would."""

    def __init__(self) -> None:
        self.answers: list[str] = []

    def say(self, *answers: str) -> None:
        self.answers += answers

    def next_token(self, tokenizer: Tokenizer, answer: str, ids: list[int]) -> int:
        """Two characters at a time: not as the tokenizer would. One of several tokens goes alone."""
        said, whole = b"".join(map(tokenizer.piece, ids)), answer.encode()
        if not whole.startswith(said):
            raise UsageError(f"the script is {answer!r}, the answer begins {said!r}")
        begun = len(said) - len(said.decode(errors="ignore").encode())  # bytes of a character that is not whole
        rest = whole[len(said) - begun :].decode()
        if not rest:
            assert tokenizer.eos is not None
            return tokenizer.eos
        part = rest if rest.startswith("<|") else rest[:2] if rest[1:3] != "<|" and not begun else rest[:1]
        tokens = tokenizer.encode(part, add_special=False, parse_special=True, continues=True)
        while begun > 0:
            begun -= len(tokenizer.piece(tokens.pop(0)))
        return tokens[0]


@contextmanager
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """Every `Drawing` that begins meanwhile takes the next answer of the script."""
    script, begin, draw = Script(), Drawing.begin, Drawing.draw

    def beginning(self: Drawing, *more: Any) -> None:
        begin(self, *more)
        self.__dict__["script"] = script.answers.pop(0) if script.answers else None

    def drawing(self: Drawing, logits: np.ndarray) -> TextPiece | None:
        answer = self.__dict__["script"]
        if answer is not None:
            logits = logits.copy()
            logits[script.next_token(self.tokenizer, answer, self.result.ids)] = 1e9
        return draw(self, logits)

    with monkeypatch.context() as patched:
        patched.setattr(Drawing, "begin", beginning)
        patched.setattr(Drawing, "draw", drawing)
        yield script
        assert not script.answers
