"""Streamed values: every pair of types, pieces of any size, values that cannot be stored, and interruptions."""

import threading

import numpy as np
import pytest

from hybrid.convert import convert, plan, stream, verify
from hybrid.convert.transforms import interleave_rope
from hybrid.quant.ggml.errors import CheckpointError, FormatError, HybridError, UnsupportedError, UsageError
from hybrid.quant.ggml.reader import GGUFFile


def decoded(path):
    with GGUFFile.open(path) as file:
        return {name: np.array(file.f32(name)) for name in file.tensors}


@pytest.mark.parametrize("outtype", ["f32", "f16", "bf16", "q8_0", "auto"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, "bf16"])
def test_types(jamba, tmp_path, dtype, outtype):
    tiny = jamba()
    expected = tiny.tensors["model.layers.0.mamba.in_proj.weight"]
    if dtype != "bf16":
        tiny.tensors = {name: a.astype(dtype) for name, a in tiny.tensors.items()}
    folder = tiny.write(as_bf16=dtype == "bf16")
    report = convert(folder, tmp_path / "o.gguf", outtype=outtype)
    values = decoded(report.output)["blk.0.ssm_in.weight"]
    np.testing.assert_allclose(values, expected, atol=0.009 if outtype == "q8_0" else 0)
    checked = verify(folder, report.output)
    assert checked.n_tensors == report.n_tensors
    if outtype != "q8_0":
        assert checked.n_exact == checked.n_tensors
    if outtype == "auto":
        names = {np.float64: "F32", np.float32: "F32", np.float16: "F16", "bf16": "BF16"}
        assert report.file_type.name == names[dtype]


@pytest.mark.parametrize("task", [1, 100, 3000])
def test_pieces_do_not_show(llama, tmp_path, monkeypatch, task):
    folder = llama().write(as_bf16=True)
    whole = convert(folder, tmp_path / "whole.gguf", outtype="q8_0").output.read_bytes()
    monkeypatch.setattr(stream, "SLICE_VALUES", task)
    report = convert(folder, tmp_path / "pieces.gguf", outtype="q8_0", n_threads=3)
    assert report.output.read_bytes() == whole
    verify(folder, report.output)


def test_transposed_tensors_of_torch_are_read(llama, tmp_path, monkeypatch):
    """A strided source goes through the same pieces as any other."""
    from hybrid.convert.checkpoint import tensor

    folder = llama().write()
    expected = decoded(convert(folder, tmp_path / "a.gguf").output)
    read = tensor.StoredTensor.read
    calls = []

    def strided(self, start, stop):
        # The same values, through the path of a tensor that has strides.
        steps = tuple(int(np.prod(self.shape[i + 1 :])) for i in range(len(self.shape)))
        twin = tensor.StoredTensor(self.name, self.dtype, self.shape, self.file, self.offset, steps)
        calls.append(self.name)
        return read(twin, start, stop)

    monkeypatch.setattr(tensor.StoredTensor, "read", strided)
    tensors = decoded(convert(folder, tmp_path / "b.gguf").output)
    assert calls and all(np.array_equal(tensors[name], expected[name]) for name in expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, "bf16"])
def test_values_that_are_no_numbers(jamba, tmp_path, value, dtype):
    tiny = jamba()
    tiny.tensors["model.layers.4.self_attn.v_proj.weight"][-1, -1] = value
    if dtype != "bf16":
        tiny.tensors = {name: a.astype(dtype) for name, a in tiny.tensors.items()}
    folder = tiny.write(as_bf16=dtype == "bf16")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CheckpointError, match=r"layers\.4\.self_attn\.v_proj\.weight holds NaN or infinite values"):
        convert(folder, tmp_path / "o.gguf")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "value", "outtype", "message"),
    [
        ("model.embed_tokens.weight", 70000.0, "f16", "values too large for F16"),
        ("model.embed_tokens.weight", 3.4e38, "bf16", "values too large for BF16"),
        ("model.embed_tokens.weight", 1e7, "q8_0", "values too large for Q8_0"),
        ("model.layers.0.mamba.A_log", 100.0, "f32", "-exp of its values overflows"),
    ],
)
def test_values_that_do_not_fit(jamba, tmp_path, name, value, outtype, message):
    tiny = jamba()
    tiny.tensors[name][0, 0] = value
    with pytest.raises(HybridError, match=message):
        convert(tiny.write(), tmp_path / "o.gguf", outtype=outtype)
    assert not list(tmp_path.glob("*.gguf")) and not list(tmp_path.glob(".*"))


def test_f64_beyond_f32(jamba, tmp_path):
    tiny = jamba()
    tiny.tensors = {name: a.astype(np.float64) for name, a in tiny.tensors.items()}
    tiny.tensors["model.embed_tokens.weight"][0, 0] = 1e300
    with pytest.raises(UnsupportedError, match="too large for F32"):
        convert(tiny.write(), tmp_path / "o.gguf")


def test_integers_are_no_weights(jamba):
    tiny = jamba()
    tiny.tensors["model.layers.0.mamba.D"] = np.ones(128, np.int8)
    with pytest.raises(UnsupportedError, match=r"mamba\.D is of type I8"):
        plan(tiny.write())


def test_interruption_leaves_nothing(jamba, tmp_path):
    folder = jamba().write()
    (tmp_path / "out").mkdir()

    def interrupt(name, done, total):
        if name.startswith("blk.1"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(folder, tmp_path / "out" / "o.gguf", progress=interrupt)
    assert not list((tmp_path / "out").iterdir())
    assert not [t for t in threading.enumerate() if t.name.startswith("convert")]


def test_an_old_file_survives_a_failure(jamba, tmp_path):
    tiny = jamba()
    out = tmp_path / "o.gguf"
    convert(tiny.write(), out)
    before = out.read_bytes()
    tiny.tensors["model.layers.4.self_attn.v_proj.weight"][-1, -1] = np.nan
    with pytest.raises(CheckpointError):
        convert(tiny.write(), out)
    assert out.read_bytes() == before


def test_progress_reaches_the_end(jamba, tmp_path):
    seen = []
    convert(jamba().write(), tmp_path / "o.gguf", progress=lambda *step: seen.append(step))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1][1] == seen[-1][2] == sum(t.nbytes for t in plan(tmp_path / "model").tensors)


def test_plan_knows_the_size(jamba, tmp_path):
    folder = jamba().write()
    for outtype in ("f32", "q8_0"):
        report = convert(folder, tmp_path / "o.gguf", outtype=outtype)
        assert plan(folder, outtype=outtype).nbytes == report.output.stat().st_size == report.nbytes


def test_outputs(jamba, tmp_path, monkeypatch):
    folder = jamba().write()
    monkeypatch.chdir(tmp_path)
    assert convert(folder).output.resolve() == tmp_path / "Model-3x207K-F32.gguf"
    (tmp_path / "there").mkdir()
    assert convert(folder, tmp_path / "there").output == tmp_path / "there" / "Model-3x207K-F32.gguf"
    with pytest.raises(HybridError, match="cannot be written"):
        convert(folder, tmp_path / "nowhere" / "o.gguf")
    with pytest.raises(UsageError, match="is read by this conversion"):
        convert(folder, folder / "model.safetensors")
    with pytest.raises(UsageError, match="is a GGUF file already"):
        convert(tmp_path / "Model-3x207K-F32.gguf")
    with pytest.raises(UsageError, match="Choose one of auto, f32, f16, bf16, q8_0"):
        convert(folder, outtype="q5")
    with pytest.raises(UsageError, match="does not exist"):
        convert(tmp_path / "missing")


def test_verify_finds_differences(jamba, tmp_path):
    tiny = jamba()
    folder = tiny.write()
    for outtype in ("f32", "f16", "q8_0"):
        out = convert(folder, tmp_path / f"{outtype}.gguf", outtype=outtype).output
        verify(folder, out)
        with GGUFFile.open(out) as file:
            tensors = dict(file.tensors)
        for name in ("blk.2.ssm_a", "blk.1.attn_q.weight", "blk.3.ffn_up_exps.weight", "output_norm.weight"):
            info = tensors[name]
            broken = bytearray(out.read_bytes())
            broken[info.offset + info.nbytes - 1] ^= 0x40
            (tmp_path / "broken.gguf").write_bytes(broken)
            with pytest.raises(FormatError, match=f"{name} differs from model"):
                verify(folder, tmp_path / "broken.gguf")
    tiny.tensors["model.layers.3.feed_forward.experts.2.up_proj.weight"][5, 5] += 1
    with pytest.raises(FormatError, match=r"differs from model\.layers\.3\.feed_forward\.experts\.2\.up_proj"):
        verify(tiny.write(), tmp_path / "q8_0.gguf")
    tiny.config["rms_norm_eps"] = 1e-5
    with pytest.raises(FormatError, match="layer_norm_rms_epsilon"):
        verify(tiny.write(), tmp_path / "q8_0.gguf")


def test_verify_does_not_accept_nan(jamba, tmp_path):
    folder = jamba().write()
    out = convert(folder, tmp_path / "o.gguf", outtype="f16").output
    with GGUFFile.open(out) as file:
        info = file.tensors["blk.2.ssm_a"]
    broken = bytearray(out.read_bytes())
    broken[info.offset : info.offset + 4] = np.float32(np.nan).tobytes()
    out.write_bytes(broken)
    with pytest.raises(FormatError, match="ssm_a differs"):
        verify(folder, out)


def test_vocabulary_only(jamba, tmp_path):
    folder = jamba().write()
    (folder / "model.safetensors").unlink()
    report = convert(folder, tmp_path, vocab_only=True)
    assert report.output.name == "Model-vocab.gguf"
    with GGUFFile.open(report.output) as file:
        assert not file.tensors and len(file.metadata["tokenizer.ggml.tokens"]) == 31
        assert file.metadata["jamba.block_count"] == 5


def test_rope_rows_of_odd_shapes():
    """Against the definition: row j of a head goes to 2j, row j + half to 2j + 1."""
    x = np.arange(6 * 10 * 3, dtype=np.uint16).reshape(60, 3)
    turned = interleave_rope(10).apply(x, 0)
    for head in range(6):
        for j in range(5):
            np.testing.assert_array_equal(turned[10 * head + 2 * j], x[10 * head + j])
            np.testing.assert_array_equal(turned[10 * head + 2 * j + 1], x[10 * head + j + 5])
