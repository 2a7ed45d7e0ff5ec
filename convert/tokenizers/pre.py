"""The pre-tokenizer of a tokenizer.json, recognized by its structure, and GGUF's name for it."""

import difflib
import re
from dataclasses import dataclass
from typing import Any

from hybrid.quant.ggml import pretokenizers
from hybrid.quant.ggml.errors import TokenizerError, shown
from hybrid.quant.ggml.token_types import SPACE

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_METASPACE = f"{SPACE}[^{SPACE}]*|[^{SPACE}]+"  # a piece begins at every space
_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|`]+"  # ASCII punctuation and the Unicode class, runs of it
_CASELESS = re.compile(r"\(\?i:([^()]*)\)")
_MAX_DEPTH = 8


@dataclass(frozen=True)
class Structure:
    """The steps that are applied to text before the merges."""

    split: tuple[str, ...]  # regular expressions whose matches are isolated, one after the other
    byte_level: bool
    add_prefix_space: bool
    normalizer: str  # names of the normalizers that are more than spelling spaces; "" = none
    spells_spaces: bool = False  # as U+2581

    @classmethod
    def of(cls, content: dict[str, Any], source: str) -> "Structure":
        """Reads normalizer, pre_tokenizer and decoder of a tokenizer.json."""
        normalizers = flat(content.get("normalizer"), "normalizers", source)
        spells = any(map(_spells_spaces, normalizers))
        split: list[str] = []
        byte_level = prefix = False
        for step in flat(content.get("pre_tokenizer"), "pretokenizers", source):
            match step.get("type"):
                case "ByteLevel":
                    byte_level = True
                    prefix = prefix or step.get("add_prefix_space") is True
                    split += [_GPT2] if step.get("use_regex", True) else []
                case "Split":
                    # Gemma's tokenizers split at spaces, after all spaces were replaced
                    if not (spells and step.get("pattern") == {"String": " "}):
                        split.append(_pattern(step, source))
                case "Digits":
                    split.append(r"\p{N}" if step.get("individual_digits") is True else r"\p{N}+")
                case "Punctuation":
                    split.append(_PUNCTUATION if step.get("behavior") == "Contiguous" else _PUNCTUATION[:-1])
                case "Metaspace":
                    spells = True
                    split += [_METASPACE] if step.get("split", True) else []
                    prefix = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "") in (
                        "always",
                        "first",
                    )
                case other:
                    split.append(f"<{shown(other)}>")  # in no table, so it counts as unknown
        names = []
        for step in normalizers:
            kind = step.get("type")
            if kind == "Prepend" and step.get("prepend") == SPACE:
                prefix = True
            elif not _spells_spaces(step):
                names.append(shown(kind))
        if any(step.get("type") == "ByteLevel" for step in flat(content.get("decoder"), "decoders", source)):
            byte_level = True
        return cls(tuple(split), byte_level, prefix, "+".join(names), spells)


def find_name(structure: Structure, ignore_merges: bool, preferred: tuple[str, ...]) -> tuple[str, bool]:
    """The value of tokenizer.ggml.pre, and whether it means exactly this structure or is only the nearest one."""
    wanted = tuple(map(canonical, structure.split))
    rules = [rule for rule in pretokenizers.load() if rule.byte_level]
    exact = [
        rule
        for rule in rules
        if tuple(map(canonical, rule.split)) == wanted and rule.ignore_merges == ignore_merges and not rule.add_sep
    ]
    names = [name for rule in exact for name in rule.names]
    if names:
        return next((name for name in preferred if name in names), names[0]), True

    def likeness(rule: pretokenizers.Rule) -> float:
        # A hostile file may hold an expression of any length; comparing takes its square.
        texts = "\n".join(map(canonical, rule.split)), "\n".join(wanted)[:4096]
        return difflib.SequenceMatcher(None, *texts, autojunk=False).ratio() - 0.1 * (
            rule.ignore_merges != ignore_merges
        )

    return max(rules, key=likeness).names[0], False


def canonical(pattern: str) -> str:
    """The expression in a normal spelling, for comparison: equivalent expressions should become equal texts."""

    def spell_out(match: re.Match[str]) -> str:
        letters = (f"[{c}{c.upper()}]" if "a" <= c <= "z" else c for c in match[1].lower())
        return f"(?:{''.join(letters)})"

    for character, escape in (("\n", r"\n"), ("\r", r"\r"), ("\t", r"\t")):
        pattern = pattern.replace(character, escape)
    pattern = _CASELESS.sub(spell_out, pattern)
    # A lone whitespace that no alternative takes is left over as a separate piece anyway.
    return pattern.removesuffix(r"|\s+") if pattern.endswith(r"\s+(?!\S)|\s+") else pattern


def _spells_spaces(step: dict[str, Any]) -> bool:
    """Whether the normalizer replaces every space by U+2581."""
    pattern = step.get("pattern")
    return (
        step.get("type") == "Replace" and step.get("content") == SPACE and pattern in ({"String": " "}, {"Regex": " "})
    )


def _pattern(step: dict[str, Any], source: str) -> str:
    pattern = step.get("pattern")
    if isinstance(pattern, dict):
        if isinstance(pattern.get("Regex"), str):
            text: str = pattern["Regex"]
        elif isinstance(pattern.get("String"), str):
            text = re.escape(pattern["String"])
        else:
            raise TokenizerError(f"{source}: a Split without a pattern. Download it again.")
        # Removed and inverted: what does not match goes. The expressions in use match everything.
        if step.get("behavior") == "Isolated" or (step.get("behavior") == "Removed" and step.get("invert") is True):
            return text
        return f"<{shown(step.get('behavior'))}: {text}>"
    raise TokenizerError(f"{source}: a Split without a pattern. Download it again.")


def flat(step: Any, children: str, source: str, depth: int = 0) -> list[dict[str, Any]]:
    """The steps of a (nested) Sequence, in order."""
    if step is None:
        return []
    if not isinstance(step, dict) or depth > _MAX_DEPTH:
        raise TokenizerError(f"{source}: one of its {children} is not an object. Download it again.")
    if step.get("type") != "Sequence":
        return [step]
    steps = step.get(children)
    if not isinstance(steps, list):
        raise TokenizerError(f"{source}: a Sequence without {children}. Download it again.")
    return [one for child in steps for one in flat(child, children, source, depth + 1)]
