"""The context of a loaded model: the trained length as far as memory allows, or the requested length."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf_bytes as b
import numpy as np
import pytest
import tiny_models
from tiny_models import FAMILIES, Tensor, Tiny

from hybrid.infer import LoadedModel
from hybrid.infer.engine import engine as engine_module
from hybrid.infer.evaluate.embed import Embedder
from hybrid.infer.layers import attention as attention_module
from hybrid.infer.memory.moves import seq_add
from hybrid.quant.ggml.errors import FormatError, UsageError
from hybrid.quant.ggml.machine_memory import MachineMemory

GIB = 1 << 30
IDS = np.random.default_rng(5).integers(3, tiny_models.N_VOCAB, 40).tolist()
LONG_ROPE = {".rope.scaling.type": "longrope", ".rope.scaling.original_context_length": 24}


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """file(arch, keys, tensors) -> a tiny model."""

    def make(arch: str, keys: dict[str, Any] | None = None, change: Callable[[Tiny], object] | None = None) -> Path:
        tiny = FAMILIES[arch]()
        for key, value in (keys or {}).items():
            tiny.set(key, *value) if isinstance(value, tuple) else tiny.set(key, value)
        if change:
            change(tiny)
        return tiny.write(tmp_path / f"{arch}-{len(list(tmp_path.iterdir()))}.gguf")

    return make


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[MachineMemory], None]:
    """machine(memory): sets the memory that the loader finds."""
    return lambda memory: monkeypatch.setattr(engine_module, "machine_memory", lambda: memory)


def trained(n: int) -> dict[str, Any]:
    return {".context_length": n}


@pytest.mark.parametrize("arch", sorted(FAMILIES))
@pytest.mark.parametrize("n", [1, 64, 5000, 1 << 20])
def test_the_context_is_what_the_model_was_trained_for(arch: str, n: int, file: Callable[..., Path]) -> None:
    with LoadedModel.load(file(arch, trained(n)), n_threads=1) as model:
        assert (model.n_ctx, model.n_ctx_train, model.context_note) == (n, n, "")


def test_a_million_tokens_cost_nothing_until_they_are_used(
    file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """cos and sin are computed only as far as texts reach; the tokens equal those of a short context."""
    asked: list[tuple[int, int]] = []
    rows = attention_module.rope_rows
    monkeypatch.setattr(
        attention_module, "rope_rows", lambda first, end, *more: asked.append((first, end)) or rows(first, end, *more)
    )
    results = []
    for n in (64, 1 << 20):
        asked.clear()
        with LoadedModel.load(file("llama", trained(n)), n_threads=2) as model:
            assert asked == []
            seq = model.sequence()
            seq.prefill(IDS)
            results.append([seq.decode(IDS[i]).copy() for i in range(20)])
            assert asked == [(0, min(n, 512))]
    np.testing.assert_array_equal(*results)


def test_positions_that_were_moved_are_reached(file: Callable[..., Path]) -> None:
    """Tokens at positions far beyond their index find cos and sin there, in passes of one token and of several."""
    results = []
    for n, shift in ((1 << 20, 100_000), (64, 0)):
        with LoadedModel.load(file("llama", trained(n)), n_threads=1, precision="exact") as model:
            seq = model.sequence()
            seq.prefill(IDS[:10])
            seq_add(model.memory, seq.slot, 0, -1, shift)
            results.append([*(seq.decode(token).copy() for token in IDS[:5]), seq.logits_of(IDS)[-1]])
            assert model.memory.next_position(seq.slot) == 15 + len(IDS) + shift
    # the distances are the same, so are the logits but for the rounding of cos and sin
    np.testing.assert_allclose(*results, atol=2e-2)


def test_as_much_as_fits(file: Callable[..., Path], machine: Callable[[MachineMemory], None]) -> None:
    path = file("llama", trained(1 << 20))
    machine(MachineMemory(GIB, GIB))
    with LoadedModel.load(path, n_threads=1, kv_type="f32") as model:
        # 2 layers of keys and values, 2 heads of 8 padded to 16, f32; 8 bytes for a page; cos and sin
        per_token = 2 * 2 * 2 * 16 * 4 + 8 / 64 + 4 * 8
        assert model.n_ctx == 1 << 20
        assert model.n_ctx * per_token < GIB * 7 / 8
    with LoadedModel.load(path, n_threads=1, kv_type="f32", n_seq_max=9) as model:
        assert 100_000 < model.n_ctx < GIB * 7 / 8 / 9 / (per_token - 32)
        assert model.n_ctx % 1024 == 0
        assert model.context_note.startswith(
            f"a context of {model.n_ctx} tokens: the 1048576 that the model was trained for need 4.5 GiB for 9 "
            "sequences, 8"  # an eighth of the memory stays free
        )
        without = model.n_ctx
    with LoadedModel.load(path, n_threads=1, kv_type="f32", n_seq_max=9, checkpoint_budget=8 * GIB) as model:
        assert 0.7 * without < model.n_ctx < 0.8 * without  # the cache gets a quarter
    with LoadedModel.load(path, n_threads=1, kv_type="q8_0", n_seq_max=9) as model:
        assert model.n_ctx > 2.5 * without
    machine(MachineMemory(GIB, 1 << 20))  # almost nothing is free: there is still a context
    with LoadedModel.load(path, n_threads=1) as model:
        assert model.n_ctx == 4096 and ", 0 B are free" in model.context_note


def test_an_explicit_context_wins(file: Callable[..., Path], machine: Callable[[MachineMemory], None]) -> None:
    path = file("llama", trained(4000))
    with LoadedModel.load(path, n_ctx=4000, n_threads=1) as model:
        assert (model.n_ctx, model.context_note) == (4000, "")
    with LoadedModel.load(path, n_ctx=5000, n_threads=1) as model:
        assert model.n_ctx == 5000
        says = "a context of 5000 tokens: the model was trained for 4000: beyond that its answers may be poor"
        assert model.context_note == says
    machine(MachineMemory(GIB, 200 << 20))
    with LoadedModel.load(path, n_ctx=900_000, n_threads=1, kv_type="f32") as model:
        assert model.n_ctx == 900_000
        assert "trained for 4000" in model.context_note
        assert "when full, it needs" in model.context_note and "are free: the system may then end" in model.context_note
    with pytest.raises(UsageError, match=r"1 sequence of 9000000 tokens need 4\.\d GiB, this machine has 1\.0 GiB"):
        LoadedModel.load(path, n_ctx=9_000_000, n_threads=1, kv_type="f32")


def test_a_context_that_changes_short_texts_has_to_be_asked_for(file: Callable[..., Path]) -> None:
    """LongRoPE: by default, the context and frequencies are those before stretching."""

    def factors(tiny: Tiny) -> None:
        tiny.tensors["rope_factors_short.weight"] = Tensor(np.float32([1.0, 1.1, 1.3, 1.4]))
        tiny.tensors["rope_factors_long.weight"] = Tensor(np.float32([1.0, 2.5, 6.0, 17.0]))

    path, found = file("llama", LONG_ROPE, factors), []
    for n_ctx in (0, 24, 64):
        with LoadedModel.load(path, n_ctx=n_ctx, n_threads=1) as model:
            found.append((model.n_ctx, model.description, model.sequence().logits_of(IDS[:20])))
            if not n_ctx:
                assert model.context_note == (
                    "a context of 24 tokens: with the 64 that the model was trained for, short texts would "
                    "also be computed differently (long RoPE)"
                )
            else:
                assert model.context_note == ""
    assert [n for n, *_ in found] == [24, 24, 64]
    assert [name for _, name, _ in found] == [*["tiny llama F32"] * 2, "tiny llama F32 (long RoPE)"]
    np.testing.assert_array_equal(found[0][2], found[1][2])
    with Embedder(path, n_threads=1) as embedder:
        assert embedder.n_ctx == 24


@pytest.mark.parametrize("arch", sorted(FAMILIES))
@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), ((1 << 31, b.U32), "2147483648"), ((1 << 63, b.U64), "9223372036854775808"), ((-1, b.I32), "-1")],
)
def test_an_impossible_context(arch: str, value: Any, shown: str, file: Callable[..., Path]) -> None:
    path = file(arch, {".context_length": value})
    says = rf"{arch}\.context_length = {shown}, expected an integer of at least 1"
    for load in (LoadedModel.load, Embedder):
        for n_ctx in (0, 16):
            with pytest.raises(FormatError, match=says):
                load(path, n_ctx=n_ctx, n_threads=1)


def test_a_file_without_its_context(file: Callable[..., Path]) -> None:
    path = file("llama", None, lambda tiny: tiny.drop(".context_length"))
    for load in (LoadedModel.load, Embedder):
        with pytest.raises(FormatError, match=r"llama\.context_length"):
            load(path, n_threads=1)


def test_the_largest_context_that_a_file_can_have(
    file: Callable[..., Path], machine: Callable[[MachineMemory], None]
) -> None:
    """2^31 - 1 tokens: every machine gets a context that fits; states alone have the same size at any length."""
    machine(MachineMemory(2 * GIB, 2 * GIB))
    for arch, least, most in (("llama", 1 << 20, 1 << 24), ("mamba", (1 << 31) - 1, (1 << 31) - 1)):
        with LoadedModel.load(file(arch, trained((1 << 31) - 1)), n_threads=1) as model:
            assert least <= model.n_ctx <= most
            seq = model.sequence()
            seq.prefill(IDS)
            assert np.isfinite(seq.decode(IDS[0])).all()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce RLIMIT_AS")
@pytest.mark.parametrize("which", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_limit_on_what_can_be_mapped(which: str, file: Callable[..., Path]) -> None:
    """The context is small enough to be mapped under `ulimit -v`."""
    path = file("llama", trained(1 << 24))
    code = (
        "import resource, sys\nfrom hybrid.infer import Model\n"
        f"resource.setrlimit(resource.{which}, ({GIB}, {GIB}))\n"
        f"with Model.load({str(path)!r}, n_threads=2, checkpoint_budget=1 << 30) as model:\n"
        "    seq = model.sequence(); seq.prefill(list(range(3, 40))); seq.decode(3)\n"
        "    print(model.n_ctx, model.context_note)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    n_ctx, note = done.stdout.split(" ", 1)
    assert 4096 < int(n_ctx) < 1 << 22
    assert note.startswith(f"a context of {n_ctx} tokens: the 16777216 that the model was trained for need")


@pytest.mark.parametrize("arch", sorted(FAMILIES))
def test_the_work_of_a_short_text_is_that_of_any_context(arch: str, file: Callable[..., Path]) -> None:
    """Ops and their fields are the same for 4096 tokens and for a million, except for addresses, the row stride of the
    page table, and the number of chunks of a text that may be shared among threads."""
    found = []
    for n_ctx in (4096, 1 << 20):
        with LoadedModel.load(file(arch), n_ctx=n_ctx, n_threads=2) as model:
            engine = model.engine
            found.append(
                [
                    [(op.kernel.name, name, value) for op in program.ops for name, value in small_fields(op)]
                    for program in (engine.program(part, n)[0] for part, n in sorted(engine.usual_shapes()))
                ]
            )
    assert found[0] == found[1]
    assert sum(map(len, found[0])) > 100


def small_fields(op: Any) -> Iterator[tuple[str, int]]:
    """Sizes, counts and settings of an op: all fields that are not addresses."""
    for field, value in zip(op.kernel.layout.fields, op.fields, strict=True):
        if isinstance(value, int) and value < 1 << 40 and field.name not in ("table_stride", "n_records"):
            yield field.name, value
