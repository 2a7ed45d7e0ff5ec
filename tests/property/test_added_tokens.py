"""Added tokens whose match depends on the text beside them: a GGUF file's keys give the ids of Hugging Face's
`tokenizers`."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hybrid.convert.checkpoint import Config
from hybrid.convert.tokenizers import Vocabulary, read_vocabulary
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.pretokenizers import byte_letters

TEXTS = ("<mask>", "<|end|>", "<m", "  ", "\n\n", "word", "x", "é", "ab", " b", "end|>")
PARTS = (*TEXTS, " ", "\t", "\n", "\u00a0", "\u3000", "\x1c", "_", "a", "b", "7", "²", "-", "e\u0301", "\u0301",
         "\u203f", "\u24b6", "\u200d", "\U0001f170")  # fmt: skip
N_TEXTS = 300


def tokenizer_json(draw: random.Random, normalizer: str | None) -> dict[str, Any]:
    """A byte-level BPE with all bytes and three merges, and some added tokens with random properties."""
    letters = sorted(byte_letters())
    vocab = {text: i for i, text in enumerate([*letters, "ab", "Ġa", "Ġab"])}
    chosen = draw.sample(TEXTS, draw.randint(1, len(TEXTS)))
    ids = {**vocab, **{text: len(vocab) + i for i, text in enumerate(sorted(set(chosen) - set(vocab)))}}
    properties = ("special", "lstrip", "rstrip", "single_word", "normalized")
    added = [
        {"id": ids[text], "content": text, **{name: draw.random() < 0.4 for name in properties}} for text in chosen
    ]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": sorted(added, key=lambda e: e["id"]),
        "normalizer": normalizer and {"type": normalizer},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                                            "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": [["a", "b"], ["Ġ", "a"], ["Ġ", "ab"]]},
    }  # fmt: skip


def read(folder: Path) -> Vocabulary:
    return read_vocabulary(folder, Config({}, "config.json"), 400)


def loaded(vocabulary: Vocabulary) -> Tokenizer:
    metadata = {key: value for key, value, _ in vocabulary.key_values()}
    return load_tokenizer(SimpleNamespace(path=Path("model.gguf"), metadata=metadata))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("normalizer", [None, "NFC"])
def test_ids_are_those_of_tokenizers(normalizer: str | None, seed: int, tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Backend

    draw = random.Random(seed)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tokenizer_json(draw, normalizer)))
    reference, ours = Backend.from_file(str(path)), loaded(read(tmp_path))
    n_compared = 0
    for _ in range(N_TEXTS):
        text = "".join(draw.choices(PARTS, k=draw.randint(0, 12)))
        ids = ours.encode(text, parse_special=True)
        try:
            expected = reference.encode(text, add_special_tokens=False).ids
        except BaseException as error:
            assert "bad split" in str(error)
            continue
        assert ids == expected, repr(text)
        n_compared += 1
    assert n_compared > N_TEXTS // 2


MARKS = ("<mask>", "<|end|>", "<m", "[X]")


def word_pieces(draw: random.Random) -> dict[str, Any]:
    """A WordPiece vocabulary, and some special tokens with random properties."""
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"ab7x-_e²", *("##" + letter for letter in "ab7xe"), "ab", "word"]
    plain = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    added = [{"id": i, "content": vocab[i], "special": True, **plain} for i in range(4)]
    for i, text in enumerate(draw.sample(MARKS, draw.randint(1, len(MARKS))), len(vocab)):
        near = {name: draw.random() < 0.4 for name in ("lstrip", "rstrip", "single_word")}
        added.append({"id": i, "content": text, "special": True, "normalized": False, **near})
    bert = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "post_processor": None,
        "normalizer": {"type": "BertNormalizer", **bert}, "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {text: i for i, text in enumerate(vocab)}},
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_ids_of_word_pieces(seed: int, tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Backend

    draw = random.Random(seed)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(word_pieces(draw)))
    reference, ours = Backend.from_file(str(path)), loaded(read(tmp_path))
    parts = (*MARKS, *MARKS, "word", "x", "ab", " b", " ", "  ", "\t", "7", "_", "-", "e\u0301")
    for _ in range(100):
        text = "".join(draw.choices(parts, k=draw.randint(1, 10)))
        ids = ours.encode(text, add_special=False, parse_special=True)
        assert ids == reference.encode(text, add_special_tokens=False).ids, repr(text)
