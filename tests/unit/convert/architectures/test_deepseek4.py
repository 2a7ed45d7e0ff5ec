"""DeepSeek-V4: its config, and published checkpoints in FP8 and MXFP4."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
import random_heads
from mxfp4_checkpoints import FILE, publish_deepseek4
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert, plan, verify
from hybrid.convert.architectures import Family
from hybrid.infer import LoadedModel
from hybrid.quant import quantize
from hybrid.quant.ggml.errors import CheckpointError, HybridError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType, GGMLType

CSA, HCA, WINDOW = "compressed_sparse_attention", "heavily_compressed_attention", "sliding_attention"
RATIOS = "attention.compress_ratios"
TABLE = "layers.0.ffn.gate.tid2eid"


def family(name: str = "deepseek4-yarn", **change: Any) -> Family:
    config = {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS[name], **change}
    return random_checkpoints.family_for({key: value for key, value in config.items() if value is not ...})


def keys(name: str = "deepseek4-yarn", **change: Any) -> dict[str, Any]:
    return dict(family(name, **change).keys(FileType.F32))


def test_kinds_of_layers_in_every_spelling() -> None:
    assert keys()[RATIOS] == [4, 128, 0, 4]
    assert keys(layer_types=[WINDOW, CSA, CSA, HCA])[RATIOS] == [0, 4, 4, 128]
    assert keys(compress_ratios=...)[RATIOS] == [128, 128, 128, 4], "transformers' default"
    assert keys("deepseek4")[RATIOS] == [3, 0, 7, 3, 7]
    assert keys(compress_rate_hca=16, compress_rate_csa=8)[RATIOS] == [8, 16, 0, 8]


def test_layers_whose_experts_go_by_tokens() -> None:
    assert keys()["hash_layer_count"] == 1 and keys("deepseek4")["hash_layer_count"] == 2
    assert keys(num_hash_layers=...)["hash_layer_count"] == 3, "transformers' default"
    targets = [row.target for row in family(num_hash_layers=2).rows()]
    assert [f"blk.{i}.ffn_gate_tid2eid.weight" in targets for i in range(3)] == [True, True, False]
    assert [f"blk.{i}.exp_probs_b.bias" in targets for i in range(3)] == [False, False, True]


def test_rope_of_both_kinds_of_layers() -> None:
    written = keys()
    assert (written["rope.freq_base"], written["attention.compress_rope_freq_base"]) == (1e4, 1.6e5)
    assert (written["rope.scaling.type"], written["rope.scaling.factor"]) == ("yarn", 4)
    assert written["rope.dimension_count"] == 16
    assert "rope.scaling.attn_factor" not in written, "cos and sin are no larger"
    yarn = CONFIGS["deepseek4-yarn"]["rope_scaling"]
    assert keys(rope_scaling={**yarn, "attention_factor": 1.2})["rope.scaling.attn_factor"] == 1.2
    assert "rope.scaling.type" not in keys("deepseek4")
    assert keys("deepseek4")["rope.dimension_count"] == 12


@pytest.mark.parametrize(
    ("name", "change", "note"),
    [
        ("deepseek4", {}, "cannot load this file: entries of 3 tokens and 7 tokens, there of 4 and 128"),
        ("deepseek4", {}, "cannot run this file: it has 3 residual streams, there 4"),
        (
            "deepseek4-yarn",
            {"rope_scaling": {**CONFIGS["deepseek4-yarn"]["rope_scaling"], "attention_factor": 1.2}},
            "takes attention_factor = 1, not 1.2",
        ),
    ],
)
def test_notes_on_llama_cpp(name: str, change: dict[str, Any], note: str) -> None:
    assert any(note in line for line in family(name, **change).notes())
    assert not list(family().notes())


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"compress_ratios": [4, 64, 0, 4]}, CheckpointError, r"compress_ratios.*0, 4 or 128 for each of 4 layers"),
        ({"compress_ratios": [4, 128]}, CheckpointError, r"compress_ratios.*0, 4 or 128 for each of 4 layers"),
        ({"mlp_layer_types": ["moe", "hash_moe", "moe", "moe"]}, CheckpointError, "hash_moe on the first layers alone"),
        ({"o_groups": 3}, CheckpointError, "o_groups = 3.*a divisor of the 256 values of all heads"),
        ({"index_head_dim": 12}, CheckpointError, "index_head_dim = 12.*at least 16, the values that turn"),
        ({"qk_rope_head_dim": 17}, CheckpointError, "qk_rope_head_dim = 17.*a positive even number of values"),
        ({"scoring_func": "softmax"}, UnsupportedError, "scoring_func"),
        ({"norm_topk_prob": False}, UnsupportedError, "norm_topk_prob"),
        ({"n_shared_experts": 2}, UnsupportedError, "n_shared_experts"),
        ({"num_key_value_heads": 2}, UnsupportedError, "num_key_value_heads"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, UnsupportedError, "linear"),
        (
            {
                "rope_parameters": {
                    "main": {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
                    "compress": {"rope_theta": 1e4, "partial_rotary_factor": 0.25},
                }
            },
            CheckpointError,
            "partial_rotary_factor = 0.25.*0.5, as in main",
        ),
        (
            {
                "rope_parameters": {
                    "main": {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
                    "compress": {"rope_theta": 1e4, "partial_rotary_factor": 0.5, "rope_type": "yarn", "factor": 2},
                }
            },
            UnsupportedError,
            "YaRN without attention_factor",
        ),
    ],
)
def test_what_it_refuses(change: dict[str, Any], error: type[HybridError], says: str) -> None:
    with pytest.raises(error, match=says):
        family(**change)


@pytest.fixture
def published(tmp_path: Path) -> tuple[Path, Path]:
    """A random model in the published form, and the same model in F32."""
    folders = tmp_path / "published", tmp_path / "plain"
    for folder in folders:
        random_checkpoints.write(CONFIGS["deepseek4-yarn"], folder)
    save_file(publish_deepseek4(folders[0], 24), folders[1] / FILE)
    return folders


def test_published_checkpoints(published: tuple[Path, Path], tmp_path: Path, data_dir: Path) -> None:
    """Experts stay MXFP4; FP8 becomes BF16, which holds its values; the logits equal those in F32."""
    tokenizer, ids, got = data_dir / "checkpoints" / "mamba-bf16", list(range(300, 330)), []
    report = convert(published[0], tmp_path / "published.gguf", outtype="bf16", tokenizer=tokenizer)
    assert report.file_type is FileType.MXFP4_MOE
    assert any("tensors of experts are mxfp4, and stay so" in note for note in report.notes)
    assert not any("unknown" in note for note in report.notes)
    verify(published[0], tmp_path / "published.gguf")
    convert(published[1], tmp_path / "plain.gguf", outtype="f32", tokenizer=tokenizer)
    stored = load_file(published[1] / FILE)
    with GGUFFile.open(tmp_path / "published.gguf") as file, GGUFFile.open(tmp_path / "plain.gguf") as plain:
        kinds = {name: tensor.type for name, tensor in file.tensors.items()}
        assert kinds["blk.1.ffn_down_exps.weight"] is GGMLType.MXFP4
        assert kinds["blk.1.attn_q_b.weight"] is kinds["blk.1.ffn_up_shexp.weight"] is GGMLType.BF16
        assert kinds["blk.0.ffn_gate_tid2eid.weight"] is GGMLType.I32
        small = ("hc_attn_fn", "hc_ffn_base", "attn_sinks", "attn_compressor_ape", "indexer_compressor_ape")
        assert {kinds[f"blk.0.{part}.weight"] for part in (*small, "ffn_gate_inp")} == {GGMLType.F32}
        for name in ("ffn_gate_exps", "attn_output_a", "attn_kv"):
            np.testing.assert_array_equal(file.f32(f"blk.2.{name}.weight"), plain.f32(f"blk.2.{name}.weight"))
        table = file.f32("blk.0.ffn_gate_tid2eid.weight")
        np.testing.assert_array_equal(table, stored[TABLE].astype(np.float32))
    for name in ("published", "plain"):
        with LoadedModel.load(tmp_path / f"{name}.gguf", n_ctx=64, precision="exact") as model:
            got.append(model.sequence().logits_of(ids))
    assert np.abs(got[0] - got[1]).max() < 2e-5 * np.abs(got[1]).max()


def test_quantized(published: tuple[Path, Path], tmp_path: Path, data_dir: Path) -> None:
    """Small tensors and tensors that are no matrices stay unchanged, the table included."""
    before, after = tmp_path / "before.gguf", tmp_path / "after.gguf"
    convert(published[1], before, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    quantize(before, after, "Q8_0")
    with GGUFFile.open(before) as old, GGUFFile.open(after) as new:
        kinds = {name: tensor.type for name, tensor in new.tensors.items()}
        table = "blk.0.ffn_gate_tid2eid.weight"
        assert kinds[table] is GGMLType.I32 and new.raw(table).tobytes() == old.raw(table).tobytes()
        left = [n for n in kinds if any(part in n for part in ("hc_", "_ape.", "ffn_gate_inp", "norm", "sinks"))]
        assert {kinds[name] for name in left} == {GGMLType.F32}
        large = ("attn_q_b", "attn_output_a", "indexer.attn_q_b", "attn_compressor_kv", "ffn_up_exps")
        assert {kinds[f"blk.0.{part}.weight"] for part in large} == {GGMLType.Q8_0}


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        (TABLE, np.zeros((random_checkpoints.N_VOCAB, 2), np.float32), "tid2eid is of type F32, expected integers"),
        (TABLE, np.zeros((9, 2), np.int64), r"tid2eid has shape \[9, 2\], expected \[2023, 2\]"),
        (TABLE, np.full((random_checkpoints.N_VOCAB, 2), 1 << 40), "tid2eid has integers beyond 32 bits"),
    ],
)
def test_tables_that_do_not_fit(name: str, values: np.ndarray, says: str, tmp_path: Path, data_dir: Path) -> None:
    folder = random_checkpoints.write(CONFIGS["deepseek4-yarn"], tmp_path / "model")
    save_file({**load_file(folder / FILE), name: values}, folder / FILE)
    with pytest.raises(HybridError, match=says):
        convert(folder, tmp_path / "m.gguf", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    assert not (tmp_path / "m.gguf").exists()


def test_scales_that_do_not_fit(published: tuple[Path, Path]) -> None:
    """The shape differs, the number of bytes does not."""
    data, right = (published[0] / FILE).read_bytes(), b'experts.0.w2.scale": {"dtype": "F8_E8M0", "shape": [64, 1]'
    assert right in data
    (published[0] / FILE).write_bytes(data.replace(right, right.replace(b"[64, 1]", b"[32, 2]")))
    says = r"experts\.0\.w2\.scale is F8_E8M0 \[32, 2\], expected U8 \[64, 1\]"
    with pytest.raises(CheckpointError, match=says):
        plan(published[0])


def test_an_expert_that_there_is_not(tmp_path: Path, data_dir: Path) -> None:
    folder = random_checkpoints.write(CONFIGS["deepseek4-yarn"], tmp_path / "model")
    tensors = load_file(folder / FILE)
    tensors[TABLE][7, 1] = 6
    save_file(tensors, folder / FILE)
    convert(folder, tmp_path / "m.gguf", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    with pytest.raises(HybridError, match=r"tid2eid\.weight has values from 0 to 6, expected the numbers of 6 experts"):
        LoadedModel.load(tmp_path / "m.gguf")


def test_a_head_that_guesses_ahead_as_it_is_published(tmp_path: Path, data_dir: Path) -> None:
    """The head is a block after the layers, its FP8 and MXFP4 as published; the two joining projections become one
    matrix."""
    folder, path = random_heads.write("deepseek4-yarn-mtp", tmp_path / "model"), tmp_path / "model.gguf"
    meant = publish_deepseek4(folder, 24)
    report = convert(folder, path, outtype="bf16", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    assert not any("left out" in note or "cannot" in note for note in report.notes)
    verify(folder, path)
    with GGUFFile.open(path) as file:
        assert [file.get(f"deepseek4.{name}") for name in ("block_count", "nextn_predict_layers")] == [5, 1]
        assert file.get("deepseek4." + RATIOS).tolist() == [4, 128, 0, 4, 0]
        assert len(file.get("deepseek4.swiglu_clamp_exp")) == 5
        halves = [meant[f"mtp.0.{part}_proj.weight"] for part in "eh"]
        np.testing.assert_array_equal(file.f32("blk.4.nextn.eh_proj.weight"), np.concatenate(halves, axis=1))
        np.testing.assert_array_equal(file.f32("blk.4.nextn.hc_head_fn.weight"), meant["mtp.0.hc_head_fn"])
        kinds = {name: tensor.type for name, tensor in file.tensors.items()}
        assert kinds["blk.4.nextn.eh_proj.weight"] is GGMLType.BF16
        assert kinds["blk.4.ffn_up_exps.weight"] is GGMLType.MXFP4
        assert kinds["blk.4.nextn.hc_head_fn.weight"] is GGMLType.F32
        assert "blk.4.exp_probs_b.bias" in kinds and not any(name.startswith("blk.4.attn_compressor") for name in kinds)


@pytest.mark.parametrize("without", ["asked", "another head"])
def test_heads_that_are_left_out(without: str, tmp_path: Path, data_dir: Path) -> None:
    """On request, and if they guess in another way, as in later models."""
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    folder = random_heads.write("deepseek4-yarn-mtp", tmp_path / "model")
    if without == "another head":
        tensors = load_file(folder / FILE)
        save_file({name.replace(".e_proj.", ".main_proj."): x for name, x in tensors.items()}, folder / FILE)
    report = convert(folder, tmp_path / "a.gguf", outtype="f32", tokenizer=tokenizer, heads=without != "asked")
    assert any("mtp.0." in note and "left out" in note for note in report.notes)
    plain = random_checkpoints.write(CONFIGS["deepseek4-yarn"], tmp_path / "plain" / "model")
    tensors = load_file(folder / FILE)
    save_file({name: x for name, x in tensors.items() if not name.startswith("mtp.")}, plain / FILE)
    convert(plain, tmp_path / "b.gguf", outtype="f32", tokenizer=tokenizer)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
