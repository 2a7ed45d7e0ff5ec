"""How added tokens are found in text, from Hugging Face's files to GGUF keys."""

import json
from pathlib import Path
from typing import Any

import pytest

from hybrid.convert.checkpoint import Config
from hybrid.convert.tokenizers import Vocabulary, read_vocabulary
from hybrid.quant.ggml.errors import TokenizerError
from hybrid.quant.ggml.pretokenizers import byte_letters
from hybrid.quant.ggml.writer import GGUFWriter

NAMES = [f"hybrid.tokenizer.{name}_token_ids" for name in ("lstrip", "rstrip", "single_word", "normalized")]
N_VOCAB = 300


def added(i: int, text: str, *names: str) -> dict[str, Any]:
    properties = ("special", "lstrip", "rstrip", "single_word", "normalized")
    return {"id": 256 + i, "content": text, **{name: name in names for name in properties}}


def content(*tokens: dict[str, Any], normalizer: str | None = None) -> dict[str, Any]:
    return {
        "model": {"type": "BPE", "vocab": {text: i for i, text in enumerate(sorted(byte_letters()))}, "merges": []},
        "normalizer": normalizer and {"type": normalizer},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "added_tokens": list(tokens),
    }


def read(folder: Path, tokenizer: dict[str, Any], config: dict[str, Any] | None = None) -> Vocabulary:
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(config or {}))
    return read_vocabulary(folder, Config({}, "config.json"), N_VOCAB)


def keys(vocabulary: Vocabulary) -> list[list[int] | None]:
    """The ids under lstrip, rstrip, single_word and normalized."""
    metadata = {key: value for key, value, _ in vocabulary.key_values()}
    return [metadata.get(name) for name in NAMES]


def test_keys(tmp_path: Path) -> None:
    """The file's own ids; no keys if readers find the same ids without them."""
    one, two = added(0, "<mask>", "special", "lstrip"), added(1, "<t>", "rstrip", "single_word", "normalized")
    assert keys(read(tmp_path, content(one, two))) == [[256], [257], [257], [257]]
    plain, normal = added(0, "<t>"), added(1, "  ", "normalized")
    assert keys(read(tmp_path, content(plain, normal))) == [None] * 4
    assert keys(read(tmp_path, content(plain, normal, normalizer="NFC"))) == [None] * 4
    assert keys(read(tmp_path, content(plain, normal, one))) == [[256], None, None, [257]]
    accented = added(2, "é", "normalized")
    assert keys(read(tmp_path, content(plain, accented))) == [None] * 4
    assert keys(read(tmp_path, content(plain, accented, normalizer="NFC"))) == [None, None, None, [258]]


def test_tokenizer_config_knows_more(tmp_path: Path) -> None:
    tokenizer = content(added(0, "<mask>", "special", "lstrip", "rstrip"), added(1, "<t>"))
    decoder = {
        "256": {"content": "<mask>", "special": True, "rstrip": True},
        "257": {"content": "<t>", "single_word": True},  # normalized unless it says otherwise
        "258": {"content": "<new>", "special": True, "lstrip": True},
    }
    assert keys(read(tmp_path, tokenizer, {"added_tokens_decoder": decoder})) == [[258], [256], [257], [257]]


def test_a_gguf_file_hands_them_on(tmp_path: Path) -> None:
    vocabulary = read(tmp_path, content(added(0, "<mask>", "special", "lstrip")))
    path = tmp_path / "other.gguf"
    for ids in ([256], [N_VOCAB], 256):
        with GGUFWriter(path, "llama") as writer:
            for key, value, kind in vocabulary.key_values():
                writer.add(key, ids if key == NAMES[0] else value, None if key == NAMES[0] else kind)
        if ids == [256]:
            other = read_vocabulary(path, Config({}, "config.json"), N_VOCAB)
            assert keys(other) == [[256], None, None, None]
        else:
            with pytest.raises(TokenizerError, match=f"{NAMES[0]} = .*, but the model has {N_VOCAB} tokens"):
                read_vocabulary(path, Config({}, "config.json"), N_VOCAB)


def test_tokens_of_normalized_text_are_noted(tmp_path: Path) -> None:
    """Readers of this kind search for them in raw text."""
    letters = {f"<0x{i:02X}>": i for i in range(256)}
    tokenizer = content(added(0, "<t>", "normalized"), added(1, "<s>", "special"))
    tokenizer["model"] |= {"vocab": letters | {"▁": 256 + 2}, "byte_fallback": True, "unk_token": "<s>"}
    steps = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    tokenizer |= {"pre_tokenizer": None, "normalizer": {"type": "Sequence", "normalizers": steps}}
    vocabulary = read(tmp_path, tokenizer)
    assert vocabulary.model == "llama"
    notes = [note for note in vocabulary.notes if "normalized text" in note]
    assert notes == [
        "tokenizer.json looks for the added tokens <t> in normalized text; readers look for them in raw text"
    ]
    tokenizer["added_tokens"][0]["normalized"] = False
    assert not [note for note in read(tmp_path, tokenizer).notes if "normalized text" in note]
