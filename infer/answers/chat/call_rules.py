"""Grammar rules of calls: the text between two tags, such that the arguments fit their tool's schema.

Names, keys and tags are as the model's template writes them; whitespace within JSON may vary as in other forms. The
arguments have only the properties that the tool's schema names, unless it sets additionalProperties itself: parameters
that no tool knows are useless. Objects inside the arguments are as their schemas say.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import UsageError

from ..constraints.grammar import Grammar, Subform
from ..constraints.relaxed import spoken
from .format import CallFormat, JsonCall, NamedCall, PythonCall, XmlCall
from .lark import Rules, either, literal
from .marks import mark_pieces
from .parameter_rules import ParameterRules

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer
    from .tools import Tool

# keywords that may add properties to `properties`
_VARIABLE = re.compile(r"([\w-]*\d[\w-]*)")  # an id or a number, as readers recognize them
_ID, _NUMBER = "/[A-Za-z0-9_-]{1,64}/", "/[0-9]{1,9}/"


class CallRules:
    """Writes the rules of calls of some tools; `parts` are the schemas that the rules refer to.

    notes  which parts of the tools' schemas are not enforced
    """

    def __init__(self, rules: Rules, format: CallFormat, tools: "Sequence[Tool]", tokenizer: "Tokenizer") -> None:
        self.parts: dict[str, Subform] = {}
        self.notes: list[str] = [note for tool in tools for note in tool.notes]
        self._rules, self._format, self._tokenizer, self._tools = rules, format, tokenizer, tools
        self._arguments = [self._arguments_of(tool) for tool in tools]

    def section(self, before: str, parallel: bool) -> str:
        """Rule for calls, from the end of their tag on. before: the text between the tag and the first name."""
        format, call = self._format, self._format.call
        one = self._calls(before)
        end = self._rules.row(self._text(call.closing + format.end, ends=True))
        if not parallel:
            return self._rules.rule(f"{one} {end}")
        between = format.end + format.again + format.begin if format.between is None else format.between
        again = self._calls(call.closing + between + call.opening)
        return self._rules.rule(f"{one} ({again})* {end}")

    def starts(self) -> str:
        """Terminal for the beginning of an answer that is calls without a tag."""
        if isinstance(self._format.call, JsonCall):
            return self._rules.terminal(r"/[\s\[]*\{/")
        before = self._format.begin + self._format.call.opening
        names = either([literal(tool.name) for tool in self._tools])
        return self._rules.terminal(
            rf"/[\s\[]*/ {literal(before.strip())} {names}" if before.strip() else rf"/[\s\[]*/ {names}"
        )

    def _calls(self, before: str) -> str:
        return self._rules.rule(
            " | ".join(
                f"{self._rules.row(self._head(before, tool.name))} {arguments}"
                for tool, arguments in zip(self._tools, self._arguments, strict=True)
            )
        )

    def _text(self, text: str, *, varies: bool = False, ends: bool = False) -> list[str | int]:
        """Bodies of terminals, and tokens, of a tag. varies: words with digits may be any others; ends: leave out a
        token that ends an answer, since the model samples it by itself.
        """
        items: list[str | int] = []
        for piece in mark_pieces(text, self._tokenizer):
            if isinstance(piece, int):
                if ends and piece in self._tokenizer.eog:
                    break
                items.append(piece)
            elif varies:
                words = [(i % 2, word) for i, word in enumerate(_VARIABLE.split(piece)) if word]
                items += [(_NUMBER if word.isdigit() else _ID) if is_id else literal(word) for is_id, word in words]
            else:
                items.append(literal(piece))
        return items

    def _head(self, before: str, name: str) -> list[str | int]:
        """From the end of a tag to the beginning of the arguments."""
        call = self._format.call
        match call:
            case JsonCall():
                w = self._rules.white
                id = f'({self._id(call.id_key)} {w} "," {w})?' if call.id_key else ""
                items = [literal("{"), w, id, _key(call.name_key), w, '":"', w, literal(f'"{name}"'), w, '","', w]
                items += [_key(call.arguments_key), w, '":"', w]
                return [*self._text(before), *(item for item in items if item)]
            case NamedCall():
                after = self._text(call.before_arguments, varies=True)
                return [*self._text(before, varies=True), literal(name), *after]
            case XmlCall():
                return [*self._text(before), literal(name), *self._text(call.after_name)]
            case PythonCall():
                return [*self._text(before), literal(f"{name}(")]

    def _arguments_of(self, tool: "Tool") -> str:
        """From the beginning of the arguments to just before the closing tag of the call."""
        match call := self._format.call:
            case JsonCall():
                w = self._rules.white
                id = f'({w} "," {w} {self._id(call.id_key)})? ' if call.id_key else ""
                closing = self._rules.terminal(id + w + ' "}"')
                return f"@{self._object(tool)} {closing}"
            case NamedCall():
                return f"@{self._object(tool)}"
            case XmlCall() | PythonCall():
                rules = ParameterRules(self._rules, tool, self._text, self._part)
                written = rules.all(call)
                self.notes += rules.notes
                return written

    def _id(self, key: str) -> str:
        w = self._rules.white
        return f'{_key(key)} {w} ":" {w} {literal(chr(34))} {_ID} {literal(chr(34))}'

    def _object(self, tool: "Tool") -> str:
        """Name of the part for all arguments of a tool as one JSON object."""
        return self._part(tool, {**tool.parameters, "type": "object"})

    def _part(self, tool: "Tool", schema: Any, pointer: str = "") -> str:
        """Adds a schema to the parts and returns its name. pointer: its place in the tool's schema."""
        key, name = f"a{len(self.parts)}", f"the schema of the tool '{tool.name}'"
        try:
            self.parts[key] = Subform(Grammar.json_schema(schema), name, pointer)
        except UsageError as error:  # it is nested too deep, or is `false`
            self.notes.append(f"tool `{tool.name}`: {error.args[0]} Any value is accepted at {spoken(pointer)}.")
            self.parts[key] = Subform(Grammar.json_schema({} if pointer else {"type": "object"}), name, pointer)
        return key


def _key(name: str) -> str:
    return literal(f'"{name}"')
