"""How times of single operations are summed, and what the operations are reported to do."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hybrid.infer.bench.benchmark import BenchTest
from hybrid.infer.bench.machine import Machine
from hybrid.infer.bench.profile import profile, summarize
from hybrid.infer.bench.shapes import SHAPES, write_shape
from hybrid.quant.ggml.types import GGMLType

MACHINE = Machine("cpu", "avx2", 2, 40.0, 200.0, {})


def op(name: str, kind: str, seconds: float, nbytes: int, flops: int, count: int = 1) -> Any:
    return SimpleNamespace(name=name, kind=kind, seconds=seconds, nbytes=nbytes, flops=flops, count=count)


def test_layers_and_steps_are_added_up() -> None:
    times = [
        op("blk.0.ssm_in", "gemv Q8_0", 0.010, 300_000_000, 500_000_000),
        op("blk.17.ssm_in", "gemv Q8_0", 0.020, 300_000_000, 500_000_000, count=2),
        op("blk.17.ssm_in", "gemv Q4_0", 0.001, 10, 20),
        op("output", "gemv Q8_0", 0.069, 1000, 0),
    ]
    result = summarize(times, BenchTest(0, 1), MACHINE)
    assert result.seconds == pytest.approx(0.1)
    assert [(row.op, row.kind) for row in result.rows] == [
        ("output", "gemv Q8_0"),
        ("ssm_in", "gemv Q8_0"),
        ("ssm_in", "gemv Q4_0"),
    ]
    row = result.rows[1]
    assert row.calls == 3
    assert row.seconds == pytest.approx(0.03)
    assert row.share == pytest.approx(0.3)
    assert row.gb_s == pytest.approx(20)
    assert row.gflop_s == pytest.approx(1e9 / 0.03 / 1e9)
    assert row.of_limit == pytest.approx(0.5)
    assert sum(row.share for row in result.rows) == pytest.approx(1)


def test_the_nearer_limit_counts() -> None:
    with_int8 = Machine("cpu", "avx2", 2, 40.0, 200.0, {"ub": 400.0, "s16": 400.0, "vnni": 400.0})
    integer, real = (
        op("a", "gemm_int_q8_0_16", 1.0, 10**9, 300 * 10**9),
        op("b", "gemm_float_f32_16", 1.0, 0, 100 * 10**9),
    )
    shares = {row.op: row.of_limit for row in summarize([integer, real], BenchTest(8, 0), with_int8).rows}
    assert shares == pytest.approx({"a": 0.75, "b": 0.5})
    assert summarize([integer], BenchTest(8, 0), MACHINE).rows[0].of_limit == pytest.approx(1.5)


def test_an_operation_without_time_has_no_rate() -> None:
    result = summarize([op("x", "k", 0.0, 100, 100)], BenchTest(1, 0), MACHINE)
    assert result.rows[0].gb_s == result.rows[0].gflop_s == result.rows[0].share == 0


def test_nothing_ran() -> None:
    assert summarize([], BenchTest(1, 0), MACHINE).rows == ()


N_EXPERT, N_USED, N_FF, N_EMBD = 7, 2, 96, 64
N_HEAD, N_KV, D_HEAD = 4, 2, 16


@pytest.fixture(scope="module")
def with_experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Mamba layer, and an attention layer with experts, F16."""
    shape = replace(
        SHAPES["jamba-moe-3b"],
        n_layer=2,
        n_embd=N_EMBD,
        n_head=N_HEAD,
        n_head_kv=N_KV,
        head_dim=D_HEAD,
        n_ff=N_FF,
        dt_rank=4,
        n_vocab=300,
        n_expert=N_EXPERT,
        n_expert_used=N_USED,
        attn_offset=1,
        attn_period=2,
    )
    return write_shape(shape, tmp_path_factory.mktemp("models") / "experts.gguf", GGMLType.F16)


@pytest.mark.parametrize("n", [1, 3, 37])
def test_experts_and_attention_count_what_tokens_use(with_experts: Path, n: int) -> None:
    from hybrid.infer import LoadedModel
    from hybrid.infer.model import Work

    past = 50
    with LoadedModel.load(with_experts, n_ctx=128, n_threads=1, kv_type="f16") as model:
        seq = model.sequence()
        seq.fill(list(range(past)))
        ops = {op.name: op for op in model.profile([Work(seq, list(range(n)))])}
    experts = [op for name, op in ops.items() if name.startswith("ffn_") and name.endswith("_exps")]
    assert len(experts) == 3
    one = 2 * N_FF * N_EMBD  # bytes of an expert's matrix, and operations of a column
    for op in experts:
        assert op.flops == n * N_USED * one
        assert N_USED * one <= op.nbytes <= min(N_EXPERT, n * N_USED) * one
        assert op.nbytes % one == 0
    assert len({op.nbytes for op in experts}) == 1
    # keys and values in f16
    attention = ops["attention"]
    assert attention.nbytes == 2 * (past + n) * N_KV * D_HEAD * 2
    assert attention.flops == sum(4 * (past + t + 1) * N_HEAD * D_HEAD for t in range(n))
    assert ops["ffn_router"].flops == 2 * n * N_EXPERT * N_EMBD


def test_a_step_of_several_sequences_is_one_pass(with_experts: Path) -> None:
    from hybrid.infer import LoadedModel

    n_gen, calls = 2, []
    for n in (1, 3):
        with LoadedModel.load(with_experts, n_ctx=64, n_seq_max=n, n_threads=1) as model:
            found = profile(model, BenchTest(0, n_gen, 10, n), MACHINE)
        (router,) = (row for row in found.rows if row.op == "ffn_router")
        assert router.gflop_s * router.seconds * 1e9 == pytest.approx(n * router.calls * 2 * N_EXPERT * N_EMBD)
        calls.append(router.calls)
    assert calls[0] == calls[1] and calls[0] % n_gen == 0


def test_a_window_bounds_what_is_read() -> None:
    from hybrid.infer.kernels.attention.kv import CACHE_TYPES
    from hybrid.infer.layers.attention import Attention

    layer = Attention(0, N_EMBD, N_HEAD, N_KV, D_HEAD, window=10)
    position = 2 * N_KV * D_HEAD * 2
    pair = 4 * N_HEAD * D_HEAD
    assert layer.work(CACHE_TYPES["f16"], [(100, 1)]) == (10 * position, 10 * pair)
    assert layer.work(CACHE_TYPES["f16"], [(100, 5)]) == (14 * position, 50 * pair)
    assert layer.work(CACHE_TYPES["f16"], [(0, 3), (2, 1)]) == (6 * position, 9 * pair)
