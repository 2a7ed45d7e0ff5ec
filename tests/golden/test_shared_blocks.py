"""Checkpoints of Zamba and Zamba2 that store the blocks shared by layers more than once."""

import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from reference.families import Reference
from safetensors.numpy import save_file
from torch_archive import archive, state, storage, tensor

from hybrid.convert import convert, verify
from hybrid.convert.checkpoint.tensor import StoredTensor
from hybrid.convert.plan import prepare
from hybrid.infer import LoadedModel
from hybrid.quant.ggml.errors import CheckpointError
from hybrid.quant.ggml.reader import GGUFFile

pytestmark = pytest.mark.exhaustive

Tensors = dict[str, np.ndarray]
NAMES = ("zamba", "zamba2", "zamba2-2.7b", "zamba2-biased")


def config_of(name: str, **change: Any) -> dict[str, Any]:
    return {"vocab_size": random_checkpoints.N_VOCAB, "max_position_embeddings": 512, **CONFIGS[name], **change}


def copies_of(config: dict[str, Any], tensors: Tensors) -> dict[str, str]:
    """Names of the copies in torch's files -> name of the tensor that each copies."""
    users = [i for i, kind in enumerate(config["layers_block_type"]) if kind == "hybrid"]
    n = config.get("num_mem_blocks", 1)
    copies = {}
    for name in tensors:
        layer, _, rest = name.removeprefix("model.layers.").partition(".")
        if rest.startswith("shared_"):
            k = users.index(int(layer))
            copies |= {f"model.layers.{i}.{rest}": name for i in users[k + n :: n]}
    return copies


def write(folder: Path, config: dict[str, Any], tensors: Tensors) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_torch(folder: Path, config: dict[str, Any], tensors: Tensors, copies: dict[str, str]) -> Path:
    """Write pytorch_model.bin, in which a copy is another view of the same storage."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    numbers = {name: str(i) for i, name in enumerate(tensors)}
    entries = {}
    for name in (*tensors, *copies):
        values = tensors[copies.get(name, name)]
        strides = [math.prod(values.shape[i + 1 :]) for i in range(values.ndim)]
        stored = storage(key=numbers[copies.get(name, name)], numel=values.size)
        entries[name] = tensor(stored, shape=values.shape, strides=strides)
    members = {f"data/{numbers[name]}": values.tobytes() for name, values in tensors.items()}
    archive(folder / "pytorch_model.bin", state(**entries), members, compression=zipfile.ZIP_STORED)
    return folder


def contents(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    with GGUFFile.open(path) as file:
        keys = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in file.metadata.items()}
        return keys, {name: file.raw(name).tobytes() for name in file.tensors}


@pytest.fixture
def converted(data_dir: Path) -> Callable[..., Path]:
    def make(folder: Path, out: Path) -> Path:
        convert(folder, out, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
        verify(folder, out)
        return out

    return make


@pytest.mark.parametrize("name", NAMES)
def test_copies_change_nothing(name: str, converted: Callable[..., Path], tmp_path: Path) -> None:
    """As a second view in a torch file, as separate bytes, and if only a copy exists."""
    config = config_of(name)
    tensors = random_checkpoints.tensors(config)
    copies = copies_of(config, tensors)
    assert copies
    expected = contents(converted(write(tmp_path / "m", config, tensors), tmp_path / "once.gguf"))
    folders = [
        write_torch(tmp_path / "torch" / "m", config, tensors, copies),
        write(tmp_path / "twice" / "m", config, tensors | {copy: tensors[source] for copy, source in copies.items()}),
    ]
    moved = {source: copy for copy, source in copies.items()}
    folders.append(write(tmp_path / "moved" / "m", config, {moved.get(k, k): x for k, x in tensors.items()}))
    for folder in folders:
        assert contents(converted(folder, tmp_path / "again.gguf")) == expected, folder.parent.name


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_that_differs_is_named(name: str, tmp_path: Path) -> None:
    config = config_of(name, tie_word_embeddings=True)
    tensors = random_checkpoints.tensors(config)
    copies = copies_of(config, tensors)
    for copy in (next(iter(copies)), list(copies)[-1]):
        both = tensors | {other: tensors[source].copy() for other, source in copies.items()}
        both[copy].reshape(-1)[-1] += 1
        with pytest.raises(CheckpointError, match=f"{copy} differs from {copies[copy]} though they are the same"):
            prepare(write(tmp_path / "m", config, both), with_vocabulary=False)


@pytest.mark.parametrize("name", NAMES)
def test_blocks_may_differ_where_nothing_is_tied(name: str, converted: Callable[..., Path], tmp_path: Path) -> None:
    """transformers then uses each layer's own block. Tensors of adapters without a layer are left out."""
    config = config_of(name, tie_word_embeddings=False)
    tensors = random_checkpoints.tensors(config)
    rng = np.random.default_rng(7)
    for copy, source in copies_of(config, tensors).items():
        tensors[copy] = rng.permutation(tensors[source].reshape(-1)).reshape(tensors[source].shape)
    n_users = config["layers_block_type"].count("hybrid")
    folder = write(tmp_path / "m", config, tensors)
    path = converted(folder, tmp_path / "o.gguf")
    metadata, written = contents(path)
    assert metadata[f"{metadata['general.architecture']}.shared_block_count"] == n_users
    assert sum(name.endswith("attn_q.weight") for name in written) == n_users
    left = "left out: the model does not use them" in " ".join(prepare(folder, with_vocabulary=False).plan.notes)
    assert left == any(len(source.split("_list.")) > 1 for source in copies_of(config, tensors).values())
    ids = rng.integers(0, config["vocab_size"], 40).tolist()
    expected = Reference(config, tensors).logits(ids)
    with LoadedModel.load(path, n_ctx=64, precision="exact") as model:
        got = model.sequence().logits_of(ids)
    error = np.abs(got - expected).max() / np.abs(expected).max()
    print(f"{name}: {error:.1e} of the largest logit")
    assert error < 2e-5


def test_same_copies_of_an_untied_model_are_taken_once(converted: Callable[..., Path], tmp_path: Path) -> None:
    config = config_of("zamba2", tie_word_embeddings=False)
    tensors = random_checkpoints.tensors(config)
    tensors |= {copy: tensors[source] for copy, source in copies_of(config, tensors).items()}
    metadata, _ = contents(converted(write(tmp_path / "m", config, tensors), tmp_path / "o.gguf"))
    assert metadata["zamba2.shared_block_count"] == 2


def test_comparing_keeps_a_few_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both copies are read in pieces, however large they are."""
    config = config_of("zamba", hidden_size=512, intermediate_size=4096, mamba_dt_rank=4)
    tensors = random_checkpoints.tensors(config)
    tensors |= {copy: tensors[source] for copy, source in copies_of(config, tensors).items()}
    read, pieces = StoredTensor.read, []

    def counted(self: StoredTensor, start: int, stop: int) -> np.ndarray:
        pieces.append(stop - start)
        return read(self, start, stop)

    monkeypatch.setattr(StoredTensor, "read", counted)
    prepare(write(tmp_path / "m", config, tensors), with_vocabulary=False)
    largest = max(x.size for name, x in tensors.items() if ".shared_" in name)
    assert largest > 1 << 20
    assert max(pieces) <= 1 << 20
