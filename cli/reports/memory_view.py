"""Memory that a model needs, and context lengths that fit a machine, for `hybrid inspect`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.machine_memory import ENDLESS, MachineMemory, machine_memory

from .. import console

if TYPE_CHECKING:
    from hybrid.infer.engine.estimate import Account, DiskReads, Estimate
    from hybrid.infer.memory.needs import KindNeeds
    from hybrid.pipeline.tower_facts import PictureNeeds

LENGTHS = (4096, 32768)  # context lengths in tokens, besides the trained one
SEQUENCES = (1, 2, 4, 8, 16)
FIT_TYPES = ("f32", "f16", "q8_0", "q5_0", "q4_0")  # types of keys and values, one for each size


@dataclass(frozen=True)
class MemoryFacts:
    """Memory of n_seq sequences with a KV cache of type kv_type: per kind of layer, and at several context lengths; and
    of pictures, None: the model has no vision tower."""

    kv_type: str
    n_seq: int
    n_ctx_train: int
    kinds: "list[KindNeeds]"
    accounts: "list[Account]"
    pictures: "PictureNeeds | None" = None

    def plain(self) -> dict[str, Any]:
        """The same for JSON."""
        accounts = [{**console.plain(one), "total": one.total} for one in self.accounts]
        pictures = self.pictures and {**console.plain(self.pictures), "total": self.pictures.total}
        return {**console.plain(self), "accounts": accounts, "pictures": pictures}


@dataclass(frozen=True)
class Fit:
    """The longest context of each of n_seq sequences; 0: too short to be useful."""

    n_seq: int
    kv_type: str
    n_ctx: int


@dataclass(frozen=True)
class FitFacts:
    """margin: bytes of the available memory that stay free; cache: limit of the prompt cache; pictures: bytes left for
    pictures; disk: what tokens read from the disk, None: the weights fit; disk_rate: its bytes per second, if known."""

    machine: MachineMemory
    is_this_machine: bool
    margin: int
    cache: int
    usual_context: int
    fits: list[Fit]
    pictures: int = 0
    disk: "DiskReads | None" = None
    disk_rate: float | None = None

    def plain(self) -> dict[str, Any]:
        """The same for JSON; mappable is null if there is no limit."""
        machine: dict[str, Any] = console.plain(self.machine)
        if self.machine.mappable == ENDLESS:
            machine["mappable"] = None
        return {**console.plain(self), "machine": machine}


def memory_facts(
    estimate: "Estimate", kv_type: str, n_seq: int, n_ctx: int, pictures: "PictureNeeds | None" = None
) -> MemoryFacts:
    """n_ctx: a context length to add to the usual ones; 0: none. pictures: None: the model has no vision tower."""
    trained = estimate.n_ctx_train
    lengths = sorted({n for n in (*LENGTHS, trained) if n <= trained} | ({n_ctx} if n_ctx else set()))
    accounts = [estimate.account(n, n_seq=n_seq, kv_type=kv_type) for n in lengths]
    return MemoryFacts(kv_type, n_seq, trained, estimate.kinds(kv_type), accounts, pictures)


def fit_facts(estimate: "Estimate", ram: int | None, cache: int, pictures: "PictureNeeds | None" = None) -> FitFacts:
    """ram: bytes for one program on another machine; None: this machine, now. pictures: as of `memory_facts`."""
    from hybrid.infer.bench.disk import read_rate
    from hybrid.infer.memory.needs import margin

    machine = machine_memory() if ram is None else MachineMemory.of(ram)
    beside = pictures.total if pictures else 0
    fits = [
        Fit(n, kind, estimate.longest(machine, n_seq=n, kv_type=kind, cache=cache, beside=beside))
        for n in SEQUENCES
        for kind in FIT_TYPES
    ]
    disk = estimate.disk_reads(machine)
    rate = read_rate(estimate.path) if disk is not None and ram is None else None
    free = margin(machine.available)
    return FitFacts(machine, ram is None, free, cache, estimate.usual_context, fits, beside, disk, rate)


def show_memory(facts: MemoryFacts) -> None:
    """Prints the facts as text."""
    several = f", {facts.n_seq} sequences" if facts.n_seq > 1 else ""
    console.out(console.bold(f"memory: keys and values in {facts.kv_type}{several}"))
    rows = [(k.mixer, k.n_layers, _or_dash(k.per_token), _or_dash(k.state)) for k in facts.kinds]
    if rows:
        console.out(console.table(("layers", "number", "per token", "per sequence"), rows, "lrrr"))
    else:
        console.out("no layer keeps anything")
    table = []
    for one in facts.accounts:
        parts = (one.weights, one.working, one.states, one.keys_values, one.positions, one.total)
        mark = " (as trained)" if one.n_ctx == facts.n_ctx_train else ""
        table.append((f"{one.n_ctx}{mark}", *map(_or_dash, parts)))
    heads = ("context", "weights", "working memory", "states", "keys and values", "positions", "in all")
    console.out("\n" + console.table(heads, table, "lrrrrrr"))
    if (more := facts.pictures) is not None:
        console.out(
            f"\npictures take {console.size(more.total)} more: the vision tower {console.size(more.tower)}, "
            f"reading one {console.size(more.reading)}, passes with them {console.size(more.passes)}"
        )


def show_fit(facts: FitFacts) -> None:
    """Prints the facts as text."""
    machine = facts.machine
    if facts.is_this_machine:
        of = f"this machine: {console.size(machine.available)} of {console.size(machine.total)} are available"
        if machine.mappable < ENDLESS:
            of += f", {console.size(machine.mappable)} can be mapped"
    else:
        of = f"a machine with {console.size(machine.available)} for one program"
    console.out(console.bold(f"what fits in {of}"))
    types = list(dict.fromkeys(fit.kv_type for fit in facts.fits))
    rows = []
    for n in SEQUENCES:
        cells = {fit.kv_type: str(fit.n_ctx or "-") for fit in facts.fits if fit.n_seq == n}
        rows.append((n, *(cells[kind] for kind in types)))
    console.out(console.table(("sequences", *types), rows, "r" * (1 + len(types))))
    console.out(
        f"The longest context of each sequence by type of keys and values, at most {facts.usual_context} tokens. "
        f"{console.size(facts.margin)} stay free,\nup to {console.size(facts.cache)} keep earlier texts "
        "(--checkpoint-budget). `hybrid serve` has one sequence more than --parallel."
        + (f"\n{console.size(facts.pictures)} are left for pictures." if facts.pictures else "")
    )
    if (disk := facts.disk) is not None:
        console.out(
            f"The weights do not fit. A token uses {console.size(disk.always + disk.used)} of them, and about "
            f"{console.size(disk.per_token)} must be read from the disk each time"
            + (
                f":\nat {console.size(round(facts.disk_rate))} per second, as measured now, "
                f"{facts.disk_rate / disk.per_token:.2g} tokens per second; more if some experts are used more often."
                if facts.disk_rate and disk.per_token
                else "."
            )
        )


def _or_dash(nbytes: int) -> str:
    return console.size(nbytes) if nbytes else "-"
