"""A BERT checkpoint's keys, tensors, tokenizer and pooling as llama.cpp's converter writes them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import ENCODERS
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.convert.tokenizers.wordpiece import read_vocab_txt
from hybrid.infer.evaluate.embed import Embedder, Pooling
from hybrid.quant.ggml.errors import CheckpointError, HybridError, TokenizerError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile


@pytest.fixture
def checkpoint(data_dir: Path, tmp_path: Path) -> Path:
    folder = random_checkpoints.write(ENCODERS["bert"], tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (folder / name).write_bytes((data_dir / "tokenizers" / "wordpiece" / name).read_bytes())
    return folder


def changed(path: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def pool_by(folder: Path, **settings: object) -> None:
    modules = [
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))


def test_keys_and_tensors(checkpoint: Path, tmp_path: Path) -> None:
    pool_by(checkpoint, pooling_mode_cls_token=True, pooling_mode_mean_tokens=False)
    convert(checkpoint, tmp_path / "bert.gguf", outtype="f16")
    with GGUFFile.open(tmp_path / "bert.gguf") as file:
        # as gguf-py's SpecialVocab reads the same folder, and as llama.cpp's class BertModel says
        assert {
            k: v for k, v in file.metadata.items() if k.startswith(("bert.", "tokenizer.")) and np.ndim(v) == 0
        } == {
            "bert.block_count": 3,
            "bert.context_length": 160,
            "bert.embedding_length": 60,
            "bert.feed_forward_length": 104,
            "bert.attention.head_count": 5,
            "bert.attention.layer_norm_epsilon": np.float32(1e-12),
            "bert.attention.causal": False,
            "bert.pooling_type": 2,
            "tokenizer.ggml.token_type_count": 2,
            "tokenizer.ggml.model": "bert",
            "tokenizer.ggml.pre": "bert-bge",
            "tokenizer.ggml.bos_token_id": 2,
            "tokenizer.ggml.eos_token_id": 3,
            "tokenizer.ggml.unknown_token_id": 1,
            "tokenizer.ggml.seperator_token_id": 3,
            "tokenizer.ggml.padding_token_id": 0,
            "tokenizer.ggml.cls_token_id": 2,
            "tokenizer.ggml.mask_token_id": 4,
            "tokenizer.ggml.normalizer.lowercase": True,
            "tokenizer.ggml.add_bos_token": True,
            "tokenizer.ggml.add_eos_token": True,
            "tokenizer.ggml.add_sep_token": False,
        }
        tokens = list(file.get("tokenizer.ggml.tokens"))
        assert tokens[:6] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2581!"]
        vocabulary = json.loads((checkpoint / "tokenizer.json").read_text())["model"]["vocab"]
        assert tokens[vocabulary["##ld"]] == "ld"
        assert tokens[vocabulary["hello"]] == "\u2581hello"
        types = {name: t.type.name for name, t in file.tensors.items()}
        assert types["position_embd.weight"] == types["token_types.weight"] == "F32"
        assert types["token_embd.weight"] == types["blk.0.ffn_up.weight"] == "F16"
        assert len(types) == 5 + 16 * 3
        source = load_file(checkpoint / "model.safetensors")
        np.testing.assert_array_equal(
            file.f32("blk.2.layer_output_norm.bias"), source["encoder.layer.2.output.LayerNorm.bias"]
        )


def test_a_head_that_scores_texts(checkpoint: Path, tmp_path: Path) -> None:
    random_checkpoints.write(ENCODERS["bert-scores"], checkpoint)
    source = load_file(checkpoint / "model.safetensors")
    prefixed = {name if name.startswith("classifier.") else f"bert.{name}": x for name, x in source.items()}
    save_file(prefixed, checkpoint / "model.safetensors")
    report = convert(checkpoint, tmp_path / "a.gguf", outtype="f32")
    assert "llama.cpp gives every token the first type: its scores of pairs differ" in report.notes
    with GGUFFile.open(tmp_path / "a.gguf") as file:
        assert file.get("bert.pooling_type") == 4
        assert list(file.get("bert.classifier.output_labels")) == ["far", "near", "same"]
        for name, target in (("bert.pooler.dense", "cls"), ("classifier", "cls.output")):
            np.testing.assert_array_equal(file.f32(target + ".weight"), prefixed[name + ".weight"])
            np.testing.assert_array_equal(file.f32(target + ".bias"), prefixed[name + ".bias"])
    changed(checkpoint / "config.json", lambda c: c.pop("id2label"))
    with pytest.raises(CheckpointError, match=r"classifier\.weight"):
        convert(checkpoint, tmp_path / "b.gguf")
    changed(checkpoint / "config.json", lambda c: c.update(num_labels=3))
    convert(checkpoint, tmp_path / "b.gguf", outtype="f32")
    with GGUFFile.open(tmp_path / "b.gguf") as file:
        assert list(file.get("bert.classifier.output_labels")) == ["LABEL_0", "LABEL_1", "LABEL_2"]


def test_rerankers_of_jinaai(checkpoint: Path, tmp_path: Path) -> None:
    """Other names, and queries, keys and values in one matrix: the same file."""
    random_checkpoints.write(ENCODERS["roberta-scores"], checkpoint)
    random_checkpoints.pad_positions(checkpoint)
    convert(checkpoint, tmp_path / "plain.gguf")
    parts = {
        "attention.output.dense": "mixer.out_proj", "attention.output.LayerNorm": "norm1", "output.LayerNorm": "norm2",
        "intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2",
    }  # fmt: skip
    tensors, theirs = load_file(checkpoint / "model.safetensors"), {}
    for name, values in tensors.items():
        if "attention.self" in name:
            first = name.replace(name.split(".")[5], "query")
            own = [tensors[first.replace("query", part)] for part in ("query", "key", "value")]
            layer, _, kind = first.partition("attention.self.query.")
            name, values = f"{layer}mixer.Wqkv.{kind}", np.concatenate(own)
        for ours, part in parts.items():
            name = name.replace("." + ours, "." + part) if name.startswith("encoder.") else name
        name = name.replace("embeddings.LayerNorm", "emb_ln").replace("encoder.layer.", "encoder.layers.")
        theirs[name if name.startswith("classifier.") else f"roberta.{name}"] = values
    assert "roberta.encoder.layers.1.mlp.fc2.bias" in theirs and "roberta.encoder.layers.0.norm1.weight" in theirs
    save_file(theirs, checkpoint / "model.safetensors")
    convert(checkpoint, tmp_path / "theirs.gguf")
    with GGUFFile.open(tmp_path / "plain.gguf") as a, GGUFFile.open(tmp_path / "theirs.gguf") as b:
        assert a.tensors.keys() == b.tensors.keys()
        assert all((a.raw(name) == b.raw(name)).all() for name in a.tensors)
    changed(checkpoint / "config.json", lambda c: c.update(lora_adaptations=["retrieval.query"]))
    with pytest.raises(UnsupportedError, match=r"lora_adaptations: adapters that depend on the task"):
        convert(checkpoint, tmp_path / "c.gguf")


@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM"])
def test_older_names_and_heads_for_training(name: str, checkpoint: Path, tmp_path: Path) -> None:
    convert(checkpoint, tmp_path / "new.gguf")
    tensors = load_file(checkpoint / "model.safetensors")
    old = {
        "bert." + key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for key, value in tensors.items()
    }
    old |= {"cls.predictions.bias": np.zeros(3, np.float32), "bert.pooler.dense.bias": np.zeros(3, np.float32)}
    old |= {"bert.embeddings.position_ids": np.arange(160)[None]}
    save_file(old, checkpoint / "model.safetensors")
    changed(checkpoint / "config.json", lambda c: c.update(architectures=[name]))
    report = convert(checkpoint, tmp_path / "old.gguf")
    assert any("left out" in note for note in report.notes)
    with GGUFFile.open(tmp_path / "new.gguf") as new, GGUFFile.open(tmp_path / "old.gguf") as file:
        assert new.tensors.keys() == file.tensors.keys()
        assert all((new.raw(key) == file.raw(key)).all() for key in new.tensors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(hidden_act="relu"), "hidden_act"),
        (lambda c: c.update(position_embedding_type="relative_key"), "position_embedding_type"),
        (lambda c: c.update(is_decoder=True), "is_decoder"),
        (lambda c: c.update(num_attention_heads=7), "num_attention_heads"),
        (lambda c: c.pop("max_position_embeddings"), "max_position_embeddings"),
    ],
)
def test_configs_that_are_refused(change: Callable[[Any], object], message: str, checkpoint: Path) -> None:
    changed(checkpoint / "config.json", change)
    with pytest.raises(HybridError, match=message):
        convert(checkpoint, checkpoint / "bert.gguf")


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ({"pooling_mode_mean_tokens": True}, 1),
        ({"pooling_mode_cls_token": True}, 2),
        ({"pooling_mode_lasttoken": True}, 3),
        ({"pooling_mode": "mean"}, 1),
    ],
)
def test_kinds_of_pooling(settings: dict[str, object], number: int, checkpoint: Path, tmp_path: Path) -> None:
    pool_by(checkpoint, **settings)
    convert(checkpoint, tmp_path / "bert.gguf", vocab_only=True)
    with GGUFFile.open(tmp_path / "bert.gguf") as file:
        assert file.get("bert.pooling_type") == number


def test_pooling_that_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    pool_by(checkpoint, pooling_mode_max_tokens=True, pooling_mode_mean_tokens=False)
    with pytest.raises(UnsupportedError, match=r"1_Pooling/config\.json: pooling by max_tokens is not supported"):
        convert(checkpoint, tmp_path / "bert.gguf")
    (checkpoint / "1_Pooling" / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"modules\.json names 1_Pooling/config\.json, which is not there"):
        convert(checkpoint, tmp_path / "bert.gguf")
    changed(checkpoint / "modules.json", lambda m: m[1].update(path="../elsewhere"))
    with pytest.raises(
        CheckpointError, match=r"modules\.json: the path of .*Pooling is \.\./elsewhere, expected a folder"
    ):
        convert(checkpoint, tmp_path / "bert.gguf")


def test_a_model_that_generates_may_be_meant_for_embeddings(data_dir: Path, tmp_path: Path) -> None:
    """Then texts end with EOS if the tokenizer says so, since nothing is generated after them."""
    folder = random_checkpoints.write(random_checkpoints.CONFIGS["qwen3"], tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((data_dir / "checkpoints" / "mamba-bf16" / name).read_bytes())
    end = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    single = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, end], "pair": []}
    changed(folder / "tokenizer.json", lambda t: t.update(post_processor=single))
    poolings = []
    for pooled in (False, True):
        if pooled:
            pool_by(folder, pooling_mode_lasttoken=True)
        convert(folder, tmp_path / f"{pooled}.gguf", vocab_only=True)
        with GGUFFile.open(tmp_path / f"{pooled}.gguf") as file:
            poolings.append((file.get("tokenizer.ggml.add_eos_token"), file.get("qwen3.pooling_type", None)))
    assert poolings == [(False, None), (True, 3)]


def test_texts_may_end_with_another_token_than_answers(data_dir: Path, tmp_path: Path) -> None:
    """Qwen3-Embedding: answers end with <|im_end|>, texts with <|endoftext|>, whose row is the vector."""
    folder = random_checkpoints.write(random_checkpoints.CONFIGS["qwen3"], tmp_path / "model")
    (folder / "tokenizer.json").write_bytes((data_dir / "tokenizers" / "bpe_qwen.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    end = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    single = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, end], "pair": []}
    changed(folder / "tokenizer.json", lambda t: t.update(post_processor=single))
    pool_by(folder, pooling_mode_lasttoken=True)
    convert(folder, tmp_path / "a.gguf", outtype="f32")
    with Embedder(tmp_path / "a.gguf") as embedder:
        tokenizer = embedder.tokenizer
        assert (tokenizer.eos, tokenizer.eot) == (tokenizer.token("<|endoftext|>"), tokenizer.token("<|im_end|>"))
        (ids,) = embedder.tokens(["how to"])
        assert ids[-1] == tokenizer.token("<|endoftext|>") and tokenizer.token("<|im_end|>") not in ids
        assert embedder.pooling is Pooling.LAST
        assert embedder.embed(["how to", "read"]).shape == (2, 96)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update(pre_tokenizer={"type": "Whitespace"}), "only BertPreTokenizer is"),
        (lambda t: t.update(pre_tokenizer=None), "only BertPreTokenizer is"),
        (lambda t: t.update(normalizer={"type": "NFC"}), "only BertNormalizer is"),
        (lambda t: t["model"].update(continuing_subword_prefix="@@"), "go on with @@ are not supported"),
        (lambda t: t["model"].update(vocab=[]), "not an object of tokens"),
    ],
)
def test_tokenizers_that_are_refused(change: Callable[[Any], object], message: str, checkpoint: Path) -> None:
    changed(checkpoint / "tokenizer.json", change)
    with pytest.raises(HybridError, match=message) as error:
        convert(checkpoint, checkpoint / "bert.gguf")
    assert "\n" not in str(error.value)


def test_what_the_normalizer_does_is_said(checkpoint: Path, tmp_path: Path) -> None:
    changed(checkpoint / "tokenizer.json", lambda t: t["normalizer"].update(lowercase=False, strip_accents=True))
    changed(checkpoint / "tokenizer.json", lambda t: t["normalizer"].update(clean_text=False))
    report = convert(checkpoint, tmp_path / "bert.gguf", vocab_only=True)
    assert any("clean_text = false" in note for note in report.notes)
    with GGUFFile.open(tmp_path / "bert.gguf") as file:
        assert file.get("tokenizer.ggml.normalizer.lowercase") is False
        assert file.get("tokenizer.ggml.normalizer.strip_accents") is True


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[UNK]\nword\nword\n", "has a token twice"),
        (b"[UNK]\n\nword\n", "or an empty line"),
        (b"[UNK]\n\xff\n", "is not UTF-8: byte 6 is wrong"),
    ],
)
def test_a_damaged_vocab_txt(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(TokenizerError, match=message):
        read_vocab_txt(tmp_path / "vocab.txt")
