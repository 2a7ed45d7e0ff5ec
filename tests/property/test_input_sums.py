"""Sums over the inputs of weights: they depend only on the tokens, and match the layers' definitions."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hybrid.infer import LoadedModel
from hybrid.infer.bench.shapes import ModelShape
from hybrid.infer.engine.collection import Collection
from hybrid.infer.engine.ubatch import Segment
from hybrid.infer.evaluate.imatrix import Sums, collect
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.types import FileType

SHAPE = ModelShape(
    "small-jamba-moe", "jamba", 3, 64, 300, 2048, 1e-6, n_ff=96, n_head=4, n_head_kv=1, head_dim=16, attn_offset=1,
    attn_period=2, d_state=8, d_conv=4, dt_rank=4, n_expert=3, n_expert_used=2, expert_offset=1, expert_period=2,
)  # fmt: skip
TEXT = "A state that is kept, and a cache that grows: " * 12


@pytest.fixture
def path(random_model: Callable[..., Path]) -> Path:
    return random_model(SHAPE, FileType.F32)


def sums_of(path: Path, n_parallel: int = 1, n_threads: int = 1, n_ubatch: int = 512, **options: int) -> Sums:
    with LoadedModel.load(path, n_ctx=32, n_seq_max=n_parallel, n_threads=n_threads, n_ubatch=n_ubatch) as model:
        states = list(collect(model, TEXT, n_ctx=32, chunks=5, **options))
        assert [s.done for s in states][-1] == states[-1].total == 5
        return states[-1].sums


def test_sums_depend_on_the_tokens_alone(path: Path) -> None:
    expected = sums_of(path)
    assert all(name.startswith("blk.") for name in expected) and "blk.1.attn_v.weight" in expected
    for options in ({"n_threads": 3}, {"n_ubatch": 16}, {"n_parallel": 2, "n_threads": 2}):
        varied = sums_of(path, **options)
        assert varied.keys() == expected.keys()
        for name, (sums, counts) in expected.items():
            np.testing.assert_array_equal(varied[name][1], counts, err_msg=name)
            # chunks of one run are added in f32, which rounds differently from separate chunks
            np.testing.assert_allclose(varied[name][0], sums, rtol=1e-5 if "n_parallel" in options else 0, err_msg=name)


def test_every_token_is_counted(path: Path) -> None:
    for name, (sums, counts) in sums_of(path).items():
        assert np.isfinite(sums).all() and (sums >= 0).all() and sums.any(), name
        routed = 2 if "_exps" in name else 1
        assert counts.sum() == routed * 5 * 32, name
        assert len(counts) == (3 if "_exps" in name else 1)


def test_sums_are_those_of_the_normed_embedding(path: Path) -> None:
    """The model's first product, computed from its definition."""
    ids = list(range(3, 70))
    with LoadedModel.load(path, n_ctx=128, n_threads=2) as model:
        collection, seq = Collection(), model.sequence()
        with model.engine.collecting(collection):
            embedded = model.engine.trace([Segment(seq.slot, ids, [])])[0].astype(np.float64)
        collected = collection.sums
        sums, counts = collected.take()["blk.0.ssm_in.weight"]
        normed = embedded / np.sqrt((embedded**2).mean(axis=1, keepdims=True) + SHAPE.eps)
        normed *= model.engine.gguf.f32("blk.0.attn_norm.weight")
        np.testing.assert_allclose(sums[0], (normed**2).sum(axis=0), rtol=1e-5)
        assert counts.tolist() == [len(ids)]
        assert sums.dtype == counts.dtype == np.float32 and collected.take() == {}, "taken once"


def test_going_on_adds_up_to_the_whole(path: Path) -> None:
    whole = sums_of(path)
    with LoadedModel.load(path, n_ctx=32, n_threads=1) as model:
        first = list(collect(model, TEXT, n_ctx=32, chunks=2))[-1].sums
    rest = sums_of(path, first=2)
    for name, (sums, counts) in whole.items():
        np.testing.assert_allclose(first[name][0] + rest[name][0], sums, rtol=1e-12)
        np.testing.assert_array_equal(first[name][1] + rest[name][1], counts)


def test_a_collection_ends_with_its_text(path: Path) -> None:
    """A second collection on the same model has nothing of the first or of other texts; others do not pay for it."""
    expected = sums_of(path)
    ids = list(range(3, 30))
    with LoadedModel.load(path, n_ctx=32, n_threads=1) as model:
        before = model.engine.program("body", 32)[0]
        for _ in range(2):
            states = collect(model, TEXT, n_ctx=32, chunks=5)
            next(states)
            other = model.sequence()
            other.prefill(ids)  # a pass between two chunks that belongs to neither collection
            other.close()
            for state in states:
                last = state.sums
            for name, (sums, counts) in expected.items():
                np.testing.assert_array_equal(last[name][1], counts, err_msg=name)
                np.testing.assert_array_equal(last[name][0], sums, err_msg=name)
            assert model.engine.program("body", 32)[0] is before, "built anew"
            assert all(op.name != "inputs" for op in model.engine.program("step", 1)[0].ops), "still collecting"


def test_too_little_text(path: Path) -> None:
    with LoadedModel.load(path, n_ctx=32) as model:
        with pytest.raises(UsageError, match=r"the text has \d+ tokens, a context of 32 needs at least 32\."):
            next(collect(model, "a", n_ctx=32))
        with pytest.raises(UsageError, match=r"^5 of 5 chunks are done already\."):
            next(collect(model, TEXT, n_ctx=32, chunks=5, first=5))
