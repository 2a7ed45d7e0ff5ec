"""Templates of real models in tests/data/chat/templates, and conversations for them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from hybrid.infer.answers.chat.format import ChatFormat
from hybrid.infer.answers.chat.probing import probed
from hybrid.infer.text.chat_template import ChatTemplate

TEMPLATES = Path(__file__).parents[3] / "data" / "chat" / "templates"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

# reads only lists of parts, as SmolVLM's does
SMOLVLM = """{% for message in messages %}{{ message['role'] | capitalize }}{% if message['content'][0]['type'] ==
'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}{% for line in message['content'] %}{% if line['type'] == 'text' %}{{
line['text'] }}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end>
{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""


@cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"), tokens=TOKENS)


@cache
def form(name: str) -> ChatFormat:
    return probed(template(name))


def call(name: str, arguments: dict[str, Any], identifier: str = "call00001") -> dict[str, Any]:
    """A call in an OpenAI answer."""
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
