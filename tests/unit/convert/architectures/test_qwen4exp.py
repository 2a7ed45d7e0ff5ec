"""Qwen3.8-Flash-Next: the table of n-grams, the hashing of tokens, configs of several kinds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
import random_heads
from random_checkpoints import CONFIGS
from reference import qwen4_exp as twin
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert, plan, verify
from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile

P = "model.layers.2.ple.ple_embedding."
SIZES = [37, 41, 43, 47, 53, 59]  # the primes from 37 on
N_ROW = 286  # their sum is 280, a multiple of 11
BUFFERS = {
    "layer_multipliers": [(1 << 45) + 1, 3, 1 << 44, 7],
    "ngram_heads_vocab_sizes": [7, 11, 13, 17, 19, 23],
    "ngram_heads_offsets": [0, 7, 18, 31, 48, 263],
}
KEYS = {
    "layer_multipliers": "layer_multipliers",
    "ngram_heads_vocab_sizes": "head_vocab_sizes",
    "ngram_heads_offsets": "head_offsets",
}


@pytest.fixture
def written(tmp_path: Path, data_dir: Path) -> Callable[..., Path]:
    """written(change, **tensors) -> folder of the checkpoint with a tokenizer; None leaves a tensor out."""

    def make(change: dict[str, Any] | None = None, **tensors: np.ndarray | None) -> Path:
        folder = random_checkpoints.write({**CONFIGS["qwen4exp"], **(change or {})}, tmp_path / "model")
        (folder / "tokenizer.json").write_bytes((data_dir / "checkpoints/mamba-bf16/tokenizer.json").read_bytes())
        found = {**load_file(folder / "model.safetensors"), **tensors}
        save_file({name: x for name, x in found.items() if x is not None}, folder / "model.safetensors")
        return folder

    return make


def converted(folder: Path) -> GGUFFile:
    path = convert(folder, folder / "o.gguf", outtype="f32").output
    verify(folder, path)
    return GGUFFile.open(path)


def hashes(file: GGUFFile) -> list[list[int]]:
    values = [file.get(f"qwen4exp.ple.{name}") for name in KEYS.values()]
    assert all(x.dtype == np.uint64 for x in values)
    return [x.tolist() for x in values]


def test_the_table_is_in_pieces(written: Callable[..., Path]) -> None:
    """Pieces of 72, 72, 72 and 70 rows."""
    folder = written()
    pieces = load_file(folder / "model.safetensors")
    shards = [pieces[f"{P}ngram_embedding.shard_{i}.weight"] for i in range(4)]
    assert [len(shard) for shard in shards] == [72, 72, 72, 70]
    with converted(folder) as file:
        np.testing.assert_array_equal(file.f32("per_layer_token_embd.weight"), np.concatenate(shards))
        factors, sizes, offsets = twin.constants(random_config(), 0)
        assert hashes(file) == [factors, sizes, offsets]
        assert sizes == SIZES and file.get("qwen4exp.ple.layers").tolist() == [2]


def random_config() -> dict[str, Any]:
    return {"vocab_size": random_checkpoints.N_VOCAB, **CONFIGS["qwen4exp"]}


def test_a_table_as_transformers_holds_it(written: Callable[..., Path]) -> None:
    table = np.random.default_rng(0).standard_normal((N_ROW, 15)).astype(np.float32)
    pieces = {f"{P}ngram_embedding.shard_{i}.weight": None for i in range(4)}
    with converted(written(None, **pieces, **{P + "ngram_embedding.weight": table})) as file:
        np.testing.assert_array_equal(file.f32("per_layer_token_embd.weight"), table)


def test_names_of_a_model_that_sees_pictures(written: Callable[..., Path]) -> None:
    """As published: a prefix for the text model, its config inside another, layers that are left out."""
    with converted(folder := written(None, **{P + name: np.array(x, np.int64) for name, x in BUFFERS.items()})) as file:
        plain = {name: file.raw(name).tobytes() for name in file.tensors}
    tensors = load_file(folder / "model.safetensors")
    renamed = {name.replace("model.", "model.language_model.", 1): x for name, x in tensors.items()}
    more = {"mtp.fc.weight": np.ones((3, 3), np.float32), "model.visual.proj.weight": np.ones((3, 3), np.float32)}
    save_file({**renamed, **more}, folder / "model.safetensors")
    text = {**json.loads((folder / "config.json").read_text()), "architectures": None}
    outer = {"architectures": ["Qwen4ExpForConditionalGeneration"], "text_config": text, "image_token_id": 77}
    (folder / "config.json").write_text(json.dumps(outer))
    with converted(folder) as file:
        assert {name: file.raw(name).tobytes() for name in file.tensors} == plain
        assert hashes(file) == list(BUFFERS.values())
        assert file.get("qwen4exp.ple.image_token_id") == 77


def test_numbers_of_the_checkpoint_count(written: Callable[..., Path]) -> None:
    """The file has the checkpoint's numbers exactly, whatever the config implies."""
    with converted(written(None, **{P + name: np.array(x, np.int64) for name, x in BUFFERS.items()})) as file:
        assert hashes(file) == list(BUFFERS.values())


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("ngram_heads_offsets", np.array([0, 7, 18, 31, 48, 264]), "23 rows from 264 on, expected a part of the 286"),
        ("ngram_heads_vocab_sizes", np.array([0, 11, 13, 17, 19, 23]), "0 rows from 0 on"),
        ("layer_multipliers", np.array([1, 3, 5]), r"I64 of shape \[3\], expected 4 numbers"),
        ("layer_multipliers", np.array([1, 3, 5, 7.0], np.float32), "expected 4 numbers of type I64"),
        ("layer_multipliers", np.array([1, 3, 5, -7]), "has the number -7"),
    ],
)
def test_impossible_numbers(name: str, values: np.ndarray, message: str, written: Callable[..., Path]) -> None:
    given = {P + key: np.array(x, np.int64) for key, x in BUFFERS.items()} | {P + name: values}
    with pytest.raises(CheckpointError, match=message):
        plan(written(None, **given))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"shard_3": None}, "has 3 pieces of its table of n-grams with 216 rows, expected 4 with 286"),
        ({"shard_3": np.zeros((71, 15), np.float32)}, "4 pieces of its table of n-grams with 287 rows"),
        ({"shard_1": np.zeros((72, 14), np.float32)}, r"has shape \[72, 14\], expected \[72, 15\]"),
    ],
)
def test_another_table(tensors: dict[str, Any], message: str, written: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match=message):
        plan(written(None, **{f"{P}ngram_embedding.{name}.weight": x for name, x in tensors.items()}))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"indexer_kv_heads": 2}, UnsupportedError, "indexer_kv_heads = 2 is not supported, only 1 is"),
        ({"indexer_budget": 10}, CheckpointError, "indexer_budget = 10.*multiple of indexer_compress_ratio = 3"),
        ({"indexer_head_dim": 10}, CheckpointError, "indexer_head_dim = 10.*at least the 12 values that RoPE turns"),
        ({"indexer_n_heads": None}, CheckpointError, "has no indexer_n_heads"),
        ({"hc_count": 1}, CheckpointError, "hc_count = 1.*from 2 to 64"),
        ({"output_gate_type": "tanh"}, UnsupportedError, "output_gate_type = 'tanh' is not supported, only silu or"),
        ({"hidden_act": "gelu"}, UnsupportedError, 'hidden_act = "gelu"'),
        ({"ple_layer_ids": [1, 3]}, UnsupportedError, r"ple_layer_ids = \[1, 3\] is not supported, only one layer"),
        ({"ple_layer_ids": [2]}, CheckpointError, "ple_layer_ids = .*a layer of linear attention"),
        ({"ple_layer_ids": [5]}, CheckpointError, "ple_layer_ids = .*numbers of layers from 1 to 4"),
        ({"ple_layer_ids": 3}, CheckpointError, "ple_layer_ids = 3.*numbers of layers"),
        ({"ple_embed_dim": 91}, CheckpointError, "ple_embed_dim = 91.*a multiple of the 6 rows"),
        ({"eos_token_id": None}, CheckpointError, "has no eos_token_id|eos_token_id = null"),
        ({"eos_token_id": [-1]}, CheckpointError, "eos_token_id = .*which ends n-grams"),
        ({"layer_types": ["full_attention"] * 3}, CheckpointError, "layer_types = .*4 times linear_attention or full"),
        ({"linear_num_value_heads": 5}, CheckpointError, "a multiple of linear_num_key_heads = 2"),
        ({"num_experts_per_tok": 6}, CheckpointError, "num_experts_per_tok = 6.*from 1 to 5"),
    ],
)
def test_impossible_configs(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        random_checkpoints.family_for({**random_config(), **change})


def test_both_names_of_indexed_attention() -> None:
    types = [kind.replace("indexed", "full") for kind in random_config()["layer_types"]]
    published = random_checkpoints.family_for({**random_config(), "layer_types": types})
    assert published == random_checkpoints.family_for(random_config())
    assert published.attention == (False, True, False, True)


def test_as_llama_cpp_runs_it() -> None:
    """The published model differs in the choice of groups only."""
    config = {
        **random_config(),
        "linear_key_head_dim": 20,
        "norm_topk_prob": True,
        "output_gate_type": "sigmoid",
        "ple_embed_dim": 72,
        "eos_token_id": 3,
    }
    (note,) = random_checkpoints.family_for(config).notes()
    assert "in texts of 12 tokens and more" in note


def test_a_head_that_guesses_ahead(tmp_path: Path, data_dir: Path) -> None:
    """A block after the layers, with a norm of the state over all streams, and the remaining parts of its streams."""
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    folder = random_heads.write("qwen4exp-mtp", tmp_path / "model")
    stored = load_file(folder / "model.safetensors")
    for heads in (True, False):
        report = convert(folder, tmp_path / f"{heads}.gguf", outtype="f32", tokenizer=tokenizer, heads=heads)
        assert any("knows no heads that guess tokens ahead" in note for note in report.notes) == heads
        assert any("mtp." in note and "left out" in note for note in report.notes) != heads
    verify(folder, tmp_path / "True.gguf")
    with GGUFFile.open(tmp_path / "True.gguf") as file, GGUFFile.open(tmp_path / "False.gguf") as plain:
        assert [file.get(f"qwen4exp.{name}") for name in ("block_count", "nextn_predict_layers")] == [5, 1]
        assert file.get("qwen4exp.attention.compress_ratios").tolist() == [0, 3, 0, 3, 0]
        assert file.get("qwen4exp.attention.recurrent_layers").tolist() == [True, False, True, False, False]
        halves = [stored[f"mtp.fc_{part}.weight"] for part in ("embedding", "hidden")]
        np.testing.assert_array_equal(file.f32("blk.4.nextn.eh_proj.weight"), np.concatenate(halves, axis=1))
        norm = stored["mtp.pre_fc_norm_hidden.weight"]
        np.testing.assert_allclose(file.f32("blk.4.nextn.hnorm.weight"), norm + 1, rtol=1e-6)
        own = {name for name in file.tensors if name.startswith("blk.4.")}
        assert {f"blk.4.nextn.hc_head_{part}.weight" for part in ("norm", "down", "up")} < own
        assert "blk.4.indexer.q_proj.weight" in own and "blk.4.hc_attn_inject.weight" in own
        assert plain.tensors.keys() == file.tensors.keys() - own and plain.get("qwen4exp.block_count") == 4
