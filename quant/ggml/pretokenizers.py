"""How text is split before the merges of a byte-level BPE vocabulary, for each value of `tokenizer.ggml.pre`.

The converter uses the table `pretokenizers.json` to find the name of a tokenizer's structure, the tokenizer to find the
structure of a name.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# Values of hybrid.tokenizer.normalizer besides "none": Unicode normalization forms that text is brought into first.
FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@dataclass(frozen=True)
class Rule:
    """One way to split text; its `names` are interchangeable except for the defaults `add_bos` and `add_sep`."""

    names: tuple[str, ...]
    split: tuple[str, ...]  # regular expressions, one after the other; matches are isolated in the pieces left so far
    byte_level: bool = True  # False: the vocabulary holds UTF-8, with U+2581 for spaces if `escape_whitespaces`
    ignore_merges: bool = False  # a piece that is itself a token is taken whole
    add_bos: bool = False  # where the file has no tokenizer.ggml.add_bos_token
    add_sep: bool = False  # where the file has no tokenizer.ggml.add_sep_token
    escape_whitespaces: bool = False
    always_bos: bool = False  # whatever tokenizer.ggml.add_bos_token says: early converters wrote false for such models
    whole_newlines: bool = False  # a run of newlines that is itself a token is taken whole


@cache
def _rules() -> tuple[Rule, ...]:
    table = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return tuple(Rule(tuple(row.pop("names")), tuple(row.pop("split")), **row) for row in table)


def load() -> list[Rule]:
    """All rules, in the order of the table."""
    return list(_rules())


def by_name(name: str) -> Rule | None:
    """The rule of a `tokenizer.ggml.pre`; None if unknown."""
    return next((rule for rule in _rules() if name in rule.names), None)


@cache
def byte_letters() -> tuple[str, ...]:
    """The letter for each byte in byte-level vocabularies (GPT-2): printable Latin-1 as itself, the other 68 bytes as
    U+0100 onwards."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))
