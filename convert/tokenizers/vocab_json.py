"""Reads vocab.json with merges.txt: byte-level BPE in a folder without tokenizer.json. The tokenizer's class decides
how texts are split, and gives default special tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.errors import Remedy, TokenizerError, UnsupportedError, shown
from hybrid.quant.ggml.utf8 import decoded

from ..checkpoint import Config, read_object
from .special import read_config
from .tokenizer_json import bpe
from .vocabulary import ID_KEYS, Vocabulary

VOCAB, MERGES = "vocab.json", "merges.txt"
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Code:
    """What a tokenizer class of transformers does.

    split    expression that splits text; empty: GPT-2's
    special  default bos, eos, ...; flags: as in Vocabulary
    """

    special: Mapping[str, str]
    split: str = ""
    normalizer: str = ""
    flags: Mapping[str, bool] = field(default_factory=dict)


_END = "<|endoftext|>"
_GPT2 = Code(dict.fromkeys(("bos", "eos", "unk"), _END))
CLASSES: Mapping[str, Code] = {
    "GPT2Tokenizer": _GPT2,
    "CodeGenTokenizer": _GPT2,
    "Qwen2Tokenizer": Code(dict.fromkeys(("eos", "unk", "pad"), _END), _QWEN2, "NFC"),
    "RobertaTokenizer": Code(
        {"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"},
        flags={"add_bos_token": True, "add_eos_token": True, "add_sep_token": True},
    ),
}
# The class for a model_type of config.json, used where tokenizer_config.json names none.
_MODEL_TYPES = {
    **dict.fromkeys(("gpt2", "starcoder2", "granite", "granitemoe"), "GPT2Tokenizer"),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next"), "Qwen2Tokenizer"),
    "roberta": "RobertaTokenizer",
}


def read_vocab_json(folder: Path, model_config: Config, n_vocab: int, preferred: tuple[str, ...]) -> Vocabulary:
    """The vocabulary with the special tokens that files beside it name.

    UnsupportedError: an unknown tokenizer class. TokenizerError: a file is damaged or missing.
    """
    config = read_config(folder, "tokenizer_config.json")
    code = _code(config, model_config)
    vocab = read_object(folder / VOCAB)
    model = {"vocab": vocab, "merges": _lines(folder / MERGES)}
    last = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": not code.split}
    if code.split:
        config.expects("add_prefix_space", False)
    else:
        last["add_prefix_space"] = config.boolean("add_prefix_space", default=False)
    first = [{"type": "Split", "pattern": {"Regex": code.split}, "behavior": "Isolated"}] if code.split else []
    content = {
        "normalizer": {"type": code.normalizer} if code.normalizer else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*first, last]},
    }
    vocabulary = bpe(model, content, f"{VOCAB} with {MERGES}", preferred)
    vocabulary.flags |= code.flags
    ids = {**vocab, **read_config(folder, "added_tokens.json").data}
    for kind, entry in _special(config, read_config(folder, "special_tokens_map.json"), code):
        text = entry["content"]
        token = ids.setdefault(text, max([*filter(_is_id, ids.values()), -1]) + 1)
        if not _is_id(token):
            continue  # the reader of added_tokens.json refuses it
        vocabulary.add(token, text, True, n_vocab)
        vocabulary.note_found(token, entry)
        if kind and token < n_vocab:
            vocabulary.ids.setdefault(kind, token)
    return vocabulary


def _code(config: Config, model_config: Config) -> Code:
    named = config.get("tokenizer_class")
    model_type = model_config.get("model_type")
    if named is None and isinstance(model_type, str):
        named = _MODEL_TYPES.get(model_type)
    code = CLASSES.get(named.removesuffix("Fast")) if isinstance(named, str) else None
    if code is None:
        said = f"{config.where} says {shown(named)}" if named is not None else f"{config.where} names none"
        raise UnsupportedError(
            f"{VOCAB} and {MERGES} do not say how texts are split, only the class of the tokenizer does. {said}; "
            f"{', '.join(CLASSES)} are known.",
            remedy=Remedy.TOKENIZER,
        )
    return code


def _lines(path: Path) -> list[str]:
    """The merges, two tokens a line."""
    if not path.is_file():
        raise TokenizerError(f"{VOCAB} is there, {path.name} beside it is not. Download it.", remedy=Remedy.TOKENIZER)
    try:
        lines = [line.removesuffix("\r") for line in decoded(path.read_bytes()).split("\n")]
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path.name} is not UTF-8: byte {error.start} is wrong. Download it again.") from None
    except OSError as error:
        raise TokenizerError(f"{path.name} cannot be read: {error.strerror}.") from None
    return [line for i, line in enumerate(lines) if line and not (i == 0 and line.startswith("#version"))]


def _special(config: Config, given: Config, code: Code) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pairs of a kind (bos, eos, ...; "" for others) and its entry; tokenizer_config.json takes precedence."""
    for kind in ID_KEYS:
        source = next((one for one in (config, given) if f"{kind}_token" in one.data), None)
        value = code.special.get(kind) if source is None else source.get(f"{kind}_token")
        if value:
            entry = _entry(value, source or config, f"{kind}_token")
            if source is None and kind == "mask":
                entry["lstrip"] = True  # in every class that has one
            yield kind, entry
    name = "additional_special_tokens"
    source = config if config.get(name) is not None else given
    values = source.get(name)
    for value in values if isinstance(values, list) else []:
        yield "", _entry(value, source, name)


def _entry(value: Any, source: Config, key: str) -> dict[str, Any]:
    entry = {"content": value} if isinstance(value, str) else value
    if not isinstance(entry, dict) or not isinstance(entry.get("content"), str) or not entry["content"]:
        raise source.wrong(key, "the text of a token")
    return {**entry, "special": True}


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 24
