"""Tokenizer files of a Hugging Face repository as GGUF metadata, in a simple way: a reference for the converter and the
source of vocabularies in tokenizer tests."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


@dataclass
class FakeGGUF:
    """The parts of a GGUF file that the tokenizer and the chat template read."""

    metadata: dict[str, Any] = field(default_factory=dict)
    path: Path = Path("fake.gguf")


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, value) of a protobuf message; length-delimited values as bytes."""
    pos = 0

    def varint() -> int:
        nonlocal pos
        value = shift = 0
        while True:
            byte = data[pos]
            pos += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while pos < len(data):
        tag = varint()
        match tag & 7:
            case 0:
                yield tag >> 3, varint()
            case 1:
                yield tag >> 3, data[pos : pos + 8]
                pos += 8
            case 2:
                size = varint()
                yield tag >> 3, data[pos : pos + size]
                pos += size
            case 5:
                yield tag >> 3, data[pos : pos + 4]
                pos += 4


def sentencepiece(path: Path, **extra: Any) -> FakeGGUF:
    """A tokenizer.model; `extra` are `tokenizer.ggml.` keys that override."""
    model = list(fields(path.read_bytes()))
    pieces = [dict(fields(value)) for number, value in model if number == 1]
    trainer = dict(fields(next(value for number, value in model if number == 2)))
    normalizer = dict(fields(next(value for number, value in model if number == 3)))
    metadata: dict[str, Any] = {
        "model": "t5" if trainer.get(3, 1) == 1 else "llama",
        "pre": "default",
        "tokens": [piece[1].decode() for piece in pieces],
        "scores": np.array([struct.unpack("<f", piece.get(2, bytes(4)))[0] for piece in pieces], np.float32),
        "token_type": np.array([piece.get(3, NORMAL) for piece in pieces], np.int32),
        "add_space_prefix": bool(normalizer.get(3, 1)),
        "remove_extra_whitespaces": bool(normalizer.get(4, 1)),
    }
    if normalizer.get(2):
        metadata["precompiled_charsmap"] = np.frombuffer(normalizer[2], np.uint8)
    names = {"bos": (41, 1), "eos": (42, 2), "unknown": (40, 0), "padding": (43, -1)}
    for name, (number, default) in names.items():
        token = trainer.get(number, default)
        if 0 <= token < len(pieces):
            metadata[f"{name}_token_id"] = token
    return FakeGGUF({f"tokenizer.ggml.{key}": value for key, value in (metadata | extra).items()}, path)


def bpe(path: Path, pre: str, *, padded: int = 0, normalizer: str | None = None, **extra: Any) -> FakeGGUF:
    """A byte-level tokenizer.json; `pre` is the name of its pre-tokenizer, `padded` the number of rows of the
    embedding."""
    data = json.loads(path.read_text())
    vocab: dict[str, int] = data["model"]["vocab"]
    added = {token["id"]: token for token in data["added_tokens"]}
    size = max([*vocab.values(), *added]) + 1
    tokens = [f"[PAD{i}]" for i in range(max(size, padded))]
    types = np.full(len(tokens), UNUSED, np.int32)
    for text, token in vocab.items():
        tokens[token], types[token] = text, NORMAL
    for token, entry in added.items():
        tokens[token] = entry["content"]
        types[token] = CONTROL if entry["special"] else USER_DEFINED
    metadata = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": types,
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]],
    }
    gguf = FakeGGUF({f"tokenizer.ggml.{key}": value for key, value in (metadata | extra).items()}, path)
    if normalizer is not None:
        gguf.metadata["hybrid.tokenizer.normalizer"] = normalizer
    return gguf


def gemma_json(path: Path) -> dict[str, Any]:
    """A sentencepiece BPE model as the tokenizer.json of Gemma's repositories. Merges are all splits of a token in two,
    best token first."""
    pieces = [dict(fields(value)) for number, value in fields(path.read_bytes()) if number == 1]
    vocab = {piece[1].decode(): i for i, piece in enumerate(pieces)}
    score = {piece[1].decode(): struct.unpack("<f", piece.get(2, bytes(4)))[0] for piece in pieces}
    known = {text: token for text, token in vocab.items() if pieces[token].get(3, NORMAL) in (NORMAL, USER_DEFINED)}
    merges = [
        [text[:i], text[i:]]
        for text in sorted(known, key=lambda text: -score[text])
        for i in range(1, len(text))
        if text[:i] in known and text[i:] in known
    ]
    space = {"String": " "}
    text, bos = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": token,
                "content": content,
                "special": True,
                "normalized": False,
                "lstrip": False,
                "rstrip": False,
                "single_word": False,
            }
            for content, token in vocab.items()
            if content.startswith("<") and content[-2:] in ("s>", "d>", "k>", "n>")
        ],
        "normalizer": {"type": "Replace", "pattern": space, "content": "\u2581"},
        "pre_tokenizer": {"type": "Split", "pattern": space, "behavior": "MergedWithPrevious", "invert": False},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [bos, text],
            "pair": [bos, text, bos, text],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [vocab["<bos>"]], "tokens": ["<bos>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def wordpiece(path: Path) -> FakeGGUF:
    """BERT's tokenizer.json, in llama.cpp's spelling: phantom spaces before words."""
    data = json.loads(path.read_text())
    special = {token["id"] for token in data["added_tokens"]}
    tokens = [""] * len(data["model"]["vocab"])
    for text, token in data["model"]["vocab"].items():
        tokens[token] = text if token in special else text[2:] if text.startswith("##") else "\u2581" + text
    ids = {"unknown": "[UNK]", "seperator": "[SEP]", "padding": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
    metadata = {
        "model": "bert",
        "tokens": tokens,
        "token_type": np.array([CONTROL if i in special else NORMAL for i in range(len(tokens))], np.int32),
        **{f"{name}_token_id": tokens.index(text) for name, text in ids.items()},
    }
    return FakeGGUF({f"tokenizer.ggml.{key}": value for key, value in metadata.items()}, path)


def ids_by_text(gguf: FakeGGUF) -> dict[str, int]:
    return {text: token for token, text in enumerate(gguf.metadata["tokenizer.ggml.tokens"])}


def world_vocabulary() -> list[bytes]:
    """Made-up tokens of an RWKV World vocabulary, from id 1 on: all bytes, then longer ones, in every spelling."""
    letters = "etaoinshrdlu "
    tokens = [bytes([i]) for i in range(256)]
    tokens += [(a + b).encode() for a in letters for b in letters if a + b != "  "]
    more = [
        "\n\n",
        "  ",
        " the",
        " the ",
        "'s",
        '"',
        "\\",
        "\\n",
        "'\"",
        "\t\t",
        "\r\n",
        "é",
        "日本",
        "日本語",
        "\u3000",
        "🎉",
        "and",
        " and",
    ]
    tokens += [text.encode() for text in more if len(text.encode()) > 1]
    return [*tokens, b"\xe6\x97", b"\xa5\xe6", b"\xff\xfe", b"\x00'\"", b"abc\xf0\x9f"]


def world_file(tokens: list[bytes]) -> str:
    """The vocabulary file: text as Python prints strings, other bytes as it prints bytes."""

    def literal(token: bytes) -> str:
        try:
            return ascii(token.decode()) if len(token) > 1 or token < b"\x80" else repr(token)
        except UnicodeDecodeError:
            return repr(token)

    return "".join(f"{i} {literal(token)} {len(token)}\n" for i, token in enumerate(tokens, 1))
