"""Sources without some layers: names, keys, parts, importance."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from hybrid.quant import GGUFSource, Imatrix, InputSums, Options, quantize
from hybrid.quant.ggml.errors import UnsupportedError, UsageError
from hybrid.quant.ggml.families.hparams import AttentionHparams, key
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType, ValueType
from hybrid.quant.ggml.writer import GGUFWriter
from hybrid.quant.pruning import PrunedSource, layers_text, parsed_layers
from hybrid.quant.rewrite import split

LAYERS = 5
TENSORS = {
    "token_embd.weight": (7, 32),
    "table.weight": (3, 160),
    "rows.weight": (10, 32),
    **{f"blk.{i}.odd.weight": (3 + i, 32) for i in range(LAYERS)},
}


class OddHparams(AttentionHparams):
    in_parts: ClassVar[Mapping[str, int]] = {"table.weight": -1, "rows.weight": 0}
    n_dense: int = key("leading_dense_block_count", 0, counts="first")
    n_shared: int = key("attention.shared_kv_layers", 0, counts="last")
    local: tuple[bool, ...] = key("local_pattern", 2, pattern=True)
    limits: tuple[float, ...] = key("limits", 0.0, per_layer=True, more=True)
    widths: tuple[int, ...] = key("widths", 9, per_layer=True)


def values(name: str) -> np.ndarray:
    return np.random.default_rng(list(name.encode())).standard_normal(TENSORS[name]).astype(np.float32)


def model(path: Path, **more: object) -> Path:
    with GGUFWriter(path, "odd") as w:
        for name, n in (("embedding_length", 32), ("context_length", 64), ("attention.head_count", 2)):
            w.add(f"odd.{name}", n)
        w.add("odd.block_count", LAYERS, ValueType.UINT16)
        w.add("odd.attention.layer_norm_rms_epsilon", 1e-5)
        w.add("odd.attention.head_count_kv", [0, 1, 0, 2, 0], ValueType.INT32)
        w.add("odd.leading_dense_block_count", 2)
        w.add("odd.attention.shared_kv_layers", 3)
        w.add("odd.limits", np.arange(LAYERS + 2, dtype=np.float64))
        for name, value in more.items():
            w.add(name.replace("__", "."), value)
        for name, shape in TENSORS.items():
            w.declare(name, shape, GGMLType.F32)
        for name in TENSORS:
            w.write(name, values(name))
    return path


def test_layers_as_text() -> None:
    for text, layers in {"3": [3], "3,5-8": [3, 5, 6, 7, 8], " 8-8, 2 ,1-2": [1, 2, 8]}.items():
        assert parsed_layers(text) == layers
    for text in ("", "3,", "-1", "5-3", "1-2-3", "x", "1;2", "1.5"):
        with pytest.raises(
            UsageError, match=r"are not layers: expected numbers and ranges of them, for example 3,5-8\."
        ):
            parsed_layers(text)
    assert layers_text([3]) == "layer 3" and layers_text([4, 3]) == "layers 3 to 4"
    assert layers_text([9, 3, 5, 4]) == "layers 3 to 5, 9"


def test_tensors_and_keys(tmp_path: Path) -> None:
    path, out = model(tmp_path / "in.gguf"), tmp_path / "out.gguf"
    with GGUFSource(path) as source:
        pruned = PrunedSource(source, [1, 3], OddHparams)
        assert pruned.kept == [0, 2, 4] and pruned.is_read(path) and pruned.nbytes == path.stat().st_size
        report = quantize(pruned, out, "COPY")
    beside = ["rows.weight", "table.weight", "token_embd.weight"]
    assert [row.name for row in report.rows] == [*beside, *(f"blk.{i}.odd.weight" for i in range(3))]
    with GGUFFile.open(out) as f:
        for new, old in {"token_embd": "token_embd", "blk.0.odd": "blk.0.odd", "blk.1.odd": "blk.2.odd",
                         "blk.2.odd": "blk.4.odd"}.items():  # fmt: skip
            assert np.array_equal(f.f32(f"{new}.weight"), values(f"{old}.weight"))
        found = {name: f.get(f"odd.{name}") for name in ("attention.head_count_kv", "limits", "local_pattern")}
        assert {name: value.tolist() for name, value in found.items()} == {
            "attention.head_count_kv": [0, 0, 0],
            "limits": [0, 2, 4, 5, 6],
            "local_pattern": [True, True, True],
        }
        kinds = [f.value_types[f"odd.{name}"].element for name in found]  # type: ignore[union-attr]
        assert kinds == [ValueType.INT32, ValueType.FLOAT64, ValueType.BOOL]
        counts = ("block_count", "leading_dense_block_count", "attention.shared_kv_layers", "attention.head_count")
        assert [f.get(f"odd.{name}") for name in counts] == [3, 1, 2, 2]
        assert "odd.widths" not in f.metadata


def test_a_pattern_that_still_holds_is_not_written(tmp_path: Path) -> None:
    with GGUFSource(model(tmp_path / "in.gguf")) as source:
        assert "odd.local_pattern" not in PrunedSource(source, [0, 1], OddHparams).metadata
    with GGUFSource(model(tmp_path / "in.gguf", odd__local_pattern=3)) as source:
        assert PrunedSource(source, [3, 4], OddHparams).metadata["odd.local_pattern"] == 3
        assert PrunedSource(source, [0], OddHparams).metadata["odd.local_pattern"] == [True, False, True, True]


def test_parts_and_names_of_rotated_weights(tmp_path: Path) -> None:
    names = ["token_embd.weight", "blk.1.odd.weight", "blk.4.odd.weight"]
    extra = {"general__tensor_extra__name": names[::-1], "general__tensor_extra__prec_a4": [True, False, True]}
    path = model(tmp_path / "in.gguf", prism__hadamard__weight_names=names, **extra)
    first = split(path, tmp_path / "parts", max_tensors=2).parts[0].path
    with GGUFSource(first) as source:
        pruned = PrunedSource(source, [1, 2], OddHparams)
        assert pruned.parts == [
            ["token_embd.weight", "table.weight"],
            ["rows.weight", "blk.0.odd.weight"],
            ["blk.1.odd.weight", "blk.2.odd.weight"],
        ]
        assert pruned.metadata["prism.hadamard.weight_names"] == ["token_embd.weight", "blk.2.odd.weight"]
        assert len(quantize(pruned, tmp_path / "out.gguf", "COPY", keep_split=True).rows) == 6
    with GGUFFile.open(tmp_path / "out-00001-of-00003.gguf") as f:
        assert list(f.get("general.tensor_extra.name")) == ["blk.2.odd.weight", "token_embd.weight"]
        assert f.get("general.tensor_extra.prec_a4").tolist() == [True, True]


def test_importance_by_old_names(tmp_path: Path) -> None:
    sums = {name: InputSums(np.full((1, 32), i, np.float32), np.ones(1, np.float32)) for i, name in enumerate(TENSORS)}
    imatrix = Imatrix({**sums, "blk.2.other.weight": sums["blk.0.odd.weight"]}, chunk_count=5)
    with GGUFSource(model(tmp_path / "in.gguf")) as source:
        left = PrunedSource(source, [0, 3], OddHparams).importance(imatrix)
    expected = {
        "token_embd": "token_embd",
        "table": "table",
        "rows": "rows",
        "blk.0.odd": "blk.1.odd",
        "blk.1.odd": "blk.2.odd",
        "blk.2.odd": "blk.4.odd",
    }
    assert {new: left.entries[f"{new}.weight"] for new in expected} == {
        new: sums[f"{old}.weight"] for new, old in expected.items()
    }
    # a tensor that the source does not have keeps its name, so that the check names it
    assert left.entries.keys() - {f"{new}.weight" for new in expected} == {"blk.2.other.weight"}
    assert left.chunk_count == 5


def test_refusals(tmp_path: Path) -> None:
    with GGUFSource(model(tmp_path / "in.gguf")) as source:
        with pytest.raises(UsageError, match=r"in\.gguf has layers 0 to 4: there is no layer 7 to leave out\."):
            PrunedSource(source, [1, 7], OddHparams)
        with pytest.raises(UsageError, match=r"no layer of .*in\.gguf would be left\. Leave out fewer\."):
            PrunedSource(source, range(5), OddHparams)


@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.BF16, GGMLType.Q8_0])
def test_tensors_with_a_part_for_each_layer(kind: GGMLType, tmp_path: Path) -> None:
    source, out = tmp_path / "in.gguf", tmp_path / "out.gguf"
    quantize(model(tmp_path / "f32.gguf"), source, "COPY", options=Options(tensor_types=(("table|rows", kind),)))
    with GGUFSource(source) as opened:
        pruned = PrunedSource(opened, [1, 3], OddHparams)
        quantize(pruned, out, "COPY")
        assert [pruned.tensors[f"{name}.weight"].shape for name in ("table", "rows")] == [(3, 96), (6, 32)]
        slices = list(pruned.slices("rows.weight", 3))
        assert [part.n for part in slices] == [2, 2, 1, 1]
        with pytest.raises(
            UnsupportedError, match=r"workers do not cut table\.weight, which has a part for each layer"
        ):
            pruned.spread(lambda parts: iter(()))
    with GGUFFile.open(source) as a, GGUFFile.open(out) as b:
        whole, left = a.f32("table.weight"), b.f32("table.weight")
        assert np.array_equal(left, whole.reshape(3, 5, 32)[:, [0, 2, 4]].reshape(3, 96))
        assert np.array_equal(b.f32("rows.weight"), a.f32("rows.weight")[[0, 1, 4, 5, 8, 9]])


def test_parts_that_are_not_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TENSORS, "rows.weight", (9, 32))
    with (
        GGUFSource(model(tmp_path / "in.gguf")) as source,
        pytest.raises(UnsupportedError, match=r"the 9 values of rows\.weight cannot be divided among 5 layers"),
    ):
        PrunedSource(source, [1], OddHparams)
