"""Converts Python literals to JSON. `ast` parses only tokens of a short list; nothing is evaluated."""

import ast
import math
import re
from collections.abc import Generator, Sequence

from .cursor import WHITE, Cursor, Sink
from .parameter_types import quoted

MOST_DEPTH = 50  # nesting of lists and dicts
_IN_STRING = {quote: re.compile(rf"[^\\{quote}]*") for quote in "'\""}
_ESCAPES = {
    "\n": "", "\\": "\\", "'": "'", '"': '"',
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_BEHIND = ("", *",:)]}")  # text that may follow a string
_DIGITS = {"x": 2, "u": 4, "U": 8}
_HEX = "0123456789abcdefABCDEF"
_OCTAL = "01234567"
_BETWEEN_STRINGS = re.compile(r"[\w\s.:=+*/%&|^~!?;$@\\`#-]*")
_TOKEN = re.compile(
    r"(?P<white>\s+)|(?P<mark>[,:])|(?P<sign>[+-])|(?P<open>[(\[{])|(?P<close>[)\]}])"
    r"|(?P<atom>(?:(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|True|False|None|true|false|null)(?!\w))"
)
_LEADING_ZEROS = re.compile(r"^0[0_]*(?=\d[\d_]*$)")
_NAMES = {"true": "true", "false": "false", "null": "null"}


def python_string(cursor: Cursor, sink: Sink, stops: Sequence[str]) -> Generator[None, None, bool]:
    """Passes a string's value on while it arrives. Returns False if the string is not closed.

    Models write in strings what Python does not allow: line feeds, and the enclosing quotes: 'a 'b' c'. So a quote
    closes the string only if an argument, a list or the answer may go on after it, or if whitespace and another string
    follow. stops: tags with which the answer may go on.
    """
    quote = cursor.take(1)
    is_triple = bool((yield from cursor.literal((quote * 2,))))
    while True:
        yield from cursor.run(_IN_STRING[quote], sink)
        char = yield from cursor.peek()
        if not char:
            return False
        if char == "\\":
            cursor.take(1)
            yield from _escape(cursor, sink)
        elif is_triple:
            if (yield from cursor.literal((quote * 3,))):
                return True
            sink(cursor.take(1))
        else:
            passed = [cursor.take(1)]
            white = yield from cursor.white(passed.append)
            after = yield from cursor.peek()
            if after in _BEHIND or (white and after in "'\"") or (yield from cursor.ahead(stops)):
                return True
            sink("".join(passed))


def _escape(cursor: Cursor, sink: Sink) -> Generator[None, None, None]:
    """Reads the rest of an escape; an unknown escape is text, backslash included."""
    char = yield from cursor.peek()
    if char in _ESCAPES:
        cursor.take(1)
        sink(_ESCAPES[char])
    elif char in _DIGITS:
        cursor.take(1)
        digits = yield from _some(cursor, _HEX, _DIGITS[char])
        code = int(digits, 16) if len(digits) == _DIGITS[char] else -1
        sink(chr(code) if 0 <= code < 0x110000 else f"\\{char}{digits}")
    elif char and char in _OCTAL:
        sink(chr(int((yield from _some(cursor, _OCTAL, 3)), 8)))
    else:
        sink("\\")


def _some(cursor: Cursor, of: str, most: int) -> Generator[None, None, str]:
    text = ""
    while len(text) < most and (char := (yield from cursor.peek())) and char in of:
        text += cursor.take(1)
    return text


class LiteralSource:
    """The source of a value that is not just one string, up to a comma or a bracket that it did not open."""

    def __init__(self, begin: str = "") -> None:
        self._pieces: list[tuple[bool, list[str]]] = [(False, [begin])]  # whether inside a string; the text
        self._written = [begin]

    def read(self, cursor: Cursor, stops: Sequence[str]) -> Generator[None, None, bool]:
        """Reads the source. Returns False if the answer ends inside it."""
        depth = 0
        while True:
            yield from cursor.run(_BETWEEN_STRINGS, self._add)
            char = yield from cursor.peek()
            if not char:
                return False
            if char in "'\"":
                self._pieces.append((True, []))
                self._written.append(char)
                if not (yield from python_string(cursor, self._add, stops)):
                    return False
                self._pieces.append((False, []))
                self._written.append(char)
            elif (depth == 0 and char in ",)]}") or (yield from cursor.ahead(stops)):
                return True
            else:
                depth += (char in "([{") - (char in ")]}")
                self._add(cursor.take(1))

    def _add(self, text: str) -> None:
        self._pieces[-1][1].append(text)
        self._written.append(text)

    def json(self) -> str | None:
        """The value as JSON; None if the source is not a literal."""
        source = self._checked()
        if source is None:
            return None
        try:
            return _json(ast.parse(source.strip(WHITE), mode="eval").body)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None

    def text(self) -> str:
        """The source without quotes around it."""
        text = "".join(self._written).strip(WHITE)
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text

    def _checked(self) -> str | None:
        """The source rewritten in a few kinds of tokens that `ast` reads without surprises; None if it has others."""
        out: list[str] = []
        depth, before = 0, "open"
        for is_string, pieces in self._pieces:
            piece = "".join(pieces)
            if is_string:
                if before in ("atom", "close", "sign"):
                    return None
                out.append(quoted(piece) + " ")
                before = "string"
                continue
            place = 0
            while place < len(piece):
                token = _TOKEN.match(piece, place)
                kind = token.lastgroup if token is not None else None
                if token is None or kind is None:
                    return None
                place = token.end()
                if kind == "white":
                    out.append(" ")
                    continue
                if kind in ("atom", "sign", "open") and before in ("atom", "close", "string"):
                    return None  # an operator, a call, an index
                if before == "sign" and kind != "atom":
                    return None
                depth += (kind == "open") - (kind == "close")
                if depth > MOST_DEPTH:
                    return None
                out.append(_LEADING_ZEROS.sub("", token[0]) if kind == "atom" else token[0])
                before = kind
        return "".join(out)


def _json(node: ast.AST) -> str:
    """The node as JSON. Raises ValueError if JSON has no such literal."""
    match node:
        case ast.Constant(value=str(text)):
            return quoted(text)
        case ast.Constant(value=None):
            return "null"
        case ast.Constant(value=bool(value)):
            return "true" if value else "false"
        case ast.Constant(value=int() | float() as number):
            return "1e999" if number == math.inf else repr(number)  # overflow: still a JSON number
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=number)):
            if type(number) in (int, float):
                return ("-" if isinstance(sign, ast.USub) else "") + _json(node.operand)
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return "[" + ", ".join(map(_json, items)) + "]"
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return "{" + ", ".join(f"{_key(key)}: {_json(value)}" for key, value in pairs) + "}"
    raise ValueError("no literal")


def _key(node: ast.AST | None) -> str:
    """The key of an object as JSON: always a string, while Python's may be anything."""
    if node is None or isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
        raise ValueError("no key")
    key = _json(node)
    return key if key.startswith('"') else f'"{key}"'
