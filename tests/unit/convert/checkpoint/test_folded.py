"""Checkpoints with rotated weights give the logits of the weights before the rotation, or are refused by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_models import TOKENIZER
from rotated_checkpoints import BLOCK, EMBEDDING, Rotated

from hybrid.convert import convert, verify
from hybrid.infer import LoadedModel
from hybrid.quant import set_value
from hybrid.quant.ggml.errors import HybridError, Remedy
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType

IDS = [*range(300, 340)]


@pytest.fixture(scope="module")
def model() -> Rotated:
    return Rotated()


def logits(path: Path) -> np.ndarray:
    with LoadedModel.load(path, n_ctx=64, precision="exact") as loaded:
        return loaded.sequence().logits_of(IDS)


@pytest.fixture(scope="module")
def expected(model: Rotated, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    folder = tmp_path_factory.mktemp("plain")
    convert(model.write_plain(folder / "source"), folder / "m.gguf", outtype="f32", tokenizer=TOKENIZER)
    return logits(folder / "m.gguf")


@pytest.mark.parametrize("schema", [1, 2])
def test_an_mlx_pack(schema: int, model: Rotated, expected: np.ndarray, tmp_path: Path) -> None:
    source = model.write_pack(tmp_path / "pack", schema)
    report = convert(source, tmp_path / "m.gguf", tokenizer=TOKENIZER)
    assert any("keep their PQ2_0 blocks" in note for note in report.notes) and report.file_type.name == "PQ2_0"
    verify(source, tmp_path / "m.gguf")
    np.testing.assert_allclose(logits(tmp_path / "m.gguf"), expected, atol=1e-4)
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        kinds = {name: tensor.type for name, tensor in file.tensors.items()}
        assert kinds["token_embd.weight"] is kinds["blk.0.ssm_out.weight"] is GGMLType.PQ2_0
        assert kinds["blk.0.ssm_alpha.weight"] is GGMLType.F32, "as in the pack"
        got = file.f32("token_embd.weight")
    np.testing.assert_array_equal(got, model.rotated(EMBEDDING).astype(np.float32))
    set_value(tmp_path / "m.gguf", "prism.hadamard.block_size", "64")
    with pytest.raises(HybridError, match=r"block_size = 64, expected another by the checkpoint"):
        verify(source, tmp_path / "m.gguf")


def test_an_mlx_pack_in_another_type(model: Rotated, expected: np.ndarray, tmp_path: Path) -> None:
    convert(model.write_pack(tmp_path / "pack"), tmp_path / "m.gguf", outtype="f16", tokenizer=TOKENIZER)
    np.testing.assert_allclose(logits(tmp_path / "m.gguf"), expected, atol=0.01 * np.abs(expected).max())


def test_a_packing_file(model: Rotated, expected: np.ndarray, tmp_path: Path) -> None:
    source = model.write_beside_file(tmp_path / "source")
    convert(source, tmp_path / "m.gguf", tokenizer=TOKENIZER)
    np.testing.assert_allclose(logits(tmp_path / "m.gguf"), expected, atol=1e-4)


def test_an_embedding_that_is_also_the_output(tmp_path: Path) -> None:
    tied = Rotated(tied=True)
    convert(tied.write_plain(tmp_path / "plain"), tmp_path / "plain.gguf", outtype="f32", tokenizer=TOKENIZER)
    convert(tied.write_beside_file(tmp_path / "m", schema_version=3), tmp_path / "m.gguf", tokenizer=TOKENIZER)
    np.testing.assert_allclose(logits(tmp_path / "m.gguf"), logits(tmp_path / "plain.gguf"), atol=1e-4)
    with pytest.raises(HybridError, match="the rotated embedding is the output matrix, which it denies"):
        convert(tied.write_beside_file(tmp_path / "other"), tmp_path / "m.gguf", tokenizer=TOKENIZER)


def test_weights_that_are_not_ternary(model: Rotated, tmp_path: Path) -> None:
    name = model.folded[0]
    kept = model.codes[name].copy()
    try:
        model.codes[name][3, 7] = 3
        source = model.write_pack(tmp_path / "pack")
    finally:
        model.codes[name] = kept
    with pytest.raises(HybridError, match=r"holds weights that are not ternary: a group of 128 has") as caught:
        convert(source, tmp_path / "m.gguf", tokenizer=TOKENIZER)
    assert caught.value.remedy is Remedy.OUTTYPE
    assert not (tmp_path / "m.gguf").exists()
    convert(source, tmp_path / "m.gguf", outtype="f16", tokenizer=TOKENIZER)


PREFIX = "prism.hadamard."


@pytest.mark.parametrize(
    ("keys", "changes", "says"),
    [
        ({"version": 2}, {}, f"{PREFIX}version = 2 is not supported, only 1 is"),
        ({"version": None}, {}, f"has no {PREFIX}version"),
        ({"transform": "haar"}, {}, f"{PREFIX}transform"),
        ({"axis": None}, {}, f"{PREFIX}axis"),
        ({"block_size": 100}, {}, "expected a power of two"),
        ({"sign_values": [1, -1]}, {}, "expected 384 numbers"),
        ({"sign_widths": [100, 284]}, {}, "1 and -1 for rows of multiples of 128"),
        ({"gdn_v_grouped": False}, {}, f"{PREFIX}gdn_v_grouped"),
        ({"scale": 2}, {}, f"{PREFIX}scale = 2 is not understood"),
        ({"weight_names": ["lm_head.weight"]}, {}, "modules and weight_names differ"),
        ({}, {"schema_version": 3}, "schema_version = 3 is not supported"),
        ({}, {"gdn_activation_layout": "tiled"}, "gdn_activation_layout = .tiled. is not supported"),
        ({}, {"hadamard_config": "../hadamard.json"}, "the folder has no such file"),
        ({}, {"modules": [{"path": "lm_head", "block": 64, "embedding": False}]}, "expected blocks of 128 or 0"),
        (
            {},
            {"modules": [{"path": "a", "block": 0, "embedding": False, "scale": 2}]},
            "settings that are not understood",
        ),
    ],
)
def test_packs_that_are_refused(
    keys: dict[str, Any], changes: dict[str, Any], says: str, model: Rotated, tmp_path: Path
) -> None:
    with pytest.raises(HybridError, match=says) as caught:
        convert(model.write_pack(tmp_path / "pack", 2, keys, **changes), tmp_path / "m.gguf", tokenizer=TOKENIZER)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schema_version": 4}, "schema_version = 4 is not supported"),
        ({"kind": "other"}, "kind = .other. is not supported"),
        ({"transform": {"name": "dct", "block_size": BLOCK, "sign_mode": "explicit"}}, "name = .dct. is not supported"),
        ({"signs": {"128": [1]}}, "a list of as many signs as its name says"),
        ({"tensors": []}, "expected a list of objects"),
        ({"schema_version": 3}, "the rotated embedding is not the output matrix, which it denies"),
        ({"offset": 2}, "offset = 2 is not understood"),
        (
            {"tensors": [{"name": EMBEDDING, "axis": -1, "role": "inverse-after-lookup"}]},
            "no matrix has rotated inputs",
        ),
        ({"tensors": [{"name": "lm_head.weight", "axis": 0, "role": "fold-before-matmul"}]}, "axis -1"),
        ({"tensors": [{"name": "model.norm.weight", "axis": -1, "role": "fold-before-matmul"}]}, "is no matrix of"),
    ],
)
def test_packing_files_that_are_refused(changes: dict[str, Any], says: str, model: Rotated, tmp_path: Path) -> None:
    with pytest.raises(HybridError, match=says):
        convert(model.write_beside_file(tmp_path / "source", **changes), tmp_path / "m.gguf", tokenizer=TOKENIZER)


def test_signs_that_differ(model: Rotated, tmp_path: Path) -> None:
    folder = model.write_pack(tmp_path / "pack")
    other = Rotated()
    other.signs = {width: -signs for width, signs in other.signs.items()}
    other.write_pack(tmp_path / "other")
    (folder / "hadamard.json").write_bytes((tmp_path / "other" / "hadamard.json").read_bytes())
    with pytest.raises(HybridError, match=r"\.signs differs from the signs for rows of"):
        convert(folder, tmp_path / "m.gguf", tokenizer=TOKENIZER)
