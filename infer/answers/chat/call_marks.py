"""Finds the call format in a text with known calls: the kind of call, and the tags around and between calls."""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .format import Call, CallFormat, JsonCall, NamedCall, PythonCall, XmlCall
from .renderings import SampleCall, common_prefix, common_suffix

MOST_TRIES = 32  # indices where an object may begin, or a Python call end


@dataclass(frozen=True)
class _Found:
    """A call in a text: its range, and its kind without the tags around it."""

    begin: int
    end: int
    kind: Call


def found_format(one: str, two: str | None, calls: Sequence[SampleCall], as_text: bool) -> CallFormat | None:
    """The format in which `one` writes the first call and `two` the first two calls; None if it is unknown."""
    for find in (_json_call, _named_call, _python_call, _xml_call):
        first = find(one, 0, calls[0])
        if first is None:
            continue
        begin, end = one[: first.begin].lstrip(), one[first.end :].rstrip()
        gap = _gap(two, find, calls, first.kind)
        section = _section(begin, gap, end)
        call = replace(first.kind, opening=section.opening, closing=section.closing)
        mark = _mark(begin)
        if not mark and not (isinstance(call, JsonCall) and begin in ("", "[")):
            return None
        return CallFormat(mark, section.begin, section.end, call, section.between, section.again, as_text)
    return None


def _gap(two: str | None, find: "_Finder", calls: Sequence[SampleCall], kind: Call) -> str | None:
    """The text between two calls; None if the template does not write two."""
    if two is None or len(calls) < 2:
        return None
    first = find(two, 0, calls[0])
    second = find(two, first.end, calls[1]) if first else None
    if first is None or second is None or first.kind != kind:
        return None
    return two[first.end : second.begin].replace(calls[1].id, calls[0].id)  # an id beside the name is part of a tag


_Finder = Callable[[str, int, SampleCall], _Found | None]


# --- the kinds ---
def _objects(text: str, start: int) -> "list[tuple[int, int, Any]]":
    """JSON objects that begin at or after `start`: begin, end, value."""
    found = []
    at = text.find("{", start)
    for _ in range(MOST_TRIES):
        if at < 0:
            break
        try:
            value, end = json.JSONDecoder().raw_decode(text, at)
            found.append((at, end, value))
        except (ValueError, RecursionError):
            pass
        at = text.find("{", at + 1)
    return found


def _same(value: object, arguments: Mapping[str, Any]) -> bool:
    """Whether the value is these arguments, or their JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return False
    return value == arguments


def _is_id(value: object, call: SampleCall) -> bool:
    return value == call.id or (isinstance(value, str) and value.isdigit())


def _json_call(text: str, start: int, call: SampleCall) -> _Found | None:
    for begin, end, value in _objects(text, start):
        if not isinstance(value, dict):
            continue
        name = next((key for key in value if value[key] == call.name), None)
        arguments = next((key for key in value if _same(value[key], call.arguments)), None)
        if name is None or arguments is None:
            continue
        others = [key for key in value if key not in (name, arguments)]
        if others and (len(others) > 1 or not _is_id(value[others[0]], call)):
            continue
        return _Found(begin, end, JsonCall("", "", name, arguments, others[0] if others else None))
    return None


def _named_call(text: str, start: int, call: SampleCall) -> _Found | None:
    name = text.find(call.name, start)
    if name < 0:
        return None
    behind = name + len(call.name)
    for begin, end, value in _objects(text, behind):
        if value == call.arguments:
            return _Found(name, end, NamedCall("", text[behind:begin], ""))
    return None


def _python_call(text: str, start: int, call: SampleCall) -> _Found | None:
    begin = text.find(call.name + "(", start)
    if begin < 0:
        return None
    end = begin
    for _ in range(MOST_TRIES):
        end = text.find(")", end) + 1
        if not end:
            break
        arguments = _keywords(text[begin:end])
        if arguments is not None:
            # a template that does not escape quotes writes other values: such a call cannot be read
            return _Found(begin, end, PythonCall()) if arguments == call.arguments else None
    return None


def _keywords(text: str) -> dict[str, Any] | None:
    """The keyword arguments of a Python call; None if the text is not such a call."""
    try:
        node = ast.parse(text, mode="eval").body
        if isinstance(node, ast.Call) and not node.args:
            return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return None


def _xml_call(text: str, start: int, call: SampleCall) -> _Found | None:
    begin = text.find(call.name, start)
    if begin < 0 or not call.arguments:
        return None
    at, ends, gaps, behind_keys = begin + len(call.name), [], [], []
    for key, value in call.arguments.items():
        key_at = text.find(key, at)
        behind = key_at + len(key)
        value_at = text.find(_written(value), behind)
        if key_at < 0 or value_at < 0:
            return None
        gaps.append(text[at:key_at])
        behind_keys.append(text[behind:value_at])
        at = value_at + len(_written(value))
        ends.append(at)
    head, *between = gaps
    if len(set(behind_keys)) != 1 or len(set(between)) != 1:
        return None
    before_key = _whole_marks_at_end(between[0][-common_suffix(head, between[0]) :])
    if "<" not in before_key:
        return None
    after_value = between[0][: -len(before_key)]
    if not after_value.strip() or not text.startswith(after_value, at):
        return None
    marks = XmlCall("", head[: -len(before_key)], before_key, behind_keys[0], after_value, "")
    return _Found(begin, at + len(after_value), marks)


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, dict | list) else str(value)


# --- marks ---
@dataclass(frozen=True)
class _Section:
    begin: str
    opening: str
    closing: str
    end: str
    between: str | None = None
    again: str = ""


def _section(before: str, gap: str | None, behind: str) -> _Section:
    """Splits the texts before, between and after two calls into tags of the section and tags of each call."""
    if gap is None:
        return _Section("", before, behind, "")
    rest = gap[len(behind) :]
    if gap.startswith(behind) and rest.endswith(before):
        again = rest[: len(rest) - len(before)]
        if not again.strip() and (before or behind or again):
            return _Section("", before, behind, "", None, again)
    opening = _whole_marks_at_end(gap[len(gap) - common_suffix(before, gap) :])
    gap = gap[: len(gap) - len(opening)]
    closing = _whole_marks_at_start(gap[: common_prefix(behind, gap)])
    begin, end = before[: len(before) - len(opening)], behind[len(closing) :]
    return _Section(begin, opening, closing, end, gap[len(closing) :])


def _whole_marks_at_end(text: str) -> str:
    """`text` without a partial tag at its beginning."""
    closes = text.find(">")
    if closes >= 0 and not 0 <= text.find("<") < closes:
        text = text[closes + 1 :]
    return text.lstrip()


def _whole_marks_at_start(text: str) -> str:
    """`text` without a partial tag at its end."""
    opens = text.rfind("<")
    return text[:opens] if opens > text.rfind(">") else text


_MARK = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]|[^\s\w]\S*")


def _mark(before: str) -> str:
    """The first tag in the text before a name, or ""."""
    found = _MARK.match(before)
    return "" if found is None or not any(c.isalnum() or c == ">" for c in found[0]) else found[0]
