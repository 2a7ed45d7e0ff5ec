"""The form of an answer, as a file, an option or a request asks for it.

    grammar = Grammar.json_schema({"type": "object", ...})       # or gbnf, lark, regex, choice
    constraint = Constraint(grammar, model.tokenizer)            # UsageError where it cannot be compiled

llguidance (https://github.com/guidance-ai/llguidance) compiles it, and refuses schemas that it cannot express: nothing
is dropped from a schema to make it fit.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from hybrid.quant.ggml.errors import UsageError, shown

from .closed import closed
from .corrected import corrected

Kind = Literal["json_schema", "gbnf", "lark", "regex", "choice", "composed"]

MOST_BYTES = 1 << 20  # of a grammar as text
MOST_CHOICES = 4096
MOST_DEPTH = 100  # nesting of a schema's objects and lists
WHITE_SPACE = " ?"  # between the parts of a JSON text: on one line, since a weak model does not stop indenting
_NAMES = {"json_schema": "the schema", "gbnf": "the grammar", "lark": "the grammar", "regex": "the expression"}


@dataclass(frozen=True)
class Subform:
    """A form inside another one. name: for messages; pointer: place of its schema within what `name` names."""

    grammar: "Grammar"
    name: str
    pointer: str = ""


@dataclass(frozen=True)
class Grammar:
    """A form, not compiled yet. text: JSON for a schema, a choice or a composition."""

    kind: Kind
    text: str

    def __post_init__(self) -> None:
        n = len(self.text.encode("utf-8", "surrogatepass"))
        most = MOST_BYTES if self.kind != "composed" else 4 * MOST_BYTES  # its parts are checked one by one
        if n > most:
            raise UsageError(f"{self.name} has {n} bytes, expected at most {most}. Make it smaller.")

    # --- kinds of grammars ---
    @classmethod
    def json_schema(cls, schema: object) -> "Grammar":
        """A JSON schema: a dict, a bool, or their text. Raises UsageError if it is not JSON, or not a schema."""
        if isinstance(schema, str):
            schema = _json(schema, "the schema")
        if schema is False:
            raise UsageError("the schema is false: no answer fits it.")
        schema = {} if schema is True else schema
        if not isinstance(schema, dict):
            raise UsageError(f"the schema is {shown(json.dumps(schema))}, expected an object.")
        if _depth(schema) > MOST_DEPTH:
            raise UsageError(f"the schema is nested deeper than {MOST_DEPTH} levels. Use $ref and $defs.")
        return cls("json_schema", json.dumps(schema, ensure_ascii=False))

    @classmethod
    def any_json(cls) -> "Grammar":
        """Any JSON object."""
        return cls.json_schema({"type": "object"})

    @classmethod
    def of_text(cls, text: str) -> "Grammar":
        """A grammar in llama.cpp's GBNF or in Lark, which is detected."""
        return cls("gbnf" if re.search(r"^\s*[\w-]+\s*::=", text, re.MULTILINE) else "lark", text)

    @classmethod
    def regex(cls, expression: str) -> "Grammar":
        """The whole answer matches a regular expression (Rust's syntax: no look-around, no back-references)."""
        return cls("regex", expression)

    @classmethod
    def choice(cls, texts: Sequence[str]) -> "Grammar":
        """One of these texts."""
        if not texts or any(not isinstance(text, str) or not text for text in texts):
            raise UsageError("the choices are empty or hold an empty text, expected texts.")
        if len(texts) > MOST_CHOICES:
            raise UsageError(f"there are {len(texts)} choices, expected at most {MOST_CHOICES}.")
        return cls("choice", json.dumps(list(texts), ensure_ascii=False))

    @classmethod
    def composed(cls, name: str, lark: str, parts: Mapping[str, Subform], notes: Sequence[str] = ()) -> "Grammar":
        """A Lark grammar that refers to the forms in `parts` as @key. name: for messages; notes: see `notes`."""
        made = {
            key: {"grammar": part.grammar.to_json(), "name": part.name, "pointer": part.pointer}
            for key, part in parts.items()
        }
        noted = list(dict.fromkeys(notes))
        text = json.dumps({"name": name, "lark": lark, "parts": made, "notes": noted}, ensure_ascii=False)
        return cls("composed", text)

    # --- properties ---
    @property
    def name(self) -> str:
        """The name in messages."""
        return str(json.loads(self.text)["name"]) if self.kind == "composed" else _NAMES.get(self.kind, "the choice")

    @property
    def parts(self) -> dict[str, Subform]:
        """The forms of a composition."""
        if self.kind != "composed":
            return {}
        return {
            key: Subform(Grammar.from_json(part["grammar"]), part["name"], part["pointer"])
            for key, part in json.loads(self.text)["parts"].items()
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each constraint that a composition does not enforce."""
        return tuple(json.loads(self.text).get("notes", ())) if self.kind == "composed" else ()

    def source(self) -> str:
        """The grammar for llguidance to compile. Raises UsageError if it cannot be read."""
        try:
            return self._source()
        except UsageError:  # of a part
            raise
        except Exception as error:  # its converters raise errors of any type
            raise UsageError(f"{self.name} cannot be read: {first_line(error)}") from None

    def _source(self) -> str:
        if self.kind == "composed":
            frame = {"lark_grammar": json.loads(self.text)["lark"]}
            return json.dumps({"grammars": [frame, *(_part(key, part.grammar) for key, part in self.parts.items())]})
        import llguidance

        matcher = llguidance.LLMatcher
        if self.kind == "json_schema":
            text = json.dumps(corrected(closed(json.loads(self.text))), ensure_ascii=False)
            return str(matcher.grammar_from_json_schema(text, overrides={"whitespace_pattern": WHITE_SPACE}))
        if self.kind == "regex":
            return str(matcher.grammar_from_regex(self.text))
        if self.kind == "choice":
            texts: list[str] = json.loads(self.text)
            # one terminal: llguidance does not follow thousands of alternatives of a rule
            return str(matcher.grammar_from_lark("start: TEXT\nTEXT: " + " | ".join(map(_lark_text, texts))))
        if self.kind == "lark":
            return str(matcher.grammar_from_lark(self.text))
        return str(llguidance.grammar_from("gbnf", _with_written_out_characters(self.text)))

    def to_json(self) -> dict[str, Any]:
        """The form for `from_json`."""
        return {"kind": self.kind, "text": self.text}

    @classmethod
    def from_json(cls, value: Any) -> "Grammar":
        """The form. Raises ValueError if `value` is not from `to_json`."""
        if not isinstance(value, dict) or value.get("kind") not in get_args(Kind):
            raise ValueError("kind")
        if not isinstance(value.get("text"), str):
            raise ValueError("text")
        made = cls(value["kind"], value["text"])
        try:
            _ = [made.name, *map(str.strip, made.notes), *(part.name + part.pointer for part in made.parts.values())]
        except (AttributeError, KeyError, RecursionError, TypeError, UsageError) as error:
            raise ValueError(f"parts: {error!r}") from None
        return made


def _part(key: str, grammar: Grammar) -> dict[str, Any]:
    """A form as an entry of a list of grammars. Its source is such a list, or the text of a grammar."""
    source = grammar.source()
    entry = json.loads(source)["grammars"][0] if source.startswith('{"grammars"') else {"lark_grammar": source}
    return {**entry, "name": key}


def first_line(error: object) -> str:
    """The first line of a library's message; if it ends with a colon, also the error that it announces."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    why = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return shown(" ".join([lines[0], *why[:1]] if lines[0].endswith(":") else lines[:1]))


def _with_written_out_characters(gbnf: str) -> str:
    """Replaces \\u0041 and \\U00000041 by characters: the converter would drop their zeros, which is invalid."""

    def written_out(match: re.Match[str]) -> str:
        code = int(match[2] or match[3], 16) if match[2] or match[3] else 0
        char = chr(code) if code < 0x110000 else ""
        return match[1] + char if char.isprintable() and char and char not in '\\"[]-^/' else match[0]

    return re.sub(r"(?<!\\)((?:\\\\)*)\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))", written_out, gbnf)


def _json(text: str, name: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {first_line(error)}") from None
    return value


def _depth(value: object) -> int:
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        deepest = max(deepest, depth)
        children = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        waiting += [(child, depth + 1) for child in children if isinstance(child, dict | list)]
    return deepest


def _lark_text(text: str) -> str:
    """The text as a Lark literal."""
    return json.dumps(text, ensure_ascii=False)
