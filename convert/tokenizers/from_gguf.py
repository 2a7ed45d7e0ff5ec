"""A vocabulary copied from a GGUF file, for checkpoints without one."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.errors import Remedy, TokenizerError, shown
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.token_types import TokenType
from hybrid.quant.ggml.types import ArrayOf, ValueType

from .vocabulary import END_IDS, Vocabulary

_LISTS = {
    "tokenizer.ggml.tokens": ValueType.STRING,
    "tokenizer.ggml.scores": ValueType.FLOAT32,
    "tokenizer.ggml.token_type": ValueType.INT32,
}
_OWN = {*_LISTS, "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.merges", END_IDS}
# What llama.cpp's converter assumes for files without the key: the plain GPT-2 expression, by its usual name; nothing.
_OLD_PRE = {"gpt2": "mpt", "gemma4": "", "rwkv": ""}


def read_gguf_vocabulary(path: Path, n_vocab: int) -> Vocabulary:
    """All keys `tokenizer.*` of the file, without its padding beyond `n_vocab` tokens."""
    source = shown(path.name)
    with open_gguf(path) as file:
        if "tokenizer.ggml.tokens" not in file.metadata:
            raise TokenizerError(f"{source} has no vocabulary.", remedy=Remedy.TOKENIZER)
        lists = _lists(file, source)
        tokens = lists["tokenizer.ggml.tokens"]
        types = lists.get("tokenizer.ggml.token_type", [int(TokenType.NORMAL)] * len(tokens))
        scores = lists.get("tokenizer.ggml.scores")
        if len(types) != len(tokens) or (scores is not None and len(scores) != len(tokens)):
            raise TokenizerError(f"{source}: the numbers of its tokens, scores and types differ. Use another file.")
        # Rows that only rounded that model's embedding up; very old files do not mark them UNUSED.
        while len(tokens) > n_vocab and (types[-1] == TokenType.UNUSED or tokens[-1].startswith("[PAD")):
            del tokens[-1], types[-1]
            if scores is not None:
                del scores[-1]
        types = [TokenType.UNUSED if text == f"[PAD{i}]" else types[i] for i, text in enumerate(tokens)]
        model = file.metadata.get("tokenizer.ggml.model")
        if not isinstance(model, str):
            raise TokenizerError(f"{source} has no tokenizer.ggml.model. Use another file.")
        merges = file.metadata.get("tokenizer.ggml.merges")
        if merges is not None and file.value_types["tokenizer.ggml.merges"] != ArrayOf(ValueType.STRING):
            raise TokenizerError(f"{source}: tokenizer.ggml.merges is not an array of STRING. Use another file.")
        more = [
            (key, file.metadata[key], file.value_types[key])
            for key in file.metadata
            if key.startswith(("tokenizer.", "hybrid.tokenizer.")) and key not in _OWN
        ]
        for key, value, _ in more:
            if key.endswith("_token_ids"):
                _check_ids(key, value, source, n_vocab)
            if key.endswith("_token_id") and not (isinstance(value, int) and value < n_vocab):
                raise TokenizerError(f"{source}: {key} = {shown(value)}, but the model has {n_vocab} tokens.")
        ends = _check_ids(END_IDS, file.metadata.get(END_IDS, []), source, n_vocab)
        return Vocabulary(
            model=model,
            pre=str(file.metadata.get("tokenizer.ggml.pre", _OLD_PRE.get(model, "default"))),
            source=source,
            tokens=tokens,
            types=types,
            scores=scores,
            merges=None if merges is None else merges.tolist(),
            ends=ends,
            notes=list(_assumed(file.metadata, source)),
            more=[(k, v.tolist() if hasattr(v, "tolist") else v, kind) for k, v, kind in more],
        )


def _lists(file: GGUFFile, source: str) -> dict[str, list[Any]]:
    """The lists of _LISTS in the file. TokenizerError: a list has another type."""
    lists: dict[str, list[Any]] = {}
    for key, kind in _LISTS.items():
        if key in file.metadata:
            if file.value_types[key] != ArrayOf(kind):
                raise TokenizerError(f"{source}: {key} is not an array of {kind.name}. Use another file.")
            lists[key] = file.metadata[key].tolist()
    return lists


def _assumed(metadata: Mapping[str, Any], source: str) -> Iterator[str]:
    """Notes on missing keys, whose defaults are assumed."""
    named = "tokenizer.ggml.pre" in metadata or "hybrid.tokenizer.split" in metadata
    if metadata["tokenizer.ggml.model"] == "gpt2" and not named:
        yield f"{source} has no tokenizer.ggml.pre: {_OLD_PRE['gpt2']!r} is written, as llama.cpp's converter does"
    if "tokenizer.ggml.token_type" not in metadata:
        yield f"{source} has no tokenizer.ggml.token_type: all tokens are written as ordinary text (NORMAL)"


def _check_ids(key: str, value: Any, source: str, n_vocab: int) -> list[int]:
    """The token ids of an array, checked."""
    ids = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(ids, list) or not all(type(token) is int and 0 <= token < n_vocab for token in ids):
        raise TokenizerError(f"{source}: {key} = {shown(ids, 60)}, but the model has {n_vocab} tokens.")
    return ids
