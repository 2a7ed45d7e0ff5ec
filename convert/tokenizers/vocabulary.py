"""A vocabulary during conversion: tokens, scores, types, merges, and the keys `tokenizer.*` made from them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hybrid.quant.ggml.errors import Remedy, TokenizerError, shown
from hybrid.quant.ggml.token_types import SPACE, TokenType
from hybrid.quant.ggml.types import ArrayOf, ValueType

PADDING_SCORE = -10000.0  # as llama.cpp's converter has it
ADDED_SCORE = -1000.0
# Special tokens of kind gemma4 that are part of an answer's text, for those who look for calls of tools in it.
_RENDERED = frozenset(
    {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>'}
)


# The names that GGUF gives to the special tokens of Hugging Face; "seperator" is spelt so.
ID_KEYS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",
    "pad": "padding_token_id",
    "cls": "cls_token_id",
    "mask": "mask_token_id",
    "eot": "eot_token_id",
}

_EOS, _EOT, EOM = (f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
END_IDS = "hybrid.tokenizer.end_token_ids"
# What Hugging Face's AddedToken says of how a token is found in text; each has a key hybrid.tokenizer.NAME_token_ids.
FOUND = ("lstrip", "rstrip", "single_word", "normalized")

KeyValue = tuple[str, Any, ValueType | ArrayOf | None]


@dataclass
class Vocabulary:
    """Index = id. A missing id is an empty string until `pad` names it."""

    model: str  # tokenizer.ggml.model: llama, t5, gpt2, gemma4, bert, rwkv or plamo2
    pre: str  # tokenizer.ggml.pre; empty: no key
    source: str  # file name, for messages
    tokens: list[str] = field(repr=False)
    types: list[int] = field(repr=False)
    scores: list[float] | None = field(default=None, repr=False)
    merges: list[str] | None = field(default=None, repr=False)
    ids: dict[str, int] = field(default_factory=dict)  # bos, eos, unk, ... -> id
    fixed: dict[str, int] = field(default_factory=dict)  # entries of `ids` that no other file changes
    ends: list[int] = field(default_factory=list)  # tokens that end an answer, besides EOS and the end of a turn
    found: dict[str, set[int]] = field(
        default_factory=lambda: {name: set() for name in FOUND}
    )  # added tokens, by FOUND
    flags: dict[str, bool] = field(default_factory=dict)  # add_bos_token, add_eos_token, add_sep_token
    more: list[KeyValue] = field(default_factory=list, repr=False)  # whatever else belongs to the model
    chat_templates: dict[str, str] = field(default_factory=dict, repr=False)  # "default" and others
    notes: list[str] = field(default_factory=list)  # what could not be kept, for the user
    beyond: dict[int, str] = field(default_factory=dict, repr=False)  # added tokens that the model has not

    def add(self, token: int, text: str, special: bool, n_vocab: int) -> None:
        """An added token: CONTROL if special, otherwise found in text before anything else (USER_DEFINED)."""
        if token >= n_vocab:
            self.beyond[token] = text
            return
        if self.model == "plamo2" and self.tokens[token : token + 1] == [text]:
            return  # its file has all tokens, with scores and types
        while len(self.tokens) <= token:
            self.tokens.append("")
            self.types.append(TokenType.UNUSED)
            if self.scores is not None:
                self.scores.append(PADDING_SCORE)
        if special and not (self.model == "gemma4" and text in _RENDERED):
            # The unknown token keeps its type: sentencepiece must know its fallback.
            if self.types[token] != TokenType.UNKNOWN:
                self.types[token] = TokenType.CONTROL
        else:
            text = text.replace(SPACE, " ")  # such tokens are found in the raw text
            self.types[token] = TokenType.USER_DEFINED
        self.tokens[token] = text
        if self.scores is not None:
            self.scores[token] = ADDED_SCORE

    def note_found(self, token: int, entry: Mapping[str, Any]) -> None:
        """Notes how an added token is found in text, from tokenizer.json or tokenizer_config.json."""
        if token >= len(self.tokens):
            return
        for name, ids in self.found.items():
            default = name == "normalized" and entry.get("special") is not True
            (ids.add if entry.get(name, default) is True else ids.discard)(token)

    def pad(self, n_vocab: int) -> None:
        """Names missing ids and the rows that only round the embedding up. TokenizerError: more tokens than rows."""
        if len(self.tokens) > n_vocab:
            raise TokenizerError(
                f"{self.source} has {len(self.tokens)} tokens, but the model has only {n_vocab}. "
                "Is it the tokenizer of this model?",
                remedy=Remedy.TOKENIZER,
            )
        if self.beyond:
            token, text = min(self.beyond.items())
            more = f" and {len(self.beyond) - 1} more are" if len(self.beyond) > 1 else " is"
            self.notes.append(f"token {token} {shown(text)!r}{more} left out: the model has {n_vocab} tokens")
        missing = n_vocab - len(self.tokens)
        self.tokens += [""] * missing
        self.types += [TokenType.UNUSED] * missing
        if self.scores is not None:
            self.scores += [PADDING_SCORE] * missing
        self.tokens = [
            text or f"[PAD{i}]" if kind == TokenType.UNUSED else text
            for i, (text, kind) in enumerate(zip(self.tokens, self.types, strict=True))
        ]

    def _end_keys(self) -> Iterator[KeyValue]:
        """The keys of `ends` without the tokens that other keys name, each once. The first goes into llama.cpp's key
        for a third end, unless it is ordinary text: readers take that key's token for a control token."""
        stated = {key: value for key, value, _ in self.more}
        named = {self.ids.get("eos"), self.ids.get("eot"), *(stated.get(key) for key in (_EOS, _EOT, EOM))}
        others = [token for token in dict.fromkeys(self.ends) if token not in named]
        special = [token for token in others if self.types[token] in (TokenType.CONTROL, TokenType.USER_DEFINED)]
        if special and EOM not in stated and (_EOT in stated or "eot" in self.ids):
            yield EOM, special[0], ValueType.UINT32
            others.remove(special[0])
        if others:
            yield END_IDS, others, ArrayOf(ValueType.UINT32)

    def _found_otherwise(self) -> dict[str, set[int]]:
        """`found`, reduced to cases where readers without these keys would give other ids. That a token is found in
        normalized text matters if another one takes whitespace beside it, or if normalization changes it."""
        stripping = any(ids for name, ids in self.found.items() if name != "normalized")
        normalizes = ("hybrid.tokenizer.normalizer", "none") not in [(key, value) for key, value, _ in self.more]
        changes = normalizes and not all(self.tokens[token].isascii() for token in self.found["normalized"])
        if self.model not in ("gpt2", "gemma4") or not (stripping or changes):
            return {name: ids for name, ids in self.found.items() if ids and name != "normalized"}
        return {name: ids for name, ids in self.found.items() if ids}

    def key_values(self) -> Iterator[KeyValue]:
        """Keys, values and types in the order of llama.cpp's converter."""
        strings, ints = ArrayOf(ValueType.STRING), ArrayOf(ValueType.INT32)
        yield "tokenizer.ggml.model", self.model, ValueType.STRING
        if self.pre:
            yield "tokenizer.ggml.pre", self.pre, ValueType.STRING
        yield "tokenizer.ggml.tokens", self.tokens, strings
        if self.scores is not None:
            yield "tokenizer.ggml.scores", self.scores, ArrayOf(ValueType.FLOAT32)
        yield "tokenizer.ggml.token_type", [int(t) for t in self.types], ints
        if self.merges is not None:
            yield "tokenizer.ggml.merges", self.merges, strings
        yield from self.more
        for kind, key in ID_KEYS.items():
            if kind in self.ids:
                yield f"tokenizer.ggml.{key}", self.ids[kind], ValueType.UINT32
        yield from self._end_keys()
        for name, ids in self._found_otherwise().items():
            yield f"hybrid.tokenizer.{name}_token_ids", sorted(ids), ArrayOf(ValueType.UINT32)
        for name, value in self.flags.items():
            yield f"tokenizer.ggml.{name}", value, ValueType.BOOL
        named = [name for name in self.chat_templates if name != "default"]
        if named:
            yield "tokenizer.chat_templates", named, strings
            for name in named:
                yield f"tokenizer.chat_template.{name}", self.chat_templates[name], ValueType.STRING
        if "default" in self.chat_templates:
            yield "tokenizer.chat_template", self.chat_templates["default"], ValueType.STRING
