"""Effects of single weights on predictions, measured by changing the memory that the model reads."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hybrid.infer import LoadedModel
from hybrid.infer.bench.shapes import ModelShape
from hybrid.infer.evaluate.kl_divergence import write_base
from hybrid.infer.evaluate.sensitivity import Probe, divergences
from hybrid.infer.evaluate.windows import chunked
from hybrid.infer.text.encode import document_ids
from hybrid.quant.ggml.errors import FormatError, UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType

SHAPE = ModelShape(
    "small-jamba", "jamba", 3, 64, 300, 2048, 1e-6, n_ff=96, n_head=4, n_head_kv=1, head_dim=16, attn_offset=1,
    attn_period=2, d_state=8, d_conv=4, dt_rank=4,
)  # fmt: skip
TEXT = "A state that is kept, and a cache that grows: " * 6


def test_each_change_is_seen_and_taken_back(random_model: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "copy.gguf"
    path.write_bytes(random_model(SHAPE, FileType.F32).read_bytes())
    before = path.read_bytes()
    memory = np.memmap(path, np.uint8, mode="r+")

    def probe(name: str, factor: float) -> Probe:
        with GGUFFile.open(path) as file:
            info, values = file.tensors[name], np.array(file.f32(name)).reshape(-1)
        where = slice(info.offset, info.offset + info.nbytes)
        noise = np.random.default_rng(1).standard_normal(values.size).astype(np.float32) * values.std()

        def put(x: np.ndarray) -> None:
            memory[where] = x.view(np.uint8)

        return Probe(name, lambda: put(values + np.float32(factor) * noise), lambda: put(values))

    probes = [
        probe("blk.0.ssm_in.weight", 0.0),
        probe("blk.0.ssm_in.weight", 0.02),
        probe("blk.1.ffn_down.weight", 0.02),
        probe("blk.0.ssm_in.weight", 0.04),
        probe("token_embd.weight", 0.0),
    ]
    results = []
    for n_threads in (1, 3):
        with LoadedModel.load(path, n_ctx=32, n_seq_max=2, n_threads=n_threads, precision="exact") as model:
            results.append(list(divergences(model, TEXT, probes, n_ctx=32, chunks=3)))
    one_thread, three_threads = results
    assert one_thread == three_threads
    assert [name for name, _ in one_thread] == [p.name for p in probes]
    nothing, once, other, twice, last = (value for _, value in one_thread)
    assert nothing == last, "taken back"
    assert abs(nothing) < 1e-7, "unchanged: the base's log-probabilities have 16 bits"
    assert once > 1e-6 and other > 1e-6
    assert twice == pytest.approx(4 * once, rel=0.3), "divergence grows with the square of a change"
    memory.flush()
    assert path.read_bytes() == before


def test_nothing_of_changed_weights_stays_behind(random_model: Callable[..., Path], tmp_path: Path) -> None:
    """The prompt cache must not keep states computed with changed weights."""
    path = tmp_path / "copy.gguf"
    path.write_bytes(random_model(SHAPE, FileType.F32).read_bytes())
    memory = np.memmap(path, np.uint8, mode="r+")
    with GGUFFile.open(path) as file:
        info, values = file.tensors["blk.0.ssm_in.weight"], np.array(file.f32("blk.0.ssm_in.weight")).reshape(-1)
    where = slice(info.offset, info.offset + info.nbytes)

    def put(factor: float) -> None:
        memory[where] = (values * np.float32(factor)).view(np.uint8)

    probes = [Probe("half", lambda: put(0.5), lambda: put(1))]
    with LoadedModel.load(path, n_ctx=32, n_threads=1, checkpoint_budget=1 << 24) as model:
        window = next(chunked(model.tokenizer, document_ids(model.tokenizer, TEXT), 32)).ids[:31]
        seq = model.sequence()
        expected = seq.logits_of(window)[-1]
        seq.close(remember=False)
        list(divergences(model, TEXT, probes, n_ctx=32, chunks=3))
        seq = model.sequence()
        known = seq.resume([*window, 1])
        assert known == 0, f"{known} tokens are known from a measurement"
        np.testing.assert_array_equal(seq.prefill(window), expected)


def test_too_little_text(random_model: Callable[..., Path], tmp_path: Path) -> None:
    says = r"^the text has \d+ tokens, a context of {0} needs at least {1}\. Give a longer text{2}\.$"
    with LoadedModel.load(random_model(SHAPE, FileType.F32), n_ctx=128) as model:
        with pytest.raises(UsageError, match=says.format(64, 64, "")):
            next(divergences(model, "a", [], n_ctx=64))
        tokens = document_ids(model.tokenizer, TEXT)[:127]
        with pytest.raises(UsageError, match=says.format(64, 128, r" or a context of at most \d+ tokens")):
            write_base(model, tmp_path / "base.kld", tokens, 64)
    assert list(tmp_path.iterdir()) == []


def test_a_model_whose_predictions_are_no_numbers(random_model: Callable[..., Path], tmp_path: Path) -> None:
    """No sensitivities and no base file are made, and only the error is printed."""
    path = tmp_path / "copy.gguf"
    path.write_bytes(random_model(SHAPE, FileType.F32).read_bytes())
    with GGUFFile.open(path) as file:
        at = file.tensors["blk.0.ssm_in.weight"].offset
    np.memmap(path, np.float32, "r+", at, 1)[0] = np.nan
    with LoadedModel.load(path, n_ctx=32, n_seq_max=2) as model:
        says = r"^copy\.gguf: its logits in chunk 1 are not finite\. Convert or copy it again\.$"
        with pytest.raises(FormatError, match=says):
            next(divergences(model, TEXT, [], n_ctx=32))
        with pytest.raises(FormatError, match=says):
            write_base(model, tmp_path / "base.kld", document_ids(model.tokenizer, TEXT), 32)
    assert [p.name for p in tmp_path.iterdir()] == ["copy.gguf"]


def test_a_change_that_leaves_no_numbers(random_model: Callable[..., Path], tmp_path: Path) -> None:
    """An error names the weight, instead of a divergence of NaN; the weight is restored."""
    path = tmp_path / "copy.gguf"
    path.write_bytes(random_model(SHAPE, FileType.F32).read_bytes())
    before = path.read_bytes()
    with GGUFFile.open(path) as file:
        at = file.tensors["blk.0.ssm_in.weight"].offset
    weight = np.memmap(path, np.float32, "r+", at, 1)
    value = float(weight[0])
    probe = Probe("blk.0.ssm_in.weight", lambda: weight.fill(np.nan), lambda: weight.fill(value))
    with LoadedModel.load(path, n_ctx=32, n_seq_max=2) as model:
        says = r"^copy\.gguf: its logits in chunk 1 with blk\.0\.ssm_in\.weight changed are not finite\."
        with pytest.raises(FormatError, match=says):
            next(divergences(model, TEXT, [probe], n_ctx=32))
    weight.flush()
    assert path.read_bytes() == before
