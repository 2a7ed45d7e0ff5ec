"""A model in stages gives the bits of the model in one piece, whatever is done to its sequences; where it can be cut;
and what a stage that is lost, or a stop, leaves."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from random_checkpoints import CONFIGS
from random_plain import REPEATED

from hybrid.infer import Interrupted, LoadOptions, Model, Sequence, Stop, Work
from hybrid.infer.bench.shapes import Shape
from hybrid.infer.engine.network import Network
from hybrid.infer.kernels.attention.kv import KV_TYPES
from hybrid.infer.stages.cuts import cuts_of, fewest, planned, stage_bytes
from hybrid.infer.stages.engine import AUTO, StagedEngine
from hybrid.infer.stages.line import LineHere, Ticket
from hybrid.infer.stages.loading import load_staged
from hybrid.infer.stages.orders import Order, Pass
from hybrid.quant.ggml.errors import HybridError, LostStageError, UsageError
from hybrid.quant.ggml.machine_memory import MachineMemory
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.types import FileType

JAMBA = Shape(
    "staged-jamba", "jamba", 5, 96, 320, 512, 1e-6, n_ff=160, n_head=3, n_head_kv=1, head_dim=32, attn_offset=1,
    attn_period=3, d_state=7, d_conv=3, dt_rank=5, n_expert=5, n_expert_used=2, expert_offset=1, expert_period=2,
)  # fmt: skip
RandomModel = Callable[[Shape | str, FileType], Path]
# Where a cut is not like any other: what crosses beside the residual stream, and what keeps it from being made.
CARRIED = {
    "zaya": {"router states"}, "arwkv7": {"rwkv7 first value"}, "rwkv7": {"rwkv7 first value"},
    "gemma3n": {"per_layer_inputs"}, "gemma4": {"per_layer_inputs"}, "phi4flash": {"scanned"},
}  # fmt: skip
REFUSED = {
    "gemma3n": "block 4 uses what block 2 keeps of the text",
    "gemma4": "block 4 uses what block 2 keeps of the text",
    "phi4flash": "block 7 uses what block 5 keeps of the text",
    "glm5-next-streams": "later blocks use what an earlier one has chosen (blk.2.lists)",
}
# one of each kind of layer, stream and memory
LAYERED = [
    "zaya", "arwkv7", "rwkv7", "gemma3n", "gemma4", "phi4flash", "glm5-next-streams", "zamba", "zamba2", "xlstm",
    "olmo-hybrid", "rwkv6", "lfm2moe", "falcon-h1", "deepseek4", "qwen4exp", "kimi-k3", "minimax-scaled",
    "deepseek-v2", "gpt2", "plamo2", "lfm3", "kimi-linear", "recurrentgemma", "qwen3next", "gpt-oss-rounded",
    "llama4-window", "nemotron-h-moe", "gemma3", "bailing-hybrid",
]  # fmt: skip
OPTIONS = LoadOptions(n_ctx=300, n_seq_max=3, n_threads=1, checkpoint_budget=1 << 20)


def tokens(n: int, seed: int = 3) -> list[int]:
    return np.random.default_rng(seed).integers(260, 320, n).tolist()


def everything(model: Model, folder: Path) -> list[np.ndarray]:
    """What comes out of all that can be done to sequences: reading, copies, guesses, shifts, files, going back."""
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


def rows(model: Model, work: Work) -> np.ndarray:
    values = model.eval([work])[0].logits
    assert values is not None
    return values


def check_same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.shape == b.shape and a.tobytes() == b.tobytes(), i


@pytest.fixture(scope="module")
def jamba(random_model: RandomModel) -> Path:
    return random_model(JAMBA, FileType.Q8_0)


# --- bits ---
@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
@pytest.mark.parametrize("n_stages", [1, 2, 5])
def test_jamba_in_any_number_of_stages(n_stages: int, kv_type: str, jamba: Path, tmp_path: Path) -> None:
    options = replace(OPTIONS, kv_type=kv_type)
    with Model.load(jamba, options) as whole, load_staged(jamba, options, n_stages, LineHere) as staged:
        check_same(everything(staged, tmp_path), everything(whole, tmp_path))


def test_every_family_is_there() -> None:
    assert set(LAYERED) <= set(CONFIGS) and set(LAYERED) > {*CARRIED, *REFUSED} and not set(LAYERED) & set(REPEATED)


@pytest.mark.parametrize("family", LAYERED)
def test_the_bits_of_one_machine(family: str, random_model: RandomModel, tmp_path: Path) -> None:
    path = random_model(family, FileType.F32)
    with Model.load(path, OPTIONS) as model:
        expected = everything(model, tmp_path)
    with open_gguf(path) as gguf:
        n_stages = 1 + sum(not cut.refused for cut in cuts_of(Network(gguf, 8), KV_TYPES["f16"]))
    assert n_stages > 1
    with load_staged(path, OPTIONS, n_stages, LineHere) as model:
        check_same(everything(model, tmp_path), expected)


def test_many_short_ubatches(jamba: Path) -> None:
    """More passes than can be under way at a time."""
    options, ids = replace(OPTIONS, n_ubatch=16), tokens(250)
    with Model.load(jamba, options) as whole, load_staged(jamba, options, 3, LineHere) as staged:
        assert staged.engine.piece(250) == 16
        check_same([rows(m, Work(m.sequence(), ids, "all")) for m in (staged,)],
                   [rows(whole, Work(whole.sequence(), ids, "all"))])  # fmt: skip


# --- where ---
@pytest.mark.parametrize("family", sorted({*CARRIED, *REFUSED}))
def test_what_crosses_a_cut_and_what_forbids_one(family: str, random_model: RandomModel) -> None:
    with open_gguf(random_model(family, FileType.F32)) as gguf:
        network = Network(gguf, 8)
        cuts = cuts_of(network, KV_TYPES["f32"])
        assert [cut.block for cut in cuts] == list(range(1, network.hparams.n_layer))
        assert {name for cut in cuts for name, _ in cut.carried} == CARRIED.get(family, set())
        refused = {cut.refused for cut in cuts if cut.refused}
        assert (REFUSED[family] in refused) if family in REFUSED else not refused
        with pytest.raises(UsageError, match=r"can be cut into at most [0-9]+"):
            planned(network, cuts, len(cuts) + 2)


def test_stages_are_alike_in_size(jamba: Path) -> None:
    """No other cuts make the largest stage smaller."""
    with open_gguf(jamba) as gguf:
        network = Network(gguf, 8)
        cuts = cuts_of(network, KV_TYPES["f32"])
        found = max(stage_bytes(network, planned(network, cuts, 3)))
        others = [
            max(stage_bytes(network, [range(a), range(a, b), range(b, 5)]))
            for a in range(1, 4)
            for b in range(a + 1, 5)
        ]
        assert found == min(others)


@pytest.mark.parametrize("seed", range(20))
def test_stages_fit_their_machines(jamba: Path, seed: int) -> None:
    """As every way to cut says it, tried one by one."""
    rng = np.random.default_rng(seed)
    with open_gguf(jamba) as gguf:
        network = Network(gguf, 8)
        cuts = cuts_of(network, KV_TYPES["f32"])
        whole = stage_bytes(network, [range(5)])[0]
        rooms = [int(whole * share) for share in rng.uniform(0.1, 1.0, 4)]
        best: dict[int, tuple[bool, float]] = {}  # of every number of stages: whether they do not fit, and how large
        for n in range(1, 5):
            for places in combinations(range(1, 5), n - 1):
                sizes = stage_bytes(network, [range(a, b) for a, b in pairwise([0, *places, 5])])
                shares = [size / room for size, room in zip(sizes, rooms, strict=False)]
                rank = (True, max(shares)) if max(shares) > 1 else (False, float(max(sizes)))
                best[n] = min(best.get(n, rank), rank)
            stages = planned(network, cuts, n, rooms)
            assert [stages[0].start, stages[-1].stop] == [0, 5] and len(stages) == n
            sizes = stage_bytes(network, stages)
            too_large, cost = best[n]
            found = max(a / b for a, b in zip(sizes, rooms, strict=False)) if too_large else max(sizes)
            assert found == pytest.approx(cost, rel=1e-12)
        least = next((n for n in range(1, 5) if not best[n][0]), None)
        stages = fewest(network, cuts, rooms)
        assert (None if stages is None else len(stages)) == least
        assert stages is None or stages == planned(network, cuts, len(stages), rooms)


class SmallMachines(LineHere):
    """rooms: bytes that are free on each."""

    rooms: tuple[int, ...] = ()

    def machines(self) -> list[MachineMemory]:
        return [MachineMemory.of(room) for room in self.rooms]


def test_as_many_stages_as_memory_asks_for(jamba: Path) -> None:
    with open_gguf(jamba) as gguf:
        whole = stage_bytes(Network(gguf, 8), [range(5)])[0]
    said: list[str] = []

    def opened(n: int, *rooms: float) -> int:
        line = type("Line", (SmallMachines,), {"rooms": tuple(int(whole * room) for room in rooms)})
        with load_staged(jamba, replace(OPTIONS, checkpoint_budget=0, n_ctx=16), n, line, said.append) as model:
            assert isinstance(model.engine, StagedEngine)
            return len(model.engine.stages)

    assert opened(AUTO, 40, 40, 40) == 1
    assert opened(AUTO, 1.1, 40) == 2, "a part of it is for what is computed"
    assert opened(3, 40, 40, 40) == 3 and not said
    assert opened(2, 0.1, 40) == 2
    assert len(said) == 1 and said[0].startswith("blocks 0 to 0 are ") and " free for them: " in said[0]
    with pytest.raises(UsageError, match=r"does not fit what 2 workers have free for weights \(.*Start more"):
        opened(AUTO, 0.1, 40 / 100)


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


# --- what goes wrong ---
class Broken(LineHere):
    """A line on which some passes, counted from 0, come to nothing."""

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.n, self.at, self.opened = 0, set[int](), 0
        self.error: BaseException = LostStageError("worker 2 has gone.")

    def open(self, openings: object) -> None:
        super().open(openings)  # type: ignore[arg-type]
        self.opened += 1

    def put(self, order: Order) -> Ticket:
        ticket = super().put(order)
        if isinstance(order.what, Pass):
            self.n += 1
            if self.n - 1 in self.at:
                return _Never(self.error)
        return ticket


class _Never:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def wait(self, stop: Stop | None) -> list:
        raise self.error


@pytest.fixture
def broken(jamba: Path) -> Iterator[tuple[Model, Broken, list[str]]]:
    lines, said = list[Broken](), list[str]()

    def line(gguf: GGUFFile) -> Broken:
        lines.append(Broken(gguf))
        return lines[-1]

    with load_staged(jamba, replace(OPTIONS, n_ubatch=32), 2, line, said.append) as model:
        yield model, lines[0], said


def answered(model: Model, seq: Sequence, ids: list[int], n: int) -> list[int]:
    """Greedily."""
    logits, drawn = seq.prefill(ids), list[int]()
    for _ in range(n):
        drawn.append(int(logits.argmax()))
        logits = seq.decode(drawn[-1])
    return drawn


@pytest.mark.parametrize("at", [{0}, {2}, {6}, {9}, {4, 8}])
def test_a_lost_stage_costs_a_line(at: set[int], jamba: Path, broken: tuple[Model, Broken, list[str]]) -> None:
    """In the prompt, in the answer, in what is read again."""
    model, line, said = broken
    line.at = at
    with Model.load(jamba, OPTIONS) as whole:
        expected = answered(whole, whole.sequence(), tokens(100), 12)
    beside = model.sequence()
    assert answered(model, model.sequence(), tokens(100), 12) == expected
    assert line.opened == 1 + len(said) and len(said) == len(at)
    assert all(text.startswith("worker 2 has gone. Reading ") and text.endswith(" tokens again.") for text in said)
    assert beside.n_past == 0


def test_what_stays_lost_is_an_error(broken: tuple[Model, Broken, list[str]]) -> None:
    model, line, said = broken
    line.at = set(range(100))
    with pytest.raises(LostStageError):
        model.sequence().prefill(tokens(50))
    assert 1 <= len(said) <= 3


def test_moved_text_cannot_be_taken_up(broken: tuple[Model, Broken, list[str]]) -> None:
    model, line, said = broken
    seq = model.sequence()
    seq.prefill(tokens(50))
    seq.shift(4, 6)
    line.at = {line.n}
    with pytest.raises(LostStageError):
        seq.decode(300)
    assert len(said) == 1 and seq.tokens == []
    assert np.isfinite(seq.prefill(tokens(20))).all()


def test_a_stop_leaves_sequences_as_they_were(jamba: Path, broken: tuple[Model, Broken, list[str]]) -> None:
    model, line, said = broken
    ids = tokens(120)
    a, b = model.sequence(), model.sequence()
    for seq in (a, b):
        seq.prefill(ids[:40])
    with pytest.raises(Interrupted):
        line.error, line.at = Interrupted(), {line.n + 2}
        model.eval([Work(a, ids[40:], "all"), Work(b, ids[40:90], "all")])
    assert a.tokens == b.tokens == ids[:40] and a.n_past == b.n_past == 40 and not said
    with Model.load(jamba, OPTIONS) as whole:
        seq = whole.sequence()
        seq.prefill(ids[:40])
        expected = rows(whole, Work(seq, ids[40:], "all"))
    check_same([rows(model, Work(a, ids[40:], "all")), rows(model, Work(b, ids[40:], "all"))], [expected, expected])


def test_places_in_the_memory_do_not_leak(broken: tuple[Model, Broken, list[str]]) -> None:
    """After stops and losses there are as many free pages and rows as before."""
    model, line, _ = broken
    for error in (Interrupted(), LostStageError("gone.")):
        seq = model.sequence()
        seq.prefill(tokens(40))
        line.error, line.at = error, {line.n + 1}
        with suppress(Interrupted):
            model.eval([Work(seq, tokens(90), "none")])
        seq.close(remember=False)
    assert model.cache is not None
    model.cache.clear()
    assert model.memory.attention.pool.used == model.memory.recurrent.pool.used == 0


def test_what_looks_into_passes_is_refused(jamba: Path) -> None:
    with load_staged(jamba, OPTIONS, 2, LineHere) as model:
        seq = model.sequence()
        for use in (lambda: model.profile([Work(seq, [5])]), lambda: model.engine.trace([]),
                    lambda: model.engine.collecting(None)):  # type: ignore[arg-type,return-value]  # fmt: skip
            with pytest.raises(HybridError, match="stages"):
                use()
    with pytest.raises(UsageError, match="checkpoint_type"):
        load_staged(jamba, replace(OPTIONS, checkpoint_type="f16"), 2, LineHere)
