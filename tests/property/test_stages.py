"""A model in stages gives the bits of the whole model, whatever is done to its sequences; and the possible cuts."""

from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from random_checkpoints import CONFIGS, REPEATED
from staged_models import JAMBA, OPTIONS, RandomModel, check_same, rows, tokens
from test_conformance import MEMORIES

from hybrid.infer import LoadedModel, LoadOptions, Work
from hybrid.infer.engine.network import Network
from hybrid.infer.kernels.attention.kv import CACHE_TYPES
from hybrid.infer.memory.needs import LEAST_MARGIN
from hybrid.infer.stages.cuts import cuts_of, fewest, planned
from hybrid.infer.stages.line import LineHere
from hybrid.infer.stages.loading import load_staged
from hybrid.infer.stages.sizes import StageSizes, Texts
from hybrid.infer.stages.staged_engine import AUTO, StagedEngine
from hybrid.quant.ggml.errors import HybridError, UsageError
from hybrid.quant.ggml.machine_memory import MachineMemory
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.types import FileType

# Special cuts: what crosses beside the residual stream, and what prevents a cut.
CARRIED = {
    "zaya": {"router states"},
    "arwkv7": {"rwkv7 first value"},
    "rwkv7": {"rwkv7 first value"},
    "rwkv7b": {"rwkv7 first value", "normed embedding"},
    "longcat-flash-ngram": {"shortcut"},
    "gemma3n": {"per_layer_inputs"},
    "gemma4": {"per_layer_inputs"},
    "phi4flash": {"scanned"},
}
REFUSED = {
    "gemma3n": "block 4 uses the memory of block 2",
    "gemma4": "block 4 uses the memory of block 2",
    "phi4flash": "block 7 uses the memory of block 5",
    "glm5-next-streams": "later blocks use tokens that an earlier one has chosen (blk.2.lists)",
}
# one of each kind of layer, stream and memory
LAYERED = [
    "zaya", "arwkv7", "rwkv7", "rwkv7b", "gemma3n", "gemma4", "phi4flash", "glm5-next-streams", "zamba", "zamba2",
    "xlstm", "longcat-flash-ngram", "olmo-hybrid", "rwkv6", "lfm2moe", "falcon-h1", "deepseek4", "qwen4exp", "kimi-k3",
    "minimax-scaled", "deepseek-v2", "gpt2", "plamo2", "lfm3", "kimi-linear", "recurrentgemma", "qwen3next",
    "gpt-oss-rounded", "llama4-window", "nemotron-h-moe", "gemma3", "bailing-hybrid", "inkling", "inkling2-loop",
]  # fmt: skip


def everything(model: LoadedModel, folder: Path) -> list[np.ndarray]:
    """Results of all operations on sequences: processing, copies, guesses, shifts, files, rewinding."""
    ids, out = tokens(160), []
    a = model.sequence()
    out += [rows(model, Work(a, ids[:100], "all")), *map(a.decode, ids[100:104])]
    b = a.copy()
    out.append(b.verify(ids[104:108]))
    b.take_back(2)
    out.append(b.decode(ids[120]))
    c = model.sequence()
    works = [Work(a, ids[:5], "all"), Work(b, ids[5:6]), Work(c, ids[:33], slice(3, 20))]
    out += [result.logits for result in model.eval(works)]
    nll = model.eval([Work(a, ids[5:20], "all", targets=ids[6:21])])[0].nll
    assert nll is not None
    out.append(nll)
    if not model.memory.immovable:
        b.shift(2, 5)
        out.append(b.decode(5))
    a.save(folder / "a.state", checkpoints=1 << 20)
    out.append(model.restore(folder / "a.state", c).decode(7))
    c.clear()
    n = c.resume(ids[:140])
    out += [np.array([n]), c.prefill(ids[n:140])]
    n = c.rewind(120)
    out += [np.array([n]), c.prefill(ids[n:130])]
    c.fill(tokens(20))
    return out


@pytest.fixture(scope="module")
def jamba(random_model: RandomModel) -> Path:
    return random_model(JAMBA, FileType.Q8_0)


# --- bits ---
@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
@pytest.mark.parametrize("n_stages", [1, 2, 5])
def test_jamba_in_any_number_of_stages(n_stages: int, kv_type: str, jamba: Path, tmp_path: Path) -> None:
    options = replace(OPTIONS, kv_type=kv_type)
    with LoadedModel.load(jamba, options) as whole, load_staged(jamba, options, n_stages, LineHere) as staged:
        check_same(everything(staged, tmp_path), everything(whole, tmp_path))


def test_every_family_is_there() -> None:
    assert set(LAYERED) <= set(CONFIGS) and set(LAYERED) > {*CARRIED, *REFUSED} and not set(LAYERED) & set(REPEATED)


@pytest.mark.parametrize(
    "family",
    [
        n if n in MEMORIES or n in CARRIED or n in REFUSED else pytest.param(n, marks=pytest.mark.matrix)
        for n in LAYERED
    ],
)
def test_the_bits_of_one_machine(family: str, random_model: RandomModel, tmp_path: Path) -> None:
    path = random_model(family, FileType.F32)
    with LoadedModel.load(path, OPTIONS) as model:
        expected = everything(model, tmp_path)
    with open_gguf(path) as gguf:
        n_stages = 1 + sum(not cut.refused for cut in cuts_of(Network(gguf, 8), CACHE_TYPES["f16"]))
    assert n_stages > 1
    with load_staged(path, OPTIONS, n_stages, LineHere) as model:
        check_same(everything(model, tmp_path), expected)


def test_many_short_ubatches(jamba: Path) -> None:
    """More passes than can be in flight at a time."""
    options, ids = replace(OPTIONS, n_ubatch=16), tokens(250)
    with LoadedModel.load(jamba, options) as whole, load_staged(jamba, options, 3, LineHere) as staged:
        assert staged.engine.piece(250) == 16
        check_same(
            [rows(m, Work(m.sequence(), ids, "all")) for m in (staged,)],
            [rows(whole, Work(whole.sequence(), ids, "all"))],
        )


# --- cuts ---
@pytest.mark.parametrize("family", sorted({*CARRIED, *REFUSED}))
def test_what_crosses_a_cut_and_what_forbids_one(family: str, random_model: RandomModel) -> None:
    with open_gguf(random_model(family, FileType.F32)) as gguf:
        network = Network(gguf, 8)
        cuts = cuts_of(network, CACHE_TYPES["f32"])
        assert [cut.block for cut in cuts] == list(range(1, network.hparams.n_layer))
        assert {name for cut in cuts for name, _ in cut.carried} == CARRIED.get(family, set())
        refused = {cut.refused for cut in cuts if cut.refused}
        assert (REFUSED[family] in refused) if family in REFUSED else not refused
        with pytest.raises(UsageError, match=r"can be cut into at most [0-9]+"):
            planned(StageSizes(network), cuts, len(cuts) + 2)


def test_stages_are_alike_in_size(jamba: Path) -> None:
    """No other cuts make the largest stage smaller."""
    with open_gguf(jamba) as gguf:
        network = Network(gguf, 8)
        cuts, sizes = cuts_of(network, CACHE_TYPES["f32"]), StageSizes(network)
        found = max(sizes.all(planned(sizes, cuts, 3)))
        others = [max(sizes.all([range(a), range(a, b), range(b, 5)])) for a in range(1, 4) for b in range(a + 1, 5)]
        assert found == min(others)


@pytest.mark.parametrize("seed", range(20))
def test_stages_fit_their_machines(jamba: Path, seed: int) -> None:
    """Compared with all possible cuts."""
    rng = np.random.default_rng(seed)
    with open_gguf(jamba) as gguf:
        network = Network(gguf, 8)
        cuts = cuts_of(network, CACHE_TYPES["f32"])
        texts = Texts(CACHE_TYPES["f16"], 3, 5000, 1 << 16) if seed % 2 else None
        of_stages = StageSizes(network, texts)
        whole = of_stages.of(range(5))
        rooms = [int(whole * share) for share in rng.uniform(0.1, 1.0, 4)]
        best: dict[int, tuple[bool, float]] = {}  # for every number of stages: (whether they do not fit, size)
        for n in range(1, 5):
            for places in combinations(range(1, 5), n - 1):
                sizes = of_stages.all([range(a, b) for a, b in pairwise([0, *places, 5])])
                shares = [size / room for size, room in zip(sizes, rooms, strict=False)]
                rank = (True, max(shares)) if max(shares) > 1 else (False, float(max(sizes)))
                best[n] = min(best.get(n, rank), rank)
            stages = planned(of_stages, cuts, n, rooms)
            assert [stages[0].start, stages[-1].stop] == [0, 5] and len(stages) == n
            sizes = of_stages.all(stages)
            too_large, cost = best[n]
            found = max(a / b for a, b in zip(sizes, rooms, strict=False)) if too_large else max(sizes)
            assert found == pytest.approx(cost, rel=1e-12)
        least = next((n for n in range(1, 5) if not best[n][0]), None)
        stages = fewest(of_stages, cuts, rooms)
        assert (len(stages) or None) == least
        assert not stages or stages == planned(of_stages, cuts, len(stages), rooms)


class SmallMachines(LineHere):
    """rooms: free bytes of each machine."""

    rooms: tuple[int, ...] = ()

    def machines(self) -> list[MachineMemory]:
        return [MachineMemory.of(room) for room in self.rooms]


def small_machines(path: Path, options: LoadOptions, *shares: float) -> type[SmallMachines]:
    """Machines with the given shares of the model's need, besides the reserve and the working memory of passes."""
    with load_staged(path, options, 1, LineHere) as model:
        assert isinstance(model.engine, StagedEngine)
        texts = Texts(CACHE_TYPES["f16"], options.n_seq_max, model.n_ctx, options.checkpoint_budget)
        whole = StageSizes(model.engine.network, texts).of(range(5))
        other = LEAST_MARGIN + model.engine.working_bytes(model.n_ctx, options.n_seq_max)
    return type("Line", (SmallMachines,), {"rooms": tuple(other + int(whole * share) for share in shares)})


@pytest.mark.exhaustive
def test_as_many_stages_as_memory_asks_for(jamba: Path) -> None:
    """For weights and for the memory of texts."""
    said: list[str] = []
    for options in (replace(OPTIONS, checkpoint_budget=0, n_ctx=16), replace(OPTIONS, n_ctx=9000)):

        def opened(n: int, *shares: float, options: LoadOptions = options) -> int:
            with load_staged(jamba, options, n, small_machines(jamba, options, *shares), said.append) as model:
                assert isinstance(model.engine, StagedEngine)
                return len(model.engine.stages)

        assert opened(AUTO, 1.01, 4, 4) == 1
        assert opened(AUTO, 0.99, 4, 4) == 2
        assert opened(3, 4, 4, 4) == 3 and not said
        assert opened(2, 0.01, 4) == 2
        assert len(said) == 1 and said[0].startswith("blocks 0 to 0 need ") and " free for them: " in said[0]
        assert f"with their part of 3 sequences of {options.n_ctx} tokens, their worker has " in said[0]
        with pytest.raises(
            UsageError, match=r"tokens does not fit the free memory of 2 workers \(.*Start more of them, give"
        ):
            opened(AUTO, 0.1, 0.4)
        said.clear()


@pytest.mark.parametrize("n", [AUTO, 3])
def test_a_context_that_every_stage_has_room_for(n: int, random_model: RandomModel) -> None:
    """Two layers have keys and values: a third machine's memory does not allow a longer context."""
    path = random_model(replace(JAMBA, name="long-jamba", n_ctx_train=1 << 20), FileType.Q8_0)
    options = replace(OPTIONS, checkpoint_budget=0)
    machines = small_machines(path, replace(options, n_ctx=30000), 0.8, 0.8, 0.8)
    with load_staged(path, replace(options, n_ctx=0), n, machines) as model:
        engine = model.engine
        assert isinstance(engine, StagedEngine) and len(engine.stages) == (n or 2) and not engine.tight
        assert 1.55 * 30000 < model.n_ctx < 1.65 * 30000 and model.n_ctx % 1024 == 0
        assert "no cut makes every stage fit" in engine.context.note


def test_a_stage_asks_for_its_own_tensors_alone(jamba: Path) -> None:
    lines: list[LineHere] = []

    def line(gguf: GGUFFile) -> LineHere:
        lines.append(LineHere(gguf))
        return lines[-1]

    with load_staged(jamba, OPTIONS, 3, line) as model:
        asked = [stage.tensors for stage in lines[0].stages]
        assert sorted(set().union(*asked)) == sorted(model.gguf.tensors)
        for stage, names in zip(lines[0].stages, asked, strict=True):
            assert {int(name.split(".")[1]) for name in names if name.startswith("blk.")} == set(stage.blocks)
        ends = {name for name in model.gguf.tensors if not name.startswith("blk.")}
        assert not asked[1] & ends and asked[0] & ends == {"token_embd.weight"} and "output_norm.weight" in asked[2]


# --- refusals ---
def test_what_looks_into_passes_is_refused(jamba: Path) -> None:
    with load_staged(jamba, OPTIONS, 2, LineHere) as model:
        seq = model.sequence()
        for use in (
            lambda: model.profile([Work(seq, [5])]),
            lambda: model.engine.trace([]),
            lambda: model.engine.collecting(None),
        ):  # type: ignore[arg-type,return-value]
            with pytest.raises(HybridError, match="stages"):
                use()
    with pytest.raises(UsageError, match="checkpoint_type"):
        load_staged(jamba, replace(OPTIONS, checkpoint_type="f16"), 2, LineHere)
