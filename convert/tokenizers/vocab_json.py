"""Reads vocab.json with merges.txt: byte-level BPE in a folder without tokenizer.json. The tokenizer's class decides
how texts are split, and gives default special tokens. Where no known class is named, the model's family decides, with a
note."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybrid.quant.ggml import pretokenizers
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
_QWEN35 = _QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")


@dataclass(frozen=True)
class Code:
    """What a tokenizer class of transformers does.

    split          expressions that split text, one after the other; empty: GPT-2's
    special        default bos, eos, ...; flags: as in Vocabulary
    ignore_merges  a piece of text that is itself a token is taken whole
    """

    special: Mapping[str, str]
    split: tuple[str, ...] = ()
    normalizer: str = ""
    flags: Mapping[str, bool] = field(default_factory=dict)
    ignore_merges: bool = False


_END = "<|endoftext|>"
_GPT2 = Code(dict.fromkeys(("bos", "eos", "unk"), _END))
_OF_QWEN = dict.fromkeys(("eos", "unk", "pad"), _END)
CLASSES: Mapping[str, Code] = {
    "GPT2Tokenizer": _GPT2,
    "CodeGenTokenizer": _GPT2,
    "GPTNeoXTokenizer": Code(_GPT2.special, normalizer="NFC"),
    "Qwen2Tokenizer": Code(_OF_QWEN, (_QWEN2,), "NFC"),
    "Qwen3_5Tokenizer": Code(_OF_QWEN, (_QWEN35,), "NFC"),
    "RobertaTokenizer": Code(
        {"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"},
        flags={"add_bos_token": True, "add_eos_token": True, "add_sep_token": True},
    ),
}
# The class for a model_type of config.json, used where no file names one; as in transformers.
_MODEL_TYPES = {
    **dict.fromkeys(("gpt2", "starcoder2", "granite", "granitemoe", "phi"), "GPT2Tokenizer"),
    **dict.fromkeys(("gpt_neox", "mamba", "mamba2", "falcon_mamba", "olmo", "olmoe", "rwkv"), "GPTNeoXTokenizer"),
    **dict.fromkeys(
        (
            *("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_vl"),
            "qwen3_vl_moe",
        ),
        "Qwen2Tokenizer",
    ),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text", "qwen4_exp"), "Qwen3_5Tokenizer"),
    "roberta": "RobertaTokenizer",
}
# Classes of all kinds of tokenizers.
_GENERAL = ("PreTrainedTokenizer", "TokenizersBackend")
# The rule of Llama 3, which families have that are like Llama, whatever their tokenizers.
_OF_MANY = "llama-bpe"


def read_vocab_json(folder: Path, model_config: Config, n_vocab: int, preferred: tuple[str, ...]) -> Vocabulary:
    """The vocabulary with the special tokens that files beside it name.

    UnsupportedError: an unknown tokenizer class. TokenizerError: a file is damaged or missing.
    """
    config = read_config(folder, "tokenizer_config.json")
    vocab = read_object(folder / VOCAB)
    code, note = _code(config, model_config, vocab, preferred)
    model = {"vocab": vocab, "merges": _lines(folder / MERGES), "ignore_merges": code.ignore_merges}
    last = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": not code.split}
    if code.split:
        config.expects("add_prefix_space", False)
    else:
        last["add_prefix_space"] = config.boolean("add_prefix_space", default=False)
    first = [{"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated"} for one in code.split]
    content = {
        "normalizer": {"type": code.normalizer} if code.normalizer else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*first, last]},
    }
    vocabulary = bpe(model, content, f"{VOCAB} with {MERGES}", preferred)
    vocabulary.flags |= code.flags
    vocabulary.notes += note
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


def _code(
    config: Config, model_config: Config, vocab: Mapping[str, Any], preferred: tuple[str, ...]
) -> tuple[Code, list[str]]:
    """What the tokenizer's class does, and a note if no known class is named. preferred: rules of the family."""
    source = next((one for one in (config, model_config) if one.get("tokenizer_class") is not None), None)
    named = source.get("tokenizer_class") if source else None
    known = CLASSES.get(named.removesuffix("Fast")) if isinstance(named, str) else None
    if known is not None:
        return known, []
    said = f"{source.where} says {shown(named)}" if source else f"{config.where} names none"
    model_type = model_config.get("model_type")
    usual = _MODEL_TYPES.get(model_type) if isinstance(model_type, str) else None
    is_general = named is None or (isinstance(named, str) and named.removesuffix("Fast") in _GENERAL)
    if usual is not None and is_general:
        return CLASSES[usual], []
    letters = pretokenizers.byte_letters()
    if (named is None or isinstance(named, str)) and vocab.keys() >= {*letters} and "a</w>" not in vocab:
        name, code = _guess(usual, preferred, vocab)
        return code, [
            f"{VOCAB} and {MERGES} do not say how texts are split, only the class of the tokenizer does. {said}: texts "
            f"are split by the rule {name!r}, and may become other tokens than the model was trained with"
        ]
    raise UnsupportedError(
        f"{VOCAB} and {MERGES} do not say how texts are split, only the class of the tokenizer does. {said}; "
        f"{', '.join(CLASSES)} are known, and this is no byte-level vocabulary, which could do without.",
        remedy=Remedy.TOKENIZER,
    )


def _guess(usual: str | None, preferred: tuple[str, ...], vocab: Mapping[str, Any]) -> tuple[str, Code]:
    """A name and the Code for a byte-level vocabulary without a known class: of the class that models of this type
    usually have, else of the family's rule, else GPT-2's."""
    if usual is not None:
        return usual, CLASSES[usual]
    special = {"eos": _END} if _END in vocab else {}
    rules = ((name, pretokenizers.by_name(name)) for name in preferred if name != _OF_MANY)
    name, rule = next(((name, rule) for name, rule in rules if rule is not None and rule.byte_level), ("gpt-2", None))
    return name, Code(special, rule.split, ignore_merges=rule.ignore_merges) if rule else Code(special)


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
