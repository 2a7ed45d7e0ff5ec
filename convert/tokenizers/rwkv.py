"""The vocabulary of RWKV's World models: a text file with a token per line, `ID LITERAL BYTES`. The literal is a string
or bytes in Python's notation, BYTES their number. Our own parser reads it: nothing is executed."""

import re
from pathlib import Path

from hybrid.quant.ggml.errors import TokenizerError, shown
from hybrid.quant.ggml.token_types import TokenType
from hybrid.quant.ggml.utf8 import decoded

from ..checkpoint import Config
from .special import chat_templates, read_config, stated_ids
from .vocabulary import Vocabulary

FILES = "rwkv_vocab_v*.txt"
_LINE = re.compile(r"(\d{1,8}) (b?)('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\") (\d{1,6})")
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|([tnr\\'\"]))")
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
_END_OF_TURN = r"\n\n"
# What the models were trained with: turns end with a blank line. The system's text comes first, thoughts of earlier
# answers go.
_TEMPLATE = """\
{{ bos_token }}
{%- for m in messages if m['role'] == 'system' %}
{%- if loop.last and m['content'] %}{{ 'System: ' + m['content'] + '\\n\\n' }}{% endif %}
{%- endfor %}
{%- for m in messages %}
{%- if m['role'] == 'user' %}{{ 'User: ' + m['content'] | trim + '\\n\\n' }}
{%- elif m['role'] == 'assistant' and m['content'] is not none %}
{{- 'Assistant: ' + (m['content'].split('</think>') | last | trim) + '\\n\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt is not defined or add_generation_prompt %}{{ 'Assistant:' }}
{%- if enable_thinking is defined %}{{ ' <think>' if enable_thinking else ' <think>\\n</think>' }}{% endif %}
{%- endif %}"""


def find_world(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob(FILES), reverse=True)), None)


def read_world(path: Path, model_config: Config, n_vocab: int) -> Vocabulary:
    """The vocabulary. Id 0 is `<s>`, which begins and ends texts; the file's tokens follow. TokenizerError names the
    wrong line."""
    tokens, types = ["<s>"], [int(TokenType.CONTROL)]
    try:
        text = decoded(path.read_bytes())
    except UnicodeDecodeError as error:
        raise TokenizerError(
            f"{shown(path.name)} is not UTF-8: byte {error.start} is wrong. Download it again."
        ) from None
    except OSError as error:
        raise TokenizerError(f"{shown(path.name)} cannot be read: {error.strerror}.") from None
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        token = _parse(line.removesuffix("\r"), len(tokens))
        if token is None:
            raise TokenizerError(
                f"{shown(path.name)}: line {number} is {shown(line)!r}, expected {len(tokens)}, a string or bytes as "
                "Python prints them, and their length in bytes. Download it again."
            )
        tokens.append(repr(token)[2:-1])
        types.append(TokenType.NORMAL)
    vocabulary = Vocabulary("rwkv", "", path.name, tokens, types)
    vocabulary.ids = {**stated_ids(model_config, n_vocab), "bos": 0, "eos": 0}
    if _END_OF_TURN in tokens:
        vocabulary.ids["eot"] = tokens.index(_END_OF_TURN)
    config = read_config(path.parent, "tokenizer_config.json")
    for kind in ("bos", "eos"):
        value = config.boolean(f"add_{kind}_token", default=None)
        if value is not None:
            vocabulary.flags[f"add_{kind}_token"] = value
    vocabulary.chat_templates = chat_templates(path.parent, config) or {"default": _TEMPLATE}
    return vocabulary


def _parse(line: str, token: int) -> bytes | None:
    """The token's bytes; None if the line is malformed."""
    match = _LINE.fullmatch(line)
    if match is None or int(match[1]) != token:
        return None
    token_bytes = _unescaped(match[3][1:-1], "latin-1" if match[2] else "utf-8")
    return token_bytes if token_bytes is not None and len(token_bytes) == int(match[4]) else None


def _unescaped(body: str, encoding: str) -> bytes | None:
    parts: list[str] = []
    done = 0
    while (at := body.find("\\", done)) >= 0:
        escape = _ESCAPE.match(body, at)
        if escape is None:
            return None
        point = int(escape[1] or escape[2] or escape[3] or "0", 16)
        if point > 0x10FFFF:
            return None
        parts += [body[done:at], _NAMED[escape[4]] if escape[4] else chr(point)]
        done = escape.end()
    try:
        return "".join([*parts, body[done:]]).encode(encoding)
    except UnicodeEncodeError:  # a character above U+00FF in bytes, or half of a surrogate pair
        return None
