"""Reads BERT's vocabularies (kind bert): tokenizer.json with a WordPiece model, or vocab.txt, a token per line.

GGUF uses phantom spaces (llama.cpp PR #5423): U+2581 is put before the first piece of a word, and `##` is removed from
the others.
"""

from pathlib import Path
from typing import Any

from hybrid.quant.ggml.errors import TokenizerError, UnsupportedError, shown
from hybrid.quant.ggml.token_types import SPACE, TokenType
from hybrid.quant.ggml.utf8 import decoded

from ..checkpoint import Config, read_object
from .vocabulary import Vocabulary

_CONTINUED = "##"
_SPECIAL = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}


def wordpiece(tokens: list[str], content: dict[str, Any], source: str) -> Vocabulary:
    """The vocabulary of a tokenizer.json without its added tokens; `tokens` by id, `content` the whole file."""
    model = content["model"]
    prefix = model.get("continuing_subword_prefix", _CONTINUED)
    if prefix != _CONTINUED:
        raise UnsupportedError(f"{source}: words that go on with {shown(prefix)} are not supported, only with ##.")
    vocabulary = _made(tokens, source)
    split = content.get("pre_tokenizer")
    kind = split.get("type") if isinstance(split, dict) else None
    if kind != "BertPreTokenizer":
        raise UnsupportedError(
            f"{source}: WordPiece after the pre-tokenizer {shown(kind)} is not supported, only BertPreTokenizer is."
        )
    normalizer = content.get("normalizer")
    normalizer = normalizer if isinstance(normalizer, dict) else {}
    if normalizer.get("type") != "BertNormalizer":
        raise UnsupportedError(
            f"{source}: WordPiece after the normalizer {shown(normalizer.get('type'))} is not supported, "
            "only BertNormalizer is."
        )
    for name, effect in (("clean_text", "control characters"), ("handle_chinese_chars", "Chinese characters")):
        if normalizer.get(name) is False:
            vocabulary.notes.append(f"{source} says {name} = false; readers of GGUF treat {effect} as BERT does")
    for name in ("lowercase", "strip_accents"):
        if isinstance(normalizer.get(name), bool):
            vocabulary.flags[f"normalizer.{name}"] = normalizer[name]
    unknown = model.get("unk_token", _SPECIAL["unk"])
    _control(vocabulary, "unk", unknown, tokens)
    return vocabulary


def read_vocab_txt(path: Path) -> Vocabulary:
    """The vocabulary of vocab.txt, tokenizer_config.json and special_tokens_map.json, without a tokenizer.json."""
    source = shown(path.name)
    try:
        tokens = decoded(path.read_bytes()).replace("\r\n", "\n").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{source} is not UTF-8: byte {error.start} is wrong. Download it again.") from None
    except OSError as error:
        raise TokenizerError(f"{source} cannot be read: {error.strerror}.") from None
    if len(set(tokens)) != len(tokens) or "" in tokens:
        raise TokenizerError(f"{source} has a token twice, or an empty line. Download it again.")
    vocabulary = _made(tokens, source)
    files = [path.with_name(name) for name in ("tokenizer_config.json", "special_tokens_map.json")]
    settings = [Config(read_object(file), file.name) for file in files if file.is_file()]
    for kind, default in _SPECIAL.items():
        stated = [config.get(f"{kind}_token") for config in settings]
        texts = [entry.get("content") if isinstance(entry, dict) else entry for entry in stated]
        _control(vocabulary, kind, next((text for text in texts if text), default), tokens)
    config = settings[0] if settings else Config({}, "tokenizer_config.json")
    vocabulary.flags["normalizer.lowercase"] = bool(config.boolean("do_lower_case", default=True))
    accents = config.boolean("strip_accents", default=None)
    if accents is not None:
        vocabulary.flags["normalizer.strip_accents"] = accents
    # as tokenizer.json's template would say
    for flag, kind, alias in (("add_bos_token", "cls", "bos"), ("add_eos_token", "sep", "eos")):
        if kind in vocabulary.ids:
            vocabulary.flags[flag] = True
            vocabulary.ids[alias] = vocabulary.ids[kind]
    return vocabulary


def _made(tokens: list[str], source: str) -> Vocabulary:
    """A vocabulary with all tokens as ordinary ones, in GGUF's spelling."""
    types = [int(TokenType.NORMAL if text else TokenType.UNUSED) for text in tokens]
    return Vocabulary(model="bert", pre="bert-bge", source=source, tokens=[_phantom(t) for t in tokens], types=types)


def _phantom(text: str) -> str:
    if not text:
        return ""
    return text.removeprefix(_CONTINUED) if text.startswith(_CONTINUED) else SPACE + text


def _control(vocabulary: Vocabulary, kind: str, text: Any, tokens: list[str]) -> None:
    """Marks a special token of the vocabulary, which keeps its spelling."""
    if text in tokens:
        token = tokens.index(text)
        vocabulary.ids[kind] = token
        vocabulary.tokens[token], vocabulary.types[token] = text, TokenType.CONTROL
