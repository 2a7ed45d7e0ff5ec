"""Models of rotated ternary weights against logits computed in float64 from the files (tests/data/rotated).

Two random Qwen3.5 models: v1 has a matrix of its own for the output, value heads in the checkpoint's order (6 on 2) and
blocks of 128 in rows of three lengths; v2-tied has one block in a row, and the embedding is also the output matrix.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from hybrid.infer import LoadedModel
from hybrid.quant import quantize
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.rotation import EMBEDDING, PREFIX, rotation_of
from hybrid.quant.ggml.types import FileType, GGMLType
from hybrid.quant.ggml.writer import GGUFWriter
from hybrid.quant.lora import merge_lora

DATA = Path(__file__).resolve().parents[1] / "data" / "rotated"
TOLERANCE = 5e-5  # float32 of transformers with the same weights differs by 3.2e-5
NAMES = ("v1", "v2-tied")


def in_pq2_0(name: str, folder: Path) -> Path:
    """The same codes in the other type."""
    target = folder / "pq2_0.gguf"
    quantize(DATA / name / "model-ptq1_0.gguf", target, FileType.PQ2_0)
    return target


@pytest.mark.parametrize("kind", [GGMLType.PTQ1_0, GGMLType.PQ2_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", NAMES)
def test_logits_and_greedy_tokens(name: str, kind: GGMLType, tmp_path: Path) -> None:
    folder = DATA / name
    path = folder / "model-ptq1_0.gguf" if kind is GGMLType.PTQ1_0 else in_pq2_0(name, tmp_path)
    meta, expected = json.loads((folder / "meta.json").read_text()), np.load(folder / "logits.npz")
    with LoadedModel.load(path, n_ctx=128, precision="exact", n_seq_max=2) as model:
        assert model.gguf.info("blk.0.ffn_up.weight").type is kind
        for at, wanted in zip((0, 1, 31, 63), expected["p64"], strict=True):
            seq = model.sequence()
            np.testing.assert_allclose(seq.prefill(meta["prompts"]["p64"][: at + 1]), wanted, atol=TOLERANCE)
            seq.close()
        seq = model.sequence()
        logits = seq.prefill(meta["prompts"]["short"])
        np.testing.assert_allclose(logits, expected["short"], atol=TOLERANCE)
        for token in meta["greedy"]["short"] if isinstance(meta["greedy"], dict) else meta["greedy"]:
            assert int(np.argmax(logits)) == token
            logits = seq.prefill([token])
        seq.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_however_a_text_is_divided(name: str) -> None:
    ids = json.loads((DATA / name / "meta.json").read_text())["prompts"]["p64"]
    with LoadedModel.load(DATA / name / "model-ptq1_0.gguf", n_ctx=128) as model:
        whole = model.sequence()
        expected = np.array(whole.prefill(ids))
        whole.close()
        for sizes in ([64 - 7, 7], [1] * 64, [30, 1, 33]):
            seq, at = model.sequence(), 0
            for size in sizes:
                logits = seq.prefill(ids[at : at + size])
                at += size
            np.testing.assert_array_equal(logits, expected)
            seq.close()


def transformed(x: np.ndarray, block: int) -> np.ndarray:
    """The normalized Walsh-Hadamard transform of each run of `block` values in the rows of x."""
    i = np.arange(block)
    signs = 1 - 2.0 * (np.bitwise_count(i[:, None] & i) % 2)
    return (x.reshape(len(x), -1, block).astype(np.float64) @ signs / np.sqrt(block)).reshape(x.shape)


def unrotated(path: Path, target: Path) -> Path:
    """The model with its weights in F32 and in the basis of the checkpoint."""
    with GGUFFile.open(path) as file, GGUFWriter(target, None) as writer:
        rotation = rotation_of(file)
        assert rotation is not None
        for key in file.metadata:
            if not key.startswith(PREFIX):
                writer.add_raw(key, file)
        for t in file.tensors.values():
            writer.declare(t.name, t.shape, GGMLType.F32)
        for t in file.tensors.values():
            values = file.f32(t.name)
            if t.name in rotation.folded or t.name == EMBEDDING:
                n = t.shape[-1]
                own = (transformed(values, rotation.block) * rotation.signs[n]).astype(np.float32)
                places = rotation.places(t.name, n)
                values = np.empty_like(own)
                values[:, slice(None) if places is None else places] = own
            writer.write(t.name, [np.ascontiguousarray(values).view(np.uint8)])
    return target


def adapter(path: Path, model: Path) -> Path:
    """A random adapter of rank 2 for some matrices."""
    rng = np.random.default_rng(5)
    names = ("blk.0.ssm_out", "blk.0.ffn_down", "blk.1.attn_q", "blk.1.ffn_gate")
    with GGUFFile.open(model) as file, GGUFWriter(path, "qwen35") as writer:
        writer.add("general.type", "adapter")
        writer.add("adapter.type", "lora")
        writer.add("adapter.lora.alpha", 2.0)
        shapes = {name: file.info(f"{name}.weight").shape for name in names}
        thin = {f"{name}.weight.lora_a": (2, n) for name, (_, n) in shapes.items()}
        thin |= {f"{name}.weight.lora_b": (rows, 2) for name, (rows, _) in shapes.items()}
        for name, shape in thin.items():
            writer.declare(name, shape, GGMLType.F32)
        for name, shape in thin.items():
            values = rng.standard_normal(shape) / np.sqrt(shape[-1])
            writer.write(name, [values.astype(np.float32).view(np.uint8)])
    return path


def test_adapters_of_rotated_weights(tmp_path: Path) -> None:
    """An adapter was trained for the weights of the checkpoint: its inputs are not rotated."""
    path = DATA / "v1" / "model-ptq1_0.gguf"
    lora, ids = adapter(tmp_path / "lora.gguf", path), list(range(100, 140))
    logits = []
    for model in (path, unrotated(path, tmp_path / "plain.gguf")):
        for adapters in ((), ((lora, 1.0),)):
            with LoadedModel.load(model, n_ctx=64, precision="exact", lora=adapters) as loaded:
                logits.append(np.array(loaded.sequence().prefill(ids)))
    rotated, tuned, plain, plain_tuned = logits
    np.testing.assert_allclose(rotated, plain, atol=TOLERANCE)
    np.testing.assert_allclose(tuned, plain_tuned, atol=TOLERANCE)
    assert np.abs(tuned - rotated).max() > 0.1
    with pytest.raises(UsageError, match=r"blk\.\S+ is rotated, and adapters cannot be merged into it"):
        merge_lora(path, [(lora, 1.0)], tmp_path / "merged.gguf")
