r"""Forms that somebody sends who means harm, or does not know better: each is used or refused, and nobody waits long.

What took longest, at a vocabulary of 152 000 (llguidance 1.9.1, one core of a Zen 5): 0.8 s to compile
(100 000 times `\w`), 31 ms for a mask (`ambiguous`). Before there was a process for trials and before these
limits: no end within 90 s (`intersections`), a crash (`references, one after another`), 0.6 s for a token (`a letter, a
million times`), 500 MB (`a megabyte of text`).
"""

import random
from typing import Any

from hybrid.infer.answers.constraints import Grammar


def words(n: int, length: int, letters: str = "abcdefghij") -> list[str]:
    """Different words, the same in every process: each process that collects the tests makes them."""
    table = bytes(ord(letters[byte % len(letters)]) for byte in range(256))
    drawn = random.Random(0).randbytes(n * length).translate(table).decode()
    made = [drawn[i : i + length] for i in range(0, n * length, length)]
    assert len(set(made)) == n
    return made


def properties(n: int, value: object, required: bool = True) -> dict[str, Any]:
    names = [f"p{i}" for i in range(n)]
    made = {"type": "object", "properties": dict.fromkeys(names, value), "additionalProperties": False}
    return {**made, "required": names} if required else made


def chain(n: int, link: Any) -> dict[str, Any]:
    """Definitions, each built from the next one by `link`."""
    parts = {f"d{i}": link({"$ref": f"#/$defs/d{i + 1}"}) for i in range(n)}
    return {"$defs": {**parts, f"d{n}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def rules(n: int, rule: str, last: str) -> str:
    return "root ::= r0\n" + "".join(rule.format(i=i, j=i + 1) + "\n" for i in range(n)) + f"r{n} ::= {last}"


LONG = "compiling it takes more than 2 seconds, or too much memory"
STRING = {"type": "string"}
BIG = "initial lexer configuration .* too big"
EXPRESSIONS = "too many expressions constructed"
ROWS = "Current row has"
FUEL = "fuel exhausted"
ITEMS = "Too many items"

# name -> (kind, text or schema, "" where it is used, or an expression for the refusal)
QUICK: dict[str, tuple[str, Any, str]] = {
    # expressions
    "a letter, a million times": ("regex", "(a{1000}){1000}", EXPRESSIONS),
    "up to a million letters": ("regex", "a{0,999999}", ""),
    "letters of all scripts": ("regex", r"(\w{1,1000}\d{1,100}){1,50}", ""),
    "ambiguous repetition": ("regex", "(x+x+)+y", ""),
    "optional, then not": ("regex", "(a?){5000}a{5000}", EXPRESSIONS),
    "exponential states": ("regex", "[^q]*a.{20}b", ""),
    "nested groups": ("regex", "(" * 2000 + "a" + ")" * 2000, "invalid regex"),
    "50 000 words": ("regex", "|".join(words(50000, 12)), BIG),
    "a megabyte of text": ("regex", "abcdefghij" * 100_000, EXPRESSIONS),
    # choices
    "4096 texts": ("choice", words(4096, 200), ""),
    "each a beginning of the next": ("choice", ["a" * (i + 1) for i in range(1400)], ""),
    # schemas
    "an enumeration of 50 000": ("json_schema", {"enum": words(50000, 12)}, BIG),
    "an enumeration of 5000 objects": ("json_schema", {"enum": [{"a": i, "b": [i]} for i in range(5000)]}, ROWS),
    "3000 kinds of objects": ("json_schema", {"anyOf": [properties(3, {"const": str(i)}) for i in range(3000)]}, ROWS),
    "objects of other properties": (
        "json_schema",
        {"anyOf": [{"type": "object", "properties": {f"k{i}": STRING}} for i in range(5000)]},
        ITEMS,
    ),
    "1000 strings of other lengths": (
        "json_schema",
        {"type": "object", "properties": {f"p{i}": {"type": "string", "maxLength": 1000 + i} for i in range(1000)}},
        ROWS,
    ),
    "a million characters": ("json_schema", {"type": "string", "minLength": 10**6, "maxLength": 10**6 + 1}, ""),
    "10^9 characters": ("json_schema", {"type": "string", "maxLength": 10**9}, ""),
    "100 000 items": ("json_schema", {"type": "array", "items": STRING, "minItems": 10**5, "maxItems": 10**5}, ""),
    "references, one after another": ("json_schema", chain(20000, lambda next_one: next_one), LONG),
    "references, doubled": ("json_schema", chain(60, lambda next_one: {"allOf": [next_one, next_one]}), ""),
    "references in properties": ("json_schema", chain(60, lambda one: {"properties": {"a": one, "b": one}}), ""),
    "products of alternatives": (
        "json_schema",
        {"allOf": [{"anyOf": [{"properties": {f"a{i}_{j}": STRING}} for j in range(6)]} for i in range(12)]},
        "schema too large",
    ),
    "products of patterns": (
        "json_schema",
        {"type": "object", "patternProperties": {f"^p.*{i}$": {"minimum": i} for i in range(100)}},
        "are not disjoint",
    ),
    "intersections": (
        "json_schema",
        {"type": "string", "allOf": [{"pattern": f"(a|b)*a(a|b){{{i}}}"} for i in range(5, 25)]},
        LONG,
    ),
    "a prime": ("json_schema", {"type": "integer", "multipleOf": 982451653, "minimum": -(10**15)}, FUEL),
    "multiples of 100 003": ("json_schema", {"type": "integer", "multipleOf": 100003}, ""),
    "the largest number": ("json_schema", {"type": "number", "maximum": 1.7e308}, "Failed to generate regex"),
    "itself": (
        "json_schema",
        {"$defs": {"n": {"properties": {"l": {"$ref": "#/$defs/n"}, "r": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
        "",
    ),
    "500 formats": ("json_schema", properties(500, {"type": "string", "format": "uri"}), ""),
    "a constant of 900 kB": ("json_schema", {"const": "x y" * 300_000}, EXPRESSIONS),
    # grammars
    "left recursion": ("gbnf", 'root ::= root "a" | "b"', ""),
    "a cycle": ("gbnf", "root ::= a\na ::= b\nb ::= a", "nothing fits the grammar"),
    "a cycle of what may be empty": ("gbnf", 'root ::= a*\na ::= b*\nb ::= a* | "x"', ""),
    "doubled options": ("gbnf", rules(40, "r{i} ::= r{j}? r{j}?", '"x"?'), ""),
    "repeated repetitions": ("gbnf", 'root ::= x{100000}\nx ::= y{1000}\ny ::= "ab" | "c" z{1000}\nz ::= [a-z]', ""),
    "ambiguous": ("gbnf", 'root ::= root root | root root root | "a" | "b" | ""', ""),
    "ambiguous expressions": (
        "gbnf",
        'root ::= e\ne ::= e "+" e | e "*" e | e e | "(" e ")" | [a-z0-9]+ | ""',
        "",
    ),
    "5000 brackets": ("gbnf", "root ::= " + "(" * 5000 + '"a"' + ")" * 5000, "maximum recursion depth"),
    "intersection of expressions": (
        "lark",
        "start: A\nA: /(a|b)*a(a|b){20}/ & /(a|b)*b(a|b){18}/ & ~/.*aaa.*/",
        EXPRESSIONS,
    ),
    "repeated alternatives": ("lark", 'start: ("a" | x{0,10000}){0,10000}\nx: "b" | start', ""),
    "doubled terminals": (
        "lark",
        "start: A0\n" + "".join(f"A{i}: A{i + 1} A{i + 1}\n" for i in range(40)) + "A40: /a/\n",
        BIG,
    ),
    "3000 terminals": (
        "lark",
        f"start: ({' | '.join(f'T{i}' for i in range(3000))})*\n"
        + "".join(f"T{i}: /[a-z]{{{i % 40},}}x{i}.*/\n" for i in range(3000)),
        "",
    ),
}
SLOW: dict[str, tuple[str, Any, str]] = {
    "classes of letters, 30 000": ("regex", r"\w" * 30_000, ""),
    "10 000 properties": ("json_schema", properties(10000, STRING), ""),
    "10 000 optional properties": ("json_schema", properties(10000, STRING, required=False), LONG),
    "a megabyte of alternatives": ("gbnf", "root ::= " + " | ".join(f'"w{i}x"' for i in range(80000)), f"{LONG}|panic"),
    "60 000 expressions": ("lark", "start: " + " | ".join(f"/a{i}.*/" for i in range(60000)), f"{LONG}|{ROWS}"),
}


def grammar(kind: str, what: Any) -> Grammar:
    """The grammar of an entry."""
    if kind == "json_schema":
        return Grammar.json_schema(what)
    return Grammar.choice(what) if kind == "choice" else Grammar(kind, what)  # type: ignore[arg-type]
