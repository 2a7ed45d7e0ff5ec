"""Reads tokenizer.json of Hugging Face's `tokenizers`: BPE over bytes (kind gpt2); BPE over characters with byte
fallback, in sentencepiece's style (kind llama if a space is put before the text, else gemma4); WordPiece (kind bert);
Unigram (kind t5)."""

import re
from pathlib import Path
from typing import Any

from hybrid.quant.ggml import split_trial
from hybrid.quant.ggml.errors import TokenizerError, UnsupportedError, shown
from hybrid.quant.ggml.pretokenizers import FORMS
from hybrid.quant.ggml.token_types import TokenType
from hybrid.quant.ggml.types import ArrayOf, ValueType

from ..checkpoint import read_object
from .pre import Structure, find_name, flat
from .unigram import unigram
from .vocabulary import ADDED_SCORE, Vocabulary
from .wordpiece import wordpiece

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_MAX_TOKENS = 1 << 24


def read_tokenizer_json(path: Path, n_vocab: int, preferred: tuple[str, ...]) -> Vocabulary:
    """The vocabulary. preferred: names to choose from pre-tokenizers with the same rule."""
    source = shown(path.name)
    content = read_object(path)
    model = content.get("model")
    if not isinstance(model, dict):
        raise TokenizerError(f"{source} has no model. Download it again.")
    kind = model.get("type", "BPE" if "merges" in model else None)
    if kind not in ("BPE", "WordPiece", "Unigram"):
        raise UnsupportedError(
            f"{source}: tokenizers of type {shown(kind)} are not supported, only BPE, WordPiece and Unigram are."
        )
    if kind == "Unigram":
        vocabulary = unigram(content, source)
    elif kind == "WordPiece":
        vocabulary = wordpiece(_tokens(model.get("vocab"), source), content, source)
    else:
        vocabulary = bpe(model, content, source, preferred)
    for token, text, entry in _added(content.get("added_tokens"), source):
        vocabulary.add(token, text, entry.get("special") is True, n_vocab)
        vocabulary.note_found(token, {"normalized": False, **entry})
    _note_normalized(vocabulary, content, source)
    return vocabulary


def _note_normalized(vocabulary: Vocabulary, content: dict[str, Any], source: str) -> None:
    """Notes added tokens that kinds llama and bert find in raw text, but `tokenizers` in normalized text."""
    prepends = any(step.get("type") == "Prepend" for step in flat(content.get("normalizer"), "normalizers", source))
    lowers = vocabulary.flags.get("normalizer.lowercase", False)
    texts = [vocabulary.tokens[token] for token in sorted(vocabulary.found["normalized"])]
    texts = [text for text in texts if prepends or (lowers and text != text.lower())]
    if texts and vocabulary.model in ("llama", "bert"):
        more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
        vocabulary.notes.append(
            f"{source} looks for the added tokens {', '.join(map(shown, texts[:3]))}{more} in normalized text; readers "
            "look for them in raw text"
        )


def bpe(model: dict[str, Any], content: dict[str, Any], source: str, preferred: tuple[str, ...]) -> Vocabulary:
    """The vocabulary of a BPE `model` without its added tokens; `content`: the whole tokenizer.json."""
    tokens = _tokens(model.get("vocab"), source)
    merges = _merges(model.get("merges"), set(tokens), source)
    structure = Structure.of(content, source)
    for option in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise UnsupportedError(f"{source}: a BPE with {option} = {shown(model[option])} is not supported.")
    if structure.byte_level:
        return _byte_level(tokens, merges, structure, model, source, preferred)
    if model.get("byte_fallback") is True and not structure.spells_spaces:
        raise UnsupportedError(
            f"{source}: a BPE with byte_fallback that does not spell spaces as U+2581 is not supported."
        )
    if model.get("byte_fallback") is True:
        by = _by_scores if structure.add_prefix_space else _by_merges
        return by(tokens, merges, structure, model, source)
    raise UnsupportedError(f"{source}: a BPE without bytes (neither ByteLevel nor byte_fallback) is not supported.")


def _byte_level(
    tokens: list[str],
    merges: list[tuple[str, str]],
    structure: Structure,
    model: dict[str, Any],
    source: str,
    preferred: tuple[str, ...],
) -> Vocabulary:
    name, exact = find_name(structure, model.get("ignore_merges") is True, preferred)
    vocabulary = Vocabulary(
        model="gpt2",
        pre=name,
        source=source,
        tokens=tokens,
        types=[TokenType.NORMAL if text else TokenType.UNUSED for text in tokens],
        # A space inside a merge's part would make the string ambiguous; in the byte alphabet it is spelled U+0120.
        merges=[f"{a.replace(' ', 'Ġ')} {b.replace(' ', 'Ġ')}" for a, b in merges],
    )
    _state(vocabulary, structure, nearest=None if exact else name)
    if structure.add_prefix_space:
        vocabulary.more.append(("tokenizer.ggml.add_space_prefix", True, ValueType.BOOL))
    return vocabulary


def _state(vocabulary: Vocabulary, structure: Structure, nearest: str | None) -> None:
    """Writes our own keys for properties without a GGUF key. nearest: the written pre-tokenizer, if it is not exact."""
    form = structure.normalizer if structure.normalizer in FORMS else "none"
    if structure.normalizer not in ("", *FORMS):
        vocabulary.notes.append(f"the normalizer {structure.normalizer} of {vocabulary.source} is not applied")
    vocabulary.more.append(("hybrid.tokenizer.normalizer", form, ValueType.STRING))
    if nearest is not None:
        split_trial.check(structure.split, vocabulary.source)
        vocabulary.more.append(("hybrid.tokenizer.split", list(structure.split), ArrayOf(ValueType.STRING)))
        vocabulary.notes.append(
            f"{vocabulary.source} splits text in a way that no known pre-tokenizer does; {nearest!r} is the nearest, "
            "and hybrid.tokenizer.split has its expressions"
        )


def _by_merges(
    tokens: list[str], merges: list[tuple[str, str]], structure: Structure, model: dict[str, Any], source: str
) -> Vocabulary:
    """Kind gemma4: the merges themselves. Scores are as llama.cpp's converter writes them; nobody reads them."""
    vocabulary = Vocabulary(
        model="gemma4",
        pre="",  # the kind implies it
        source=source,
        tokens=tokens,
        types=_types(tokens),
        scores=[ADDED_SCORE] * len(tokens),
        merges=[f"{a} {b}" for a, b in merges],
    )
    _mark_unknown(vocabulary, model, TokenType.CONTROL)
    if model.get("ignore_merges") is True:
        vocabulary.notes.append(f"{source} takes whole words that are tokens, which readers of kind gemma4 do not")
    _state(vocabulary, structure, nearest="gemma4" if structure.split else None)
    vocabulary.more.append(("tokenizer.ggml.add_space_prefix", False, ValueType.BOOL))
    return vocabulary


def _by_scores(
    tokens: list[str], merges: list[tuple[str, str]], structure: Structure, model: dict[str, Any], source: str
) -> Vocabulary:
    """Kind llama. A score is minus the rank of the merge that makes the token: readers of this kind merge the highest
    score first, which is the first merge. (llama.cpp's converter writes -1000 for all.)"""
    rank: dict[str, int] = {}
    for i, (a, b) in enumerate(merges):
        rank.setdefault(a + b, i)
    vocabulary = Vocabulary(
        model="llama",
        pre="default",
        source=source,
        tokens=tokens,
        types=_types(tokens),
        scores=[float(-rank.get(text, len(merges))) for text in tokens],
    )
    _mark_unknown(vocabulary, model, TokenType.UNKNOWN)
    if structure.normalizer:
        vocabulary.notes.append(f"the normalizer {structure.normalizer} of {source} is not applied")
    if structure.split:
        vocabulary.notes.append(f"{source} splits text before the merges, which readers of kind llama do not")
    return vocabulary


def _types(tokens: list[str]) -> list[int]:
    """Types of characters and bytes, before special tokens are marked."""
    return [
        int(TokenType.UNUSED if not text else TokenType.BYTE if _BYTE.fullmatch(text) else TokenType.NORMAL)
        for text in tokens
    ]


def _mark_unknown(vocabulary: Vocabulary, model: dict[str, Any], kind: TokenType) -> None:
    unknown = model.get("unk_token")
    if isinstance(unknown, str) and unknown in vocabulary.tokens:
        vocabulary.ids["unk"] = vocabulary.tokens.index(unknown)
        vocabulary.types[vocabulary.ids["unk"]] = kind


def _tokens(vocab: Any, source: str) -> list[str]:
    """Texts by id; "" where no token has the id."""
    if not isinstance(vocab, dict) or not vocab:
        raise TokenizerError(f"{source}: model.vocab is not an object of tokens. Download it again.")
    if not all(type(i) is int and 0 <= i < _MAX_TOKENS for i in vocab.values()):
        raise TokenizerError(f"{source}: model.vocab has ids that are not small integers. Download it again.")
    tokens = [""] * (max(vocab.values()) + 1)
    if len(tokens) > 4 * len(vocab) + 1024:
        raise TokenizerError(f"{source}: {len(vocab)} tokens have ids up to {len(tokens) - 1}. Download it again.")
    for text, i in vocab.items():
        if tokens[i]:
            raise TokenizerError(f"{source}: id {i} is both {shown(tokens[i])!r} and {shown(text)!r}.")
        tokens[i] = text
    return tokens


def _merges(merges: Any, known: set[str], source: str) -> list[tuple[str, str]]:
    """Pairs in order of rank, written as "a b" or, since 2024, as ["a", "b"]."""
    if not isinstance(merges, list):
        raise TokenizerError(f"{source}: model.merges is not a list. Download it again.")
    ranked = []
    for rank, merge in enumerate(merges):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(p, str) and p for p in parts):
            raise TokenizerError(f"{source}: merge {rank} is {shown(merge)}, expected two tokens. Download it again.")
        a, b = parts
        if a not in known or b not in known or a + b not in known:
            raise TokenizerError(f"{source}: merge {rank} ({shown(a)} + {shown(b)}) has a token that is not there.")
        ranked.append((a, b))
    return ranked


def _added(entries: Any, source: str) -> list[tuple[int, str, dict[str, Any]]]:
    """Id, text and properties of the added tokens."""
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise TokenizerError(f"{source}: added_tokens is not a list. Download it again.")
    added = []
    for entry in entries:
        token = entry.get("id") if isinstance(entry, dict) else None
        text = entry.get("content") if isinstance(entry, dict) else None
        if type(token) is not int or not 0 <= token < _MAX_TOKENS or not isinstance(text, str) or not text:
            raise TokenizerError(f"{source}: added token {shown(entry)} has no id or no content. Download it again.")
        added.append((token, text, entry))
    return added
