"""A model that answers with a test's script, in tokens that no encoder would choose; templates with tools and
thoughts."""

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

# with the bundled model's special tokens; tool results have the user's role
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
# thoughts before the last question are left out, as in Qwen's templates
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
    """A tool with required parameters."""
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
    """A server of the model with another template; more: fields of `Served`."""
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
    """Counts how many tokens each turn reads, and how many are new."""

    def __init__(self) -> None:
        self.held, self.turns = 0, list[tuple[int, int]]()

    def count(self, prompt: int, cached: int, drawn: int) -> None:
        """Note a turn's new tokens and its read tokens."""
        self.turns.append((prompt - self.held, prompt - cached))
        self.held = prompt + drawn

    def check(self) -> None:
        """Assert that each turn reads its new tokens, and at most one more: the last sampled token is read with
        them."""
        assert all(read <= new + 1 for new, read in self.turns[1:]), self.turns


def call_text(turn: int) -> str:
    """A tool call with whitespace of the model's choice, which no template writes."""
    if turn % 2:
        return f'<tool_call>\n{{"name": "add", "arguments": {{"a":{turn},"b":true}}}}\n</tool_call>'
    return '<tool_call>\n{"name": "look", "arguments": {"what":"here"}}\n</tool_call>'


class Script:
    """Queued answers; each new answer takes the next one. Without any left, the model answers itself."""

    def __init__(self) -> None:
        self.answers: list[str] = []

    def say(self, *answers: str) -> None:
        self.answers += answers

    def next_token(self, tokenizer: Tokenizer, answer: str, ids: list[int]) -> int:
        """The next token of a scripted answer. Encodes two characters at a time, unlike the tokenizer; of several
        tokens only the first is taken."""
        said, whole = b"".join(map(tokenizer.piece, ids)), answer.encode()
        if not whole.startswith(said):
            raise UsageError(f"the script is {answer!r}, the answer begins {said!r}")
        begun = len(said) - len(said.decode(errors="ignore").encode())  # bytes of an incomplete character
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
    """Within the context every new `Drawing` takes the script's next answer."""
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
