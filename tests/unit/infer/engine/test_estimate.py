"""Estimated memory against the arrays of a loaded model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from converted_models import converted
from pairwise import in_turn, mostly_long
from random_models import random_model

from hybrid.infer import LoadedModel, Work
from hybrid.infer.engine import engine as engine_module
from hybrid.infer.engine.estimate import DiskReads, Estimate
from hybrid.infer.layers import attention as attention_module
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.machine_memory import MachineMemory
from hybrid.quant.ggml.reader import GGUFFile

pytestmark = pytest.mark.exhaustive

MIB, GIB = 1 << 20, 1 << 30
CHECKPOINTS = ["falcon-mamba", "jamba-11m", "jamba-dense", "llama-unigram-bin", "mamba-bf16"]


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory, data_dir: Path, bundled: Path) -> Callable[[str], Path]:
    """gguf(name): a checkpoint of tests/data, or a tiny model."""
    folder, made = tmp_path_factory.mktemp("models"), dict[str, Path]()

    def get(name: str) -> Path:
        if name not in made:
            path = folder / f"{name}.gguf"
            if name in tiny_models.FAMILIES:
                made[name] = tiny_models.FAMILIES[name]().write(path)
            else:
                source = bundled if name == bundled.name else data_dir / "checkpoints" / name
                made[name] = converted(source)
        return made[name]

    return get


def test_all_checkpoints_are_here(data_dir: Path) -> None:
    """New checkpoints must also be estimated."""
    assert sorted(path.name for path in (data_dir / "checkpoints").iterdir()) == CHECKPOINTS


NAMES = [*CHECKPOINTS, *tiny_models.FAMILIES]
SETTINGS = [(1, "f16"), (3, "q8_0"), (1, "q8_0"), (3, "f16")]


@pytest.mark.parametrize(("name", "settings"), list(mostly_long(in_turn(NAMES, SETTINGS), NAMES, SETTINGS)))
def test_the_account_is_what_is_allocated(
    name: str, settings: tuple[int, Any], gguf: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts every array of a model in which n_seq sequences are full."""
    n_seq, kv_type = settings
    n_ctx, tables = 1100, list[np.ndarray]()
    mapped = attention_module.mapped_zeros
    monkeypatch.setattr(attention_module, "mapped_zeros", lambda *given: tables.append(mapped(*given)) or tables[-1])
    with LoadedModel.load(gguf(name), n_ctx=n_ctx, n_seq_max=n_seq, kv_type=kv_type, n_threads=2) as model:
        random = np.random.default_rng(3)
        seqs = [model.sequence() for _ in range(n_seq)]
        model.eval([Work(seq, random.integers(3, 50, n_ctx - 2).tolist()) for seq in seqs])
        for seq in seqs:
            model.step(seq, 4)
        engine, memory = model.engine, model.memory
        for part, n in engine.usual_shapes():
            engine.program(part, n)
        weights = sum(t.nbytes for t in model.gguf.tensors.values())
        keys_values = sum(a.nbytes for a in [*memory.attention.k.values(), *memory.attention.v.values()])
        if memory.attention.specs:
            keys_values += memory.attention.table.nbytes
        # rows for speculation are also counted; two of each sequence have been used by now
        rows = sum(a.nbytes for a in memory.recurrent.arrays())
        states = rows * 2 * n_seq // memory.recurrent.pool.size if rows else 0
        arenas = sum(program.arena.nbytes for program, _ in engine._programs.values())
        copied = sum(values.nbytes for values in engine.network.weights.kept)
        stream = engine.network._stream.nbytes
        positions = sum(table.nbytes for table in tables)
        assert set(engine._programs) == engine.usual_shapes()
    with Estimate(gguf(name), n_threads=2) as estimate:
        account = estimate.account(n_ctx, n_seq=n_seq, kv_type=kv_type)
    assert account.keys_values == keys_values
    assert account.states == states
    assert account.positions == positions
    assert weights <= account.weights <= weights + 300_000  # with the metadata
    real = arenas + copied + stream
    assert real <= account.working <= 1.05 * real + 200_000


@pytest.mark.parametrize("name", ["jamba-11m", "llama-unigram-bin", "mamba-bf16"])
def test_the_longest_context_is_what_the_loader_chooses(
    name: str, gguf: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gguf(name)
    for free in (40 * MIB, 190 * MIB, 210 * MIB, GIB):
        machine = MachineMemory(4 * GIB, free)
        monkeypatch.setattr(engine_module, "machine_memory", lambda machine=machine: machine)
        for n_seq, budget in ((1, 0), (9, 0), (9, 8 * MIB)):
            with Estimate(path, n_threads=1) as estimate:
                longest = estimate.longest(machine, n_seq=n_seq, kv_type="f32", cache=budget)
                usual = estimate.usual_context
            options = {"n_seq_max": n_seq, "kv_type": "f32", "checkpoint_budget": budget, "n_threads": 1}
            with LoadedModel.load(path, **options) as model:
                assert model.n_ctx == max(longest, min(4096, usual))
                assert model.n_ctx_train >= longest


def test_kinds_of_layers(gguf: Callable[[str], Path]) -> None:
    with Estimate(gguf("jamba-11m")) as estimate:
        kinds = {kind.mixer: kind for kind in estimate.kinds("f16")}
        assert {mixer: kind.n_layers for mixer, kind in kinds.items()} == {"Mamba": 6, "attention": 2}
        assert kinds["attention"].per_token == 1024 and kinds["attention"].state == 0
        account = estimate.account(6400, n_seq=2)
        assert kinds["Mamba"].per_token == 0 and 2 * kinds["Mamba"].state == account.states
        assert account.keys_values == 2 * (6400 * 1024 + 8 * 100)
        assert estimate.kinds("q8_0")[1].per_token < 600


def test_weights_that_are_read_from_the_disk() -> None:
    """A quarter of the experts' room: a quarter of a token's experts is there. Otherwise all is read again."""
    assert DiskReads.of(100, 800, 80, 300) == DiskReads(100, 800, 80, 60)
    assert DiskReads.of(100, 800, 80, 99) == DiskReads(100, 800, 80, 180)
    assert DiskReads.of(100, 0, 0, 99) == DiskReads(100, 0, 0, 100)
    path = random_model("qwen3moe")
    with Estimate(path) as estimate, GGUFFile.open(path) as file:
        assert estimate.disk_reads(MachineMemory.of(GIB)) is None
        found = estimate.disk_reads(MachineMemory.of(1))
        assert found is not None
        assert found.experts == sum(t.nbytes for name, t in file.tensors.items() if "_exps" in name)
        assert found.used == found.experts * 2 // 5
        assert found.always == file.nbytes - found.experts - file.info("token_embd.weight").nbytes
        assert found.per_token == found.always + found.used


def test_what_makes_no_sense(gguf: Callable[[str], Path]) -> None:
    with Estimate(gguf("llama")) as estimate:
        for n_ctx, n_seq in ((0, 1), (5, 0), (-1, 1)):
            with pytest.raises(UsageError, match=r"expected at least one of each"):
                estimate.account(n_ctx, n_seq=n_seq)
        assert estimate.longest(MachineMemory.of(0)) == 0
