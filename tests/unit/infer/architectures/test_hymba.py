"""Hymba: its memory of a text, its prefix, and damaged files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from random_models import random_model
from reference.families import Reference
from safetensors.numpy import load_file

from hybrid.convert import convert
from hybrid.convert.architectures.hymba import Hymba
from hybrid.infer import LoadedModel
from hybrid.infer.engine.network import Network
from hybrid.infer.kernels.attention.kv import CACHE_TYPES
from hybrid.infer.memory import AttentionSpec
from hybrid.infer.memory.recount import recount
from hybrid.infer.stages.cuts import cuts_of
from hybrid.quant.ggml.errors import FormatError, UnsupportedError, UsageError
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.types import FileType

KEYS = Hymba.keys
IDS = list(range(260, 320))
KINDS = ["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "iq4_nl", "q4_0", "q8_0/q4_0"]


@pytest.fixture
def path() -> Path:
    return random_model("hymba")


def logits(path: Path, ids: list[int] = IDS, **options: Any) -> np.ndarray:
    with LoadedModel.load(path, n_ctx=128, **options) as model:
        return model.sequence().logits_of(ids)


def test_keys_and_values_are_kept_once(path: Path) -> None:
    with LoadedModel.load(path, n_ctx=32) as model:
        specs = model.engine.network.specs
    attention = [(s.layer, s.n_kv, s.d_head, s.d_value, s.window) for s in specs if isinstance(s, AttentionSpec)]
    assert attention == [(0, 2, 40, 40, 0), (1, 2, 40, 40, 12), (4, 2, 40, 40, 12), (5, 2, 40, 40, 0)]
    assert [s.layer for s in specs if not isinstance(s, AttentionSpec)] == list(range(6))


@pytest.mark.parametrize(
    "part",
    ["memory_tokens", "layers.0.mamba.in_proj.v.weight", "layers.4.mamba.in_proj.k.weight",
     "layers.3.mamba.in_proj.q.weight", "layers.2.mamba.pre_avg_layernorm1.weight",
     "layers.1.mamba.pre_avg_layernorm2.weight", "layers.5.moe.experts.0.down_proj.weight"],
)  # fmt: skip
def test_every_part_counts(part: str, tmp_path: Path) -> None:
    """In the random model compared with the twin, no part's contribution is drowned by the others."""
    source = random_checkpoints.write(CONFIGS["hymba"], tmp_path / "model")
    tensors = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    expected = Reference(config, tensors).logits(IDS)
    tensors[f"model.{part}"][:] = 0.0
    assert np.abs(Reference(config, tensors).logits(IDS) - expected).max() > 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_the_prefix_does_not_depend_on_passes_and_threads(kind: str, path: Path) -> None:
    """It is computed in passes of up to n_ubatch rows, and takes no room of the context."""
    expected = logits(path, kv_type=kind)
    assert np.isfinite(expected).all()
    for n_ubatch, n_threads in ((16, 1), (200, 3)):
        assert logits(path, kv_type=kind, n_ubatch=n_ubatch, n_threads=n_threads).tobytes() == expected.tobytes()


def test_every_text_begins_after_the_prefix(path: Path) -> None:
    """Also in slots that had other texts, after a cut to nothing, and after a fault."""
    expected = logits(path)
    with LoadedModel.load(path, n_ctx=128, n_seq_max=2) as model:
        a, b = model.sequence(), model.sequence()
        a.logits_of(IDS[::-1])
        assert b.logits_of(IDS).tobytes() == expected.tobytes()
        assert a.truncate(7) == 0
        assert a.logits_of(IDS).tobytes() == expected.tobytes()
        recount(model.memory, model.runner.cache, range(2))
        assert a.truncate(0) == 0
        assert a.logits_of(IDS).tobytes() == expected.tobytes()


def test_what_does_not_know_the_prefix_is_refused(path: Path) -> None:
    with open_gguf(path) as gguf:
        with pytest.raises(UnsupportedError, match=r"a prefix of 128 rows before every text.*Leave out the adapters\."):
            Network(gguf, 8, [[]])  # type: ignore[list-item]  # stands for an adapter without matrices
        network = Network(gguf, 8)
        with pytest.raises(UsageError, match=r"a prefix of 128 rows before every text cannot be divided into stages"):
            cuts_of(network, CACHE_TYPES["f16"])


def written(
    folder: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any] | None = None, **change: Any
) -> Path:
    """A random model with changed keys."""

    def keys(self: Hymba, file_type: FileType) -> Iterator[tuple[str, Any]]:
        yield from ((name, change.get(name.rpartition(".")[2], value)) for name, value in KEYS(self, file_type))

    monkeypatch.setattr(Hymba, "keys", keys)
    path = folder / "m.gguf"
    source = random_checkpoints.write(CONFIGS["hymba"] | (config or {}), folder / "model")
    convert(source, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    return path


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        ({"prefix_length": 64}, r"prefix_embd.weight has shape \[128, 120\], expected \[64, 120\]"),
        ({"kv_distance": [0, 0, 1, 1, 0, 0]}, "kv_distance = 1, expected for layer 3 the way to one that keeps"),
        ({"kv_distance": [0, 2, 1, 2, 0, 0]}, "kv_distance = 2, expected for layer 1"),
        ({"kv_distance": [0, 1, 0, 0, 0, 0]}, "kv_distance = 1, expected for layer 1 .* the same window"),
        ({"value_length": 20}, "value_length = 20, expected ssm.inner_size = 240 divided by the 6 heads"),
    ],
)
def test_damaged_files(
    change: dict[str, Any], pattern: str, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FormatError, match=pattern):
        LoadedModel.load(written(tmp_path, data_dir, monkeypatch, **change), n_ctx=32).close()


def test_a_prefix_that_is_not_whole_pages(tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybrid.convert.architectures.hymba.MULTIPLE", 1)
    path = written(tmp_path, data_dir, monkeypatch, {"num_memory_tokens": 100})
    with pytest.raises(FormatError, match="prefix_length = 100, expected a multiple of 64"):
        LoadedModel.load(path, n_ctx=32).close()
