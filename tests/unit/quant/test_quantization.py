"""Quantizing a file: the contents of the new file, refusals, leftovers."""

import math
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from hybrid.quant import Imatrix, InputSums, recoding
from hybrid.quant import quantization as q
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.errors import FormatError, HybridError, Remedy, UsageError
from hybrid.quant.ggml.formats.random_blocks import random_blocks
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, FileType, GGMLType, ValueType
from hybrid.quant.ggml.writer import GGUFWriter
from hybrid.quant.policy import Options, Reason, SsmType

F32, F16, BF16, Q8_0, Q4_0 = GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0, GGMLType.Q4_0

SIMPLE = (FileType.F32, FileType.F16, FileType.BF16, FileType.Q8_0, FileType.Q4_0)
# Shapes are all different, and the largest is several tasks and a part of one (tests make tasks small).
SHAPES: dict[str, tuple[int, ...]] = {
    "token_embd.weight": (331, 64),
    "output_norm.weight": (64,),
    "blk.10.ffn_up.weight": (96, 64),
    "blk.2.ssm_in.weight": (160, 64),
    "blk.2.ssm_x.weight": (35, 96),
    "blk.2.ssm_dt.weight": (96, 3),
    "blk.2.ssm_a": (96, 16),
    "blk.2.ffn_gate_inp.weight": (5, 64),
    "blk.2.ffn_down_exps.weight": (5, 64, 32),
    "blk.2.odd.weight": (7, 48),
}
ORDER = [
    "output_norm.weight",
    "token_embd.weight",
    "blk.2.ffn_down_exps.weight",
    "blk.2.ffn_gate_inp.weight",
    "blk.2.odd.weight",
    "blk.2.ssm_a",
    "blk.2.ssm_dt.weight",
    "blk.2.ssm_in.weight",
    "blk.2.ssm_x.weight",
    "blk.10.ffn_up.weight",
]


def weights(name: str) -> np.ndarray:
    rng = np.random.default_rng(list(name.encode()))
    return (rng.standard_normal(SHAPES[name]) * rng.uniform(0.01, 1)).astype(np.float32)


def model(path: Path, kind: GGMLType = F32, change: dict[str, np.ndarray] | None = None, **metadata: object) -> Path:
    """A file whose matrices are `kind` and whose other tensors are F32."""
    with GGUFWriter(path, "jamba") as w:
        w.add("general.name", "test")
        w.add("general.file_type", 0)
        w.add("jamba.attention.head_count_kv", [0, 8, 0])
        w.add("tokenizer.ggml.tokens", ["a", "b"])
        for key, value in metadata.items():
            w.add(key.replace("__", "."), value)
        kinds = {
            n: kind if len(s) > 1 and n not in ("blk.2.ssm_a", "blk.2.ffn_gate_inp.weight") else F32
            for n, s in SHAPES.items()
        }
        for name, shape in SHAPES.items():
            w.declare(name, shape, kinds[name])
        for name in SHAPES:
            w.write(name, formats.encode(kinds[name], (change or {}).get(name, weights(name))))
    return path


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recoding, "TASK_VALUES", 4096)
    monkeypatch.setattr(recoding, "CACHED_VALUES", 1024)
    monkeypatch.setattr(formats, "CHUNK", 1024)


@pytest.mark.parametrize("source", [F32, F16, BF16], ids=lambda k: k.name)
@pytest.mark.parametrize("target", SIMPLE, ids=lambda t: t.name)
def test_tensors_types_values_and_report(tmp_path: Path, source: GGMLType, target: FileType) -> None:
    src = model(tmp_path / "in.gguf", source)
    report = q.quantize(src, tmp_path / "out.gguf", target.name.lower(), n_threads=2)
    kind = GGMLType[target.name]
    blocks = kind in (Q8_0, Q4_0)
    expected = {
        "token_embd.weight": Q8_0 if blocks else kind,  # tied: Q6_K, but for the short rows
        "output_norm.weight": F32,
        "blk.10.ffn_up.weight": kind,
        "blk.2.ssm_in.weight": kind,
        "blk.2.ssm_x.weight": F32,
        "blk.2.ssm_dt.weight": F32,
        "blk.2.ssm_a": F32,
        "blk.2.ffn_gate_inp.weight": F32,
        "blk.2.ffn_down_exps.weight": kind,
        "blk.2.odd.weight": F16 if blocks else kind,
    }
    with GGUFFile.open(src) as a, GGUFFile.open(tmp_path / "out.gguf") as b:
        assert list(b.tensors) == ORDER
        assert {n: t.type for n, t in b.tensors.items()} == expected
        for row in report.rows:
            name, before = row.name, a.f32(row.name)
            np.testing.assert_array_equal(b.raw(name), formats.encode(expected[name], before), err_msg=name)
            assert (row.shape, row.source, row.target) == (SHAPES[name], a.tensors[name].type, expected[name])
            assert row.nbytes == b.tensors[name].nbytes
            if row.source is row.target:
                assert row.rmse == 0 and math.isnan(row.rms) and math.isnan(row.cosine) and row.worst_row == -1
            else:
                error = b.f32(name).astype(np.float64) - before
                assert row.rmse == pytest.approx(math.sqrt((error**2).mean()), rel=1e-6)
                wide = before.astype(np.float64)
                assert row.rms == pytest.approx(math.sqrt((wide**2).mean()), rel=1e-6)
                new = wide + error
                cosine = (wide * new).sum() / math.sqrt((wide**2).sum() * (new**2).sum())
                assert row.cosine == pytest.approx(cosine, abs=1e-6)
                width = before.shape[-1]
                ratios = np.sqrt((error.reshape(-1, width) ** 2).sum(1) / (wide.reshape(-1, width) ** 2).sum(1))
                assert row.worst_error == pytest.approx(ratios.max(), rel=1e-6)
                assert ratios[row.worst_row] == pytest.approx(ratios.max(), rel=1e-6)
        assert [r.name for r in report.rows] == ORDER
        assert (report.nbytes_source, report.nbytes, report.n_threads) == (a.nbytes, b.nbytes, 2)
        assert report.file_type is target
        values = sum(math.prod(s) for s in SHAPES.values())
        assert report.bits_per_weight == pytest.approx(8 * sum(t.nbytes for t in b.tensors.values()) / values)
        assert 0 < report.seconds < 60


def test_metadata_is_copied_and_set(tmp_path: Path) -> None:
    src = model(tmp_path / "in.gguf", general__alignment=32, split__count=1, split__no=0, x__last=0.5)
    q.quantize(src, tmp_path / "out.gguf", "Q8_0")
    with GGUFFile.open(src) as a, GGUFFile.open(tmp_path / "out.gguf") as b:
        kept = [k for k in a.metadata if k not in ("general.alignment", "split.count", "split.no")]
        assert list(b.metadata) == [*kept, "general.quantization_version"]
        assert b.value_types["general.quantization_version"] is b.value_types["general.file_type"] is ValueType.UINT32
        assert b.metadata["general.quantization_version"] == 2
        assert b.metadata["general.file_type"] == 7
        for key in kept:
            assert key == "general.file_type" or a.pair(key) == b.pair(key)


def test_llama_quantize_rule_for_ssm(tmp_path: Path) -> None:
    like = Options(ssm_type=SsmType.LIKE_LLAMA)
    report = q.quantize(model(tmp_path / "in.gguf"), tmp_path / "out.gguf", "Q4_0", options=like)
    rows = {r.name: (r.target, r.reason) for r in report.rows}
    assert rows["blk.2.ssm_x.weight"] == (Q4_0, Reason.ASKED)
    assert rows["blk.2.ssm_dt.weight"] == (F16, Reason.SHAPE)


def test_untied_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "output.weight", (331, 64))
    report = q.quantize(model(tmp_path / "in.gguf"), tmp_path / "out.gguf", FileType.Q4_0)
    rows = {r.name: (r.target, r.reason) for r in report.rows}
    assert rows["output.weight"] == (GGMLType.Q8_0, Reason.SHAPE)
    assert rows["token_embd.weight"] == (Q4_0, Reason.ASKED)


def test_bytes_do_not_depend_on_threads(tmp_path: Path) -> None:
    src = model(tmp_path / "in.gguf")
    files = [tmp_path / f"{n}.gguf" for n in (1, 2, 5)]
    reports = [q.quantize(src, f, "Q4_0", n_threads=int(f.stem)) for f in files]
    assert len({f.read_bytes() for f in files}) == 1
    assert [r.rmse for r in reports[0].rows] == [r.rmse for r in reports[2].rows]


def test_progress_reaches_the_whole(tmp_path: Path) -> None:
    src = model(tmp_path / "in.gguf")
    seen: list[tuple[str, int, int]] = []
    q.quantize(src, tmp_path / "out.gguf", "Q8_0", progress=lambda *step: seen.append(step))
    with GGUFFile.open(src) as f:
        total = sum(t.nbytes for t in f.tensors.values())
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})
    assert seen[-1] == (ORDER[-1], total, total)
    assert list(dict.fromkeys(name for name, _, _ in seen)) == ORDER
    assert len(seen) > len(ORDER)


def test_quantizing_again_must_be_asked_for(tmp_path: Path) -> None:
    q8 = tmp_path / "q8.gguf"
    q.quantize(model(tmp_path / "in.gguf"), q8, "Q8_0")
    message = (
        r"q8\.gguf: blk\.2\.ffn_down_exps\.weight is Q8_0 already; Q4_0 made from it is worse than from the original\. "
        r"Start from the F32, F16 or BF16 file\.$"
    )
    with pytest.raises(UsageError, match=message) as refused:
        q.quantize(q8, tmp_path / "out.gguf", "Q4_0")
    assert refused.value.remedy is Remedy.ALLOW_REQUANTIZE
    assert not (tmp_path / "out.gguf").exists()
    q.quantize(q8, tmp_path / "out.gguf", "Q4_0", allow_requantize=True)
    with GGUFFile.open(q8) as a, GGUFFile.open(tmp_path / "out.gguf") as b:
        name = "blk.2.ssm_in.weight"
        np.testing.assert_array_equal(b.raw(name), formats.encode(Q4_0, a.f32(name)))
    # Same type, or back to floats: nothing gets worse.
    q.quantize(q8, tmp_path / "same.gguf", "Q8_0")
    q.quantize(q8, tmp_path / "f32.gguf", "F32")
    with GGUFFile.open(q8) as a, GGUFFile.open(tmp_path / "same.gguf") as b, GGUFFile.open(tmp_path / "f32.gguf") as c:
        for name in SHAPES:
            np.testing.assert_array_equal(a.raw(name), b.raw(name))
            np.testing.assert_array_equal(a.f32(name), c.f32(name))


def test_copy_keeps_every_type_but_the_named_ones(tmp_path: Path) -> None:
    """Also of tensors that a file type would change, such as ssm_x in F16; the file type is the source's."""
    source = model(tmp_path / "in.gguf", F16, general__file_type=1)
    report = q.quantize(source, tmp_path / "copy.gguf", "copy", split_max_size=0)
    assert report.file_type is FileType.F16
    options = Options(tensor_types=(("ffn_up", Q8_0),))
    q.quantize(source, tmp_path / "named.gguf", "COPY", options=options)
    with GGUFFile.open(source) as a, GGUFFile.open(tmp_path / "copy.gguf") as b:
        assert b.get("general.file_type") == 1 and list(b.tensors) == ORDER
        for name, tensor in a.tensors.items():
            assert b.tensors[name].type is tensor.type and np.array_equal(a.raw(name), b.raw(name)), name
        with GGUFFile.open(tmp_path / "named.gguf") as c:
            changed = {name for name, tensor in c.tensors.items() if tensor.type is not a.tensors[name].type}
    assert changed == {"blk.10.ffn_up.weight"}
    model(source, F16, general__file_type=99_999)
    assert q.quantize(source, tmp_path / "copy.gguf", "COPY").file_type is FileType.F32, "unknown"
    with GGUFFile.open(tmp_path / "copy.gguf") as b:
        assert b.get("general.file_type") == 99_999


def test_a_mix_by_role(tmp_path: Path) -> None:
    """Options go before it, rows that are not whole blocks get the usual substitutes, and other programs see the file
    type."""
    source = model(tmp_path / "in.gguf")
    report = q.quantize(source, tmp_path / "out.gguf", " q2_k_xl", options=Options(tensor_types=(("ffn_up", Q8_0),)))
    assert (report.mix, report.file_type) == ("Q2_K_XL", FileType.Q2_K)
    with GGUFFile.open(tmp_path / "out.gguf") as b:
        assert b.get("general.file_type") == FileType.Q2_K
        kinds = {name: b.tensors[name].type.name for name in SHAPES}
    assert kinds["blk.10.ffn_up.weight"] == "Q8_0" and kinds["blk.2.ssm_x.weight"] == "F32"
    assert kinds["token_embd.weight"] == "Q8_0" and kinds["blk.2.ffn_down_exps.weight"] == "Q4_0"
    assert kinds["blk.2.ssm_in.weight"] == "IQ4_NL", "beside experts"
    assert q.quantize(source, tmp_path / "pure.gguf", "Q2_K_XL", options=Options(pure=True)).mix == "Q2_K_XL"
    assert q.quantize(source, tmp_path / "plain.gguf", "Q2_K").mix == ""


def test_unknown_type_lists_those_there_are(tmp_path: Path) -> None:
    source = model(tmp_path / "in.gguf")
    for name, what in {"Q9_9": "is not a file type", "nvfp4": "cannot be written by this version"}.items():
        message = rf"^({name}|{name.upper()}) {what}\. Choose one of F32, F16, BF16, Q1_0, .*, IQ4_XS, "
        with pytest.raises(UsageError, match=message):
            q.quantize(source, tmp_path / "out.gguf", name)


def test_negative_threads(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^n_threads = -1: expected a positive number, or 0 for all cores\.$"):
        q.quantize(model(tmp_path / "in.gguf"), tmp_path / "out.gguf", "Q8_0", n_threads=-1)


@pytest.mark.parametrize("link", [os.symlink, os.link, None], ids=["symlink", "hard link", "same path"])
def test_source_is_not_overwritten(tmp_path: Path, link) -> None:
    src = model(tmp_path / "in.gguf")
    before, dst = src.read_bytes(), src
    if link:
        dst = tmp_path / "link.gguf"
        link(src, dst)
    with pytest.raises(UsageError, match=rf"{dst.name} is the source itself\. Give another output path\.$"):
        q.quantize(src, dst, "Q8_0")
    assert src.read_bytes() == before


def test_files_without_a_whole_model(tmp_path: Path) -> None:
    with GGUFWriter(tmp_path / "vocab.gguf", "jamba"):
        pass
    with pytest.raises(UsageError, match=r"vocab\.gguf holds no tensors, only metadata\. Give a file with a model\.$"):
        q.quantize(tmp_path / "vocab.gguf", tmp_path / "out.gguf", "Q8_0")
    part = model(tmp_path / "part.gguf", split__count=3)
    message = (
        r"part\.gguf is one of 3 parts of a model\. Give the first, named NAME-00001-of-00003\.gguf, with the others"
    )
    with pytest.raises(UsageError, match=message):
        q.quantize(part, tmp_path / "out.gguf", "Q8_0")
    with GGUFWriter(tmp_path / "imatrix.gguf", None) as w:
        w.add("general.type", "imatrix")
    with pytest.raises(FormatError, match=r"imatrix\.gguf has no key general\.architecture, which it needs\."):
        q.quantize(tmp_path / "imatrix.gguf", tmp_path / "out.gguf", "Q8_0")


@pytest.mark.parametrize("target", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "IQ4_NL"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused(tmp_path: Path, target: str, value: float) -> None:
    name = "blk.2.ssm_in.weight"
    x = weights(name)
    x[157, 3] = value
    src = model(tmp_path / "in.gguf", change={name: x})
    with pytest.raises(
        FormatError, match=r"^tensor blk\.2\.ssm_in\.weight has NaN or infinite values, in row 157 first\. Convert"
    ):
        q.quantize(src, tmp_path / "out.gguf", target)
    assert [p.name for p in tmp_path.iterdir()] == ["in.gguf"]


@pytest.mark.parametrize(("target", "value"), [("F16", 7e4), ("Q8_0", 1e8), ("Q4_0", -1e6)])
def test_values_too_large_for_the_type(tmp_path: Path, target: str, value: float) -> None:
    name = "blk.2.ssm_in.weight"
    x = weights(name)
    x[9, 9] = value
    src = model(tmp_path / "in.gguf", change={name: x})
    message = rf"^tensor blk\.2\.ssm_in\.weight has values up to \S+, too large for {target}\. Use BF16 or F32\.$"
    with pytest.raises(FormatError, match=message):
        q.quantize(src, tmp_path / "out.gguf", target)
    assert not (tmp_path / "out.gguf").exists()


def test_large_values_that_fit_are_no_error(tmp_path: Path) -> None:
    """Squares of these values overflow f32, which must not be taken for NaN."""
    name = "blk.2.ssm_in.weight"
    x = weights(name)
    x[9, 9] = 1.2345e30
    src = model(tmp_path / "in.gguf", change={name: x})
    report = q.quantize(src, tmp_path / "out.gguf", "BF16")
    stored = formats.decode(BF16, formats.encode(BF16, x)).astype(np.float64)
    rmse = next(r.rmse for r in report.rows if r.name == name)
    assert rmse == pytest.approx(math.sqrt(((stored - x) ** 2).mean()), rel=1e-6)


def test_interrupt_leaves_nothing(tmp_path: Path) -> None:
    src = model(tmp_path / "in.gguf")
    calls = []

    def interrupt(*step: object) -> None:
        calls.append(step)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        q.quantize(src, tmp_path / "out.gguf", "Q4_0", n_threads=2, progress=interrupt)
    assert [p.name for p in tmp_path.iterdir()] == ["in.gguf"]
    assert not [t for t in threading.enumerate() if t.name.startswith("quantize")]


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(HybridError, match=r"none/out\.gguf cannot be written: No such file or directory\."):
        q.quantize(model(tmp_path / "in.gguf"), tmp_path / "none" / "out.gguf", "Q8_0")


def test_types_that_can_only_be_read_are_a_source(tmp_path: Path) -> None:
    """Like any quantized type: refused by default, requantized when allowed, decoded to floats unchanged."""
    kinds = {f"blk.{i}.ffn_up.weight": kind for i, kind in enumerate((GGMLType.Q4_K, GGMLType.IQ2_XXS, GGMLType.NVFP4))}
    raw = {name: random_blocks(kind, (5, 1536), np.random.default_rng(1)) for name, kind in kinds.items()}
    src = tmp_path / "in.gguf"
    with GGUFWriter(src, "jamba") as w:
        w.add("general.file_type", int(FileType.Q4_K_M))
        for name, kind in kinds.items():
            w.declare(name, (5, 1536), kind)
        for name, data in raw.items():
            w.write(name, data)
    with pytest.raises(UsageError, match=r"blk\.0\.ffn_up\.weight is Q4_K already; Q8_0 made from it is worse"):
        q.quantize(src, tmp_path / "out.gguf", "Q8_0")
    q.quantize(src, tmp_path / "f32.gguf", "F32")
    q.quantize(src, tmp_path / "q8.gguf", "Q8_0", allow_requantize=True)
    with GGUFFile.open(tmp_path / "f32.gguf") as floats, GGUFFile.open(tmp_path / "q8.gguf") as blocks:
        for name, kind in kinds.items():
            x = formats.decode(kind, raw[name])
            np.testing.assert_array_equal(floats.f32(name), x)
            np.testing.assert_array_equal(blocks.raw(name), formats.encode(Q8_0, x))


def wide_model(path: Path, kind: GGMLType = F32, n_expert: int = 3) -> Path:
    """Matrices whose rows are whole blocks of every type."""
    shapes = {
        "token_embd.weight": (40, 256),
        "blk.0.attn_v.weight": (24, 256),
        "blk.0.ffn_down.weight": (48, 512),
        "blk.1.ffn_down_exps.weight": (n_expert, 24, 512),
    }
    with GGUFWriter(path, "jamba") as w:
        w.add("jamba.block_count", 2)
        w.add("jamba.expert_count", n_expert)
        for name, shape in shapes.items():
            w.declare(name, shape, kind)
        for name, shape in shapes.items():
            rng = np.random.default_rng(list(name.encode()))
            w.write(name, formats.encode(kind, rng.standard_normal(shape).astype(np.float32)))
    return path


def importance_of(src: Path) -> Imatrix:
    rng = np.random.default_rng(3)
    with GGUFFile.open(src) as f:
        shapes = {name: t.shape for name, t in f.tensors.items() if name.startswith("blk.")}
    imatrix = Imatrix(datasets=["a.txt"], chunk_count=4, chunk_size=128)
    for name, shape in shapes.items():
        n = shape[0] if len(shape) > 2 else 1
        imatrix.entries[name] = InputSums(
            rng.standard_exponential((n, shape[-1])).astype(np.float32) * 100, np.full(n, 256, np.float32)
        )
    return imatrix


@pytest.mark.slow
@pytest.mark.parametrize("target", ["Q4_K_M", "Q3_K_S", "IQ4_XS", "Q5_1"])
def test_importance_reaches_every_matrix(tmp_path: Path, target: str) -> None:
    """Each expert has its own importance; unused experts count evenly; the embedding has none."""
    src = wide_model(tmp_path / "in.gguf")
    imatrix = importance_of(src)
    experts = imatrix.entries["blk.1.ffn_down_exps.weight"]
    experts.counts[1] = 0
    report = q.quantize(src, tmp_path / "out.gguf", target, imatrix=imatrix, n_threads=2)
    with GGUFFile.open(src) as a, GGUFFile.open(tmp_path / "out.gguf") as b:
        for row in report.rows:
            entry = imatrix.entries.get(row.name)
            x = a.f32(row.name).reshape(-1, *row.shape[-2:])
            expected = [
                formats.encode(row.target, m, importance=entry.importance()[i] if entry else None)
                for i, m in enumerate(x)
            ]
            np.testing.assert_array_equal(b.raw(row.name).reshape(len(x), *expected[0].shape), np.stack(expected))
        keys = {k: b.metadata[k] for k in b.metadata if k.startswith("quantize.")}
        assert keys == {
            "quantize.imatrix.file": "",
            "quantize.imatrix.dataset": "a.txt",
            "quantize.imatrix.entries_count": 3,
            "quantize.imatrix.chunks_count": 4,
        }
    assert experts.importance()[1].tolist() == [1] * 512


def test_importance_of_another_model(tmp_path: Path) -> None:
    src = wide_model(tmp_path / "in.gguf")
    strange = importance_of(src)
    strange.entries["blk.7.ssm_in.weight"] = strange.entries["blk.0.attn_v.weight"]
    with pytest.raises(
        UsageError, match=r"is of another model: this one has no tensor blk\.7\.ssm_in\.weight\. Collect"
    ):
        q.quantize(src, tmp_path / "out.gguf", "Q4_K_M", imatrix=strange)
    other = importance_of(wide_model(tmp_path / "other.gguf", n_expert=2))
    message = r"is of another model: blk\.1\.ffn_down_exps\.weight has 2 x 512 sums, this model needs 3 x 512\. Collect"
    with pytest.raises(UsageError, match=message):
        q.quantize(src, tmp_path / "out.gguf", "Q4_K_M", imatrix=other)
    assert not (tmp_path / "out.gguf").exists()


def test_types_that_need_importance(tmp_path: Path) -> None:
    src = wide_model(tmp_path / "in.gguf")

    def refused(target: str, imatrix: Imatrix | None = None) -> tuple[str, Remedy | None, str]:
        with pytest.raises(UsageError) as error:
            q.quantize(src, tmp_path / "out.gguf", target, imatrix=imatrix)
        assert not (tmp_path / "out.gguf").exists()
        return str(error.value), error.value.remedy, error.value.value

    fact = "blk.0.attn_v.weight: Q2_K needs an importance matrix in a file of Q2_K_S."
    assert refused("Q2_K_S") == (fact, Remedy.IMATRIX, "")
    assert refused("IQ2_XS") == ("blk.0.ffn_down.weight: IQ2_XS needs an importance matrix.", Remedy.IMATRIX, "")
    part = importance_of(src)
    del part.entries["blk.0.ffn_down.weight"]
    assert refused("IQ1_M", part) == (
        "blk.0.ffn_down.weight: IQ1_M needs its importance, which the importance matrix does not have. "
        "Use another matrix, or another type.",
        Remedy.TENSOR_TYPE,
        "ffn_down=Q2_K",
    )
    for target in ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M"):
        report = q.quantize(src, tmp_path / f"{target}.gguf", target, imatrix=importance_of(src))
        most = FILE_TYPE_WEIGHT[FileType[target]]
        assert most in {t.target for t in report.rows}
        assert 0.05 < max(t.rmse / t.rms for t in report.rows if t.target is most) < 0.7


def test_effort_lowers_errors_at_the_same_size(tmp_path: Path) -> None:
    src = wide_model(tmp_path / "in.gguf")
    plain, more, again = (
        q.quantize(src, tmp_path / f"{i}.gguf", "IQ3_S", imatrix=importance_of(src), effort=effort, n_threads=threads)
        for i, (effort, threads) in enumerate(((0, 1), (1, 1), (1, 3)))
    )
    assert plain.nbytes == more.nbytes
    for a, b in zip(plain.rows, more.rows, strict=True):
        assert a.target is b.target
        if a.target is GGMLType.IQ3_S:
            assert b.rmse < a.rmse
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "2.gguf").read_bytes() and again.rows == more.rows


def split(src: Path, folder: Path) -> Path:
    """The first of two parts of `src`, split like llama-gguf-split."""
    with GGUFFile.open(src) as f:
        names = list(f.tensors)
        for i, of in enumerate((names[:1], names[1:])):
            with GGUFWriter(folder / f"part-{i + 1:05}-of-00002.gguf", None) as w:
                if i == 0:
                    for key in f.metadata:
                        w.add_raw(key, f)
                w.add("split.no", i, ValueType.UINT16)
                w.add("split.count", 2, ValueType.UINT16)
                w.add("split.tensors.count", len(names), ValueType.INT32)
                for name in of:
                    w.declare(name, f.tensors[name].shape, f.tensors[name].type)
                for name in of:
                    w.write(name, f.raw(name))
    return folder / "part-00001-of-00002.gguf"


def test_parts_of_a_model(tmp_path: Path) -> None:
    """Read as one: written to one file, or to as many parts."""
    src = wide_model(tmp_path / "in.gguf")
    first = split(src, tmp_path)
    q.quantize(src, tmp_path / "whole.gguf", "Q4_K_M")
    report = q.quantize(first, tmp_path / "joined.gguf", "Q4_K_M")
    assert (tmp_path / "joined.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()
    kept = q.quantize(first, tmp_path / "kept.gguf", "Q4_K_M", keep_split=True)
    assert kept.dst == tmp_path / "kept-00001-of-00002.gguf"
    assert {row.name: row.target for row in kept.rows} == {row.name: row.target for row in report.rows}
    with GGUFFile.open(tmp_path / "whole.gguf") as whole:
        seen = []
        for i in range(2):
            with GGUFFile.open(tmp_path / f"kept-0000{i + 1}-of-00002.gguf") as part:
                assert (part.metadata["split.no"], part.metadata["split.count"]) == (i, 2)
                assert part.metadata["split.tensors.count"] == 4
                for name in part.tensors:
                    np.testing.assert_array_equal(part.raw(name), whole.raw(name))
                    seen.append(name)
        assert sorted(seen) == sorted(whole.tensors)
    with pytest.raises(UsageError, match=r"part-00001-of-00002\.gguf is the source itself"):
        q.quantize(first, tmp_path / "part.gguf", "Q4_K_M", keep_split=True)
    (tmp_path / "part-00002-of-00002.gguf").unlink()
    with pytest.raises(UsageError, match=r"part-00002-of-00002\.gguf is missing: part-00001"):
        q.quantize(first, tmp_path / "again.gguf", "Q4_K_M")


def test_metadata_that_is_given(tmp_path: Path) -> None:
    given = {"general.name": ("new", ValueType.STRING), "x.y": (0.5, ValueType.FLOAT32)}
    q.quantize(model(tmp_path / "in.gguf"), tmp_path / "out.gguf", "Q8_0", metadata=given)
    with GGUFFile.open(tmp_path / "out.gguf") as f:
        assert (f.metadata["general.name"], f.metadata["x.y"]) == ("new", 0.5)
