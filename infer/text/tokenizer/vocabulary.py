"""Reads and checks the tokenizer keys of a GGUF file, `tokenizer.ggml.*` and our own `hybrid.tokenizer.*`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hybrid.quant.ggml.errors import Remedy, TokenizerError, shown
from hybrid.quant.ggml.token_types import TokenType

from .fill import FillTokens, read_fill_tokens
from .special import Surroundings


class MetadataFile(Protocol):
    """The parts of a GGUF file that a tokenizer needs."""

    @property
    def path(self) -> Path: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Defaults:
    """llama.cpp's defaults for missing keys."""

    bos: int | None = None
    eos: int | None = None
    unk: int | None = None
    sep: int | None = None
    add_bos: bool = False
    add_eos: bool = False


DEFAULTS = {
    "llama": Defaults(bos=1, eos=2, unk=0, add_bos=True),
    "t5": Defaults(eos=1, unk=2, add_eos=True),
    "gpt2": Defaults(),
    "gemma4": Defaults(),
    "bert": Defaults(bos=101, unk=100, sep=102, add_bos=True),
    "rwkv": Defaults(),
    "plamo2": Defaults(bos=1, eos=2, unk=0),
}

# Tokens that end a turn, by their text. llama.cpp's list, and Jamba's <|eom|>.
_END_OF_TURN = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|eom|>", "<|endoftext|>",
                "<end_of_utterance>", "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<turn|>")  # fmt: skip
_END_OF_GENERATION = frozenset((*_END_OF_TURN, "<|eom_id|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "</s>",
                                "<eos>", "[EOS]", "<|end_of_text|>", "<|tool_response>", "[e~["))  # fmt: skip

# Pre-tokenizers of encoders that have two tokens between the texts of a pair.
_WITH_SEP = ("jina-v1-en", "jina-v2-code", "roberta-bpe")
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_PADDING = re.compile(r"\[PAD\d+\]")
_NO_TOKEN = 0xFFFFFFFF  # some writers use -1 as u32 for "no token"


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """A file's vocabulary. tokens: by id, spelled as in the file (sentencepiece's U+2581, GPT-2's byte alphabet, RWKV's
    escapes)."""

    source: str  # file name, for messages
    model: str  # llama, t5, gpt2, gemma4, bert, rwkv, plamo2
    pre: str  # name of the pre-tokenizer (gpt2, gemma4)
    tokens: list[str] = field(repr=False)
    types: np.ndarray = field(repr=False)  # int32 [n_vocab], TokenType
    scores: np.ndarray | None = field(repr=False)  # f32 [n_vocab]
    merges: list[str] | None = field(repr=False)
    charsmap: bytes = field(repr=False)  # sentencepiece's compiled normalization rules; empty: no rules
    normalizer: str | None  # our own key: "NFC", "none"; None = the file does not say
    split: list[str] | None = field(repr=False)  # our own key: splitting expressions, if no pre-tokenizer has them
    near: Surroundings  # our own keys: tokens that depend on adjacent text
    normalized: frozenset[int]  # our own key: tokens that are searched for in normalized text
    bos: int | None
    eos: int | None
    eot: int | None
    unk: int | None
    pad: int | None
    sep: int | None
    add_bos: bool | None
    add_eos: bool | None
    add_sep: bool
    add_space_prefix: bool
    remove_extra_whitespaces: bool
    lowercase: bool
    strip_accents: bool
    eog: frozenset[int]  # tokens that end an answer
    fill: FillTokens  # tokens of prompts with a gap
    control_ends: frozenset[int]  # part of `eog`: control tokens, whatever their type; the others are text

    def of_type(self, *types: TokenType) -> list[int]:
        return np.flatnonzero(np.isin(self.types, types)).tolist()

    def type_of(self, token: int) -> int:
        """A TokenType as a Python int. Comparing a numpy integer with an enum member asks for `__array_ufunc__`, which
        up to Python 3.11 runs Python code of `enum`; numpy drops exceptions there, also Ctrl-C."""
        return int(self.types[token])

    @property
    def ends(self) -> dict[int, str]:
        """The tokens that end an answer and their texts: EOS, the end of a turn, then the others by id."""
        first = [token for token in (self.eos, self.eot) if token in self.eog]
        return {token: self.tokens[token] for token in (*first, *sorted(self.eog)) if token is not None}

    def is_padding(self, token: int) -> bool:
        """Whether a token only pads the embedding: `[PAD123]`, never text."""
        return self.type_of(token) == TokenType.UNUSED and _PADDING.fullmatch(self.tokens[token]) is not None


class _Keys:
    """Typed access to keys. Raises TokenizerError, which names the file and the key."""

    def __init__(self, file: MetadataFile) -> None:
        self.metadata = file.metadata
        self.source = Path(file.path).name

    def wrong(self, key: str, what: str) -> TokenizerError:
        return TokenizerError(f"{self.source}: {key} {what}. Convert the model again.")

    def text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, f"is {type(value).__name__}, expected a string")
        return value

    def flag(self, key: str) -> bool | None:
        value = self.metadata.get(key)
        if value is not None and not isinstance(value, bool | np.bool_):
            raise self.wrong(key, f"is {shown(str(value))}, expected true or false")
        return None if value is None else bool(value)

    def token(self, key: str, n_vocab: int, default: int | None) -> int | None:
        value = self.metadata.get(key)
        if value is None:
            return default if default is not None and default < n_vocab else None
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise self.wrong(key, f"is {shown(str(value))}, expected a token id")
        if value in (-1, _NO_TOKEN):
            return None
        if not 0 <= value < n_vocab:
            raise self.wrong(key, f"is {value}, but the vocabulary has {n_vocab} tokens")
        return int(value)

    def token_ids(self, key: str, n_vocab: int) -> list[int]:
        """The ids of an array; [] if the file does not have the key."""
        ids = self.numbers(key, np.float64, None)
        if ids is None:
            return []
        wrong = ids[~((ids >= 0) & (ids < n_vocab) & (ids == np.floor(ids)))]
        if wrong.size:
            raise self.wrong(key, f"has {wrong[0]:.16g}, but the vocabulary has {n_vocab} tokens")
        found: list[int] = ids.astype(int).tolist()
        return found

    def strings(self, key: str) -> list[str] | None:
        value = self.metadata.get(key)
        if value is None:
            return None
        items = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(items, list) or set(map(type, items)) - {str}:
            raise self.wrong(key, "is not an array of strings")
        return items

    def numbers(self, key: str, dtype: type[np.generic], n: int | None) -> np.ndarray | None:
        value = self.metadata.get(key)
        if value is None:
            return None
        try:
            array = np.asarray(value)
            if array.dtype.kind not in "iuf" or array.ndim != 1:
                raise ValueError
            if n is not None and len(array) != n:
                raise self.wrong(key, f"has {len(array)} entries for {n} tokens")
            return array.astype(dtype)
        except (ValueError, TypeError):
            raise self.wrong(key, "is not an array of numbers") from None


def read_vocabulary(file: MetadataFile) -> Vocabulary:
    """Read the vocabulary. Raises TokenizerError if keys are missing, contradict one another or have a wrong type."""
    keys = _Keys(file)
    prefix = "tokenizer.ggml."
    model = keys.text(prefix + "model")
    if model is None:
        raise TokenizerError(
            f"{keys.source} has no tokenizer (no {prefix}model). Convert the model again.", remedy=Remedy.TOKENIZER
        )
    tokens = keys.strings(prefix + "tokens")
    if not tokens:
        raise keys.wrong(prefix + "tokens", "is missing or empty")
    n = len(tokens)
    types = keys.numbers(prefix + "token_type", np.int32, n)
    if types is None:
        types = np.full(n, TokenType.NORMAL.value, np.int32)
    scores = keys.numbers(prefix + "scores", np.float32, n)
    if scores is not None and not np.isfinite(scores).all():
        raise keys.wrong(prefix + "scores", "holds NaN or infinity")
    charsmap = keys.numbers(prefix + "precompiled_charsmap", np.uint8, None)
    default = DEFAULTS.get(model, Defaults())
    # BERT's files may have only cls_token_id, the token that begins a text
    first = keys.token(prefix + "cls_token_id", n, default.bos) if model == "bert" else default.bos
    bos = keys.token(prefix + "bos_token_id", n, first)
    eos = keys.token(prefix + "eos_token_id", n, default.eos)
    eot = keys.token(prefix + "eot_token_id", n, None)
    eom = keys.token(prefix + "eom_token_id", n, None)
    eog = _end_of_generation(tokens, types)
    eot = eot if eot is not None else next((eog[text] for text in _END_OF_TURN if text in eog), None)
    fill = read_fill_tokens(tokens, lambda key: keys.token(prefix + key, n, None))
    ends = {token for token in (eos, eot, eom, *eog.values(), *_control(fill.ends, types)) if token is not None}
    stated = set(keys.token_ids("hybrid.tokenizer.end_token_ids", n))
    add_bos = keys.flag(prefix + "add_bos_token")
    add_eos = keys.flag(prefix + "add_eos_token")
    add_sep = keys.flag(prefix + "add_sep_token")
    if add_sep is None:
        add_sep = model == "gpt2" and keys.text(prefix + "pre") in _WITH_SEP
    add_space_prefix = keys.flag(prefix + "add_space_prefix")
    lowercase = keys.flag(prefix + "normalizer.lowercase") is not False
    strip_accents = keys.flag(prefix + "normalizer.strip_accents")
    # then the pre-tokenizer decides on add_bos, see bpe.py
    undecided = model in ("gpt2", "gemma4")
    return Vocabulary(
        source=keys.source,
        model=model,
        pre="gemma4" if model == "gemma4" else keys.text(prefix + "pre") or "default",
        tokens=tokens,
        types=types,
        scores=scores,
        merges=keys.strings(prefix + "merges"),
        charsmap=b"" if charsmap is None else charsmap.tobytes(),
        normalizer=keys.text("hybrid.tokenizer.normalizer"),
        split=keys.strings("hybrid.tokenizer.split"),
        near=_surroundings(keys, tokens, types),
        normalized=frozenset(keys.token_ids("hybrid.tokenizer.normalized_token_ids", n)),
        bos=bos,
        eos=eos,
        eot=eot,
        unk=keys.token(prefix + "unknown_token_id", n, default.unk),
        pad=keys.token(prefix + "padding_token_id", n, None),
        sep=keys.token(prefix + "seperator_token_id", n, default.sep),
        add_bos=default.add_bos if add_bos is None and not undecided else add_bos,
        add_eos=default.add_eos if add_eos is None else add_eos,
        add_sep=add_sep,
        add_space_prefix=model in ("llama", "t5") if add_space_prefix is None else add_space_prefix,
        remove_extra_whitespaces=keys.flag(prefix + "remove_extra_whitespaces") is True,
        lowercase=lowercase,
        strip_accents=lowercase if strip_accents is None else strip_accents,
        eog=frozenset(ends | stated),
        fill=fill,
        control_ends=_control_ends(model, ends, stated, types),
    )


def assumptions(file: MetadataFile) -> list[str]:
    """Lines for the user about what the tokenizer assumes because the file does not say it; mostly empty."""
    name, metadata, lines = Path(file.path).name, file.metadata, []
    if metadata.get("tokenizer.ggml.model") == "gpt2" and not (
        metadata.get("tokenizer.ggml.pre") or "hybrid.tokenizer.split" in metadata
    ):
        lines.append(
            f"{name} has no tokenizer.ggml.pre: text is split by the rule 'default', as in llama.cpp, and may become "
            "other tokens than the model was trained with. Convert the model again."
        )
    if "tokenizer.ggml.tokens" in metadata and "tokenizer.ggml.token_type" not in metadata:
        lines.append(
            f"{name} has no tokenizer.ggml.token_type: all tokens are taken for ordinary text (NORMAL), also the "
            "special tokens of chats. Convert the model again."
        )
    return lines


def _surroundings(keys: _Keys, tokens: list[str], types: np.ndarray) -> Surroundings:
    """The Surroundings by the file's keys; without these, by names of models, as in llama.cpp."""
    names = [f"hybrid.tokenizer.{name}_token_ids" for name in ("lstrip", "rstrip", "single_word")]
    if any(name in keys.metadata for name in names):
        return Surroundings(*(frozenset(keys.token_ids(name, len(tokens))) for name in names))
    name, arch = (str(keys.metadata.get(f"general.{key}", "")) for key in ("name", "architecture"))
    pre = str(keys.metadata.get("tokenizer.ggml.pre", ""))
    if pre.startswith(("jina-v2-de", "jina-v2-es", "jina-v2-code")) or arch in ("nomic-bert-moe", "jina-bert-v3"):
        return Surroundings(before=frozenset({tokens.index("<mask>")} if "<mask>" in tokens else ()))
    if "phi-3" in name.lower() or "phi3" in name.lower():
        special = np.isin(types, (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN))
        chosen = {i for i in np.flatnonzero(special).tolist() if tokens[i] not in ("<unk>", "<s>", "<|endoftext|>")}
        return Surroundings(after=frozenset(chosen | ({tokens.index("</s>")} if "</s>" in tokens else set())))
    if "modern-bert" in name.lower():
        return Surroundings(before=frozenset({tokens.index("[MASK]")} if "[MASK]" in tokens else ()))
    return Surroundings()


def _control_ends(model: str, named: set[int], stated: set[int], types: np.ndarray) -> frozenset[int]:
    """End tokens that plain text never becomes. Not a blank line, which ends a turn of RWKV, nor ordinary tokens in the
    checkpoint's own list."""
    if model == "rwkv":
        return frozenset()
    return frozenset(named | {token for token in stated if int(types[token]) not in (TokenType.NORMAL, TokenType.BYTE)})


def _control(ids: set[int], types: np.ndarray) -> set[int]:
    return {token for token in ids if int(types[token]) == TokenType.CONTROL}


def _end_of_generation(tokens: list[str], types: np.ndarray) -> dict[str, int]:
    """text -> id of the tokens that end an answer.

    A converter may have left `<|im_end|>` or `<turn|>` NORMAL; they still end answers, as nobody writes them by
    accident. `</s>` is also HTML, so a NORMAL one is text.
    """
    marked = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)
    ends: dict[str, int] = {}
    for text in _END_OF_GENERATION.intersection(tokens):
        token = tokens.index(text)
        if int(types[token]) in marked or text.startswith("<|") or text.endswith("|>"):
            ends[text] = token
    calls = "<|call|>" in ends or "<|calls|>" in ends
    if calls and ("<|return|>" in ends or "<|flush|>" in ends):
        ends.pop("<|end|>", None)  # gpt-oss, Solar Open: <|end|> closes a channel, and the answer goes on
    if "<|tool_response>" in ends:
        ends.pop("</s>", None)  # Gemma 4: HTML, whatever its type
    return ends
