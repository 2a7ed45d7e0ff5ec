"""Options for loading a model, the same in every command that has them.

    @takes_groups
    def command(..., *, n_ctx: Context = 0, machine: Machine, precision: Precision) -> None:
        with models.load(model, load_options(machine, precision, n_ctx=n_ctx)) as loaded: ...

Defaults and checks belong to `LoadOptions`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from hybrid.infer.loading.options import DEFAULT_KV_TYPE, KVTypeName, LoadOptions, checked_kv_type
from hybrid.quant.ggml.byte_sizes import UNITS, parse_size
from hybrid.quant.ggml.cpus import parse_cpus
from hybrid.quant.ggml.errors import UsageError, shown


class StateTypes(StrEnum):
    """Values of --checkpoint-type."""

    F32 = "f32"
    F16 = "f16"
    Q8_0 = "q8_0"


class Numa(StrEnum):
    """Values of --numa."""

    INTERLEAVE = "interleave"


class PoolingName(StrEnum):
    """Values of --pooling."""

    CLS = "cls"
    MEAN = "mean"
    LAST = "last"


# --- declarations ---
EXACT_HELP = "Do not round activations to 8 bits; slower."
KV_TYPE_HELP = (
    f"Type of the KV cache: {', '.join(get_args(KVTypeName))}. Default: f16, or f32 with --exact. As in q8_0/q4_0: "
    "keys and values apart."
)
LORA_HELP = "LoRA adapter (GGUF) to apply while running, with its scale. Default scale: 1. May be repeated."
LEAST_CHUNK, CHUNK, BATCH = 8, 512, 2048  # tokens


def context_option(help: str, least: int = 0) -> Any:
    """The option -c with its own help text."""
    return typer.Option("-c", "--ctx", min=least, help=help)


def kv_type_option(panel: str | None = None) -> Any:
    """The option --kv-type, in this panel of the help."""
    return typer.Option("--kv-type", metavar="TYPE", help=KV_TYPE_HELP, rich_help_panel=panel)


Context = Annotated[int, context_option("Context length in tokens; 0: as trained, or less if memory is short.")]
ChunkTokens = Annotated[int, context_option("Tokens per chunk.", LEAST_CHUNK)]
BatchTokens = Annotated[
    int, typer.Option("-b", "--batch", min=1, help="Tokens evaluated at a time: b / c chunks run together.")
]
Threads = Annotated[int, typer.Option("-t", "--threads", min=0, help="Worker threads; 0: all cores.")]
Exact = Annotated[bool, typer.Option("--exact", help=EXACT_HELP)]
KVTypeOption = Annotated[str | None, kv_type_option()]
Lora = Annotated[list[str] | None, typer.Option("--lora", metavar="FILE[:SCALE]", help=LORA_HELP)]
DEFAULT_BUDGET = "1GiB"
CheckpointBudget = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        help=f"Memory for the prompt cache, so that no text is processed twice; 0: no cache. {UNITS}.",
    ),
]


# --- groups ---
@dataclass(frozen=True, eq=False, repr=False)
class Pinning:
    """The processors and memory nodes to use."""

    cpus: Annotated[
        str | None,
        typer.Option(
            "--cpus",
            metavar="LIST",
            help="Processors to pin threads to, one thread each, as in 0-7,16. -t may ask for fewer threads.",
        ),
    ] = None
    numa: Annotated[
        Numa | None,
        typer.Option(
            "--numa",
            help="Memory placement on machines with several NUMA nodes: interleave spreads the model over all nodes.",
        ),
    ] = None

    def check(self, cluster: str | None) -> None:
        """UsageError: --cpus or --numa is given together with --cluster."""
        if self.cpus is not None and cluster is not None:
            raise UsageError(
                "--cpus names processors of this machine, --cluster works on others. Leave out one of them."
            )
        if self.numa is not None and cluster is not None:
            raise UsageError(
                "--numa is about memory of this machine, --cluster works on others. Leave out one of them."
            )


@dataclass(frozen=True, eq=False, repr=False)
class ThreadOptions:
    """Number of threads, and the processors they run on."""

    threads: Threads = 0
    pinning: Pinning = field(default_factory=Pinning)


@dataclass(frozen=True, eq=False, repr=False)
class Precision:
    """Precision of the computation and of the KV cache."""

    exact: Exact = False
    kv_type: KVTypeOption = None
    k_type: Annotated[
        str | None, typer.Option("--k-type", metavar="TYPE", help="Type of the keys, in place of --kv-type.")
    ] = None
    v_type: Annotated[
        str | None, typer.Option("--v-type", metavar="TYPE", help="Type of the values, in place of --kv-type.")
    ] = None

    @property
    def keys_values(self) -> str | None:
        """The type, or the types as in q8_0/q4_0; None: the default. UsageError: unknown, named by its option."""
        given = checked_kv_type(self.kv_type, "--kv-type ") if self.kv_type is not None else None
        if self.k_type is None and self.v_type is None:
            return given
        keys, _, values = (given or DEFAULT_KV_TYPE["exact" if self.exact else "fast"]).partition("/")
        for name, one in (("--k-type", self.k_type), ("--v-type", self.v_type)):
            if one is not None and "/" in checked_kv_type(one, f"{name} "):
                raise UsageError(f"{name} {shown(one)}: expected one type. Use --kv-type {shown(one)}.")
        return f"{self.k_type or keys}/{self.v_type or values or keys}"


@dataclass(frozen=True, eq=False, repr=False)
class Checkpoints:
    """Size and type of the prompt cache."""

    checkpoint_budget: CheckpointBudget = DEFAULT_BUDGET
    checkpoint_type: Annotated[
        StateTypes,
        typer.Option(
            help="Type of recurrent states in the prompt cache: f32 is exact; f16 and q8_0 take fewer bytes and round."
        ),
    ] = StateTypes.F32


# --- conversion ---
ANY_MACHINE, USUAL_PRECISION, NO_CHECKPOINTS = ThreadOptions(), Precision(), Checkpoints("0")


def load_options(
    machine: ThreadOptions = ANY_MACHINE,
    precision: Precision = USUAL_PRECISION,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
    *,
    n_ctx: int = LoadOptions.n_ctx,
    lora: Sequence[str] | None = None,
) -> LoadOptions:
    """The options as `LoadOptions`. UsageError names the wrong option."""
    pinning = machine.pinning
    return LoadOptions(
        n_ctx=n_ctx,
        n_threads=machine.threads,
        cpus=parse_cpus(pinning.cpus, "--cpus") if pinning.cpus is not None else (),
        numa=pinning.numa.value if pinning.numa else None,
        precision="exact" if precision.exact else "fast",
        kv_type=precision.keys_values,
        lora=tuple(parse_lora(text) for text in lora or ()),
        checkpoint_budget=parse_size(checkpoints.checkpoint_budget, "--checkpoint-budget"),
        checkpoint_type=checkpoints.checkpoint_type.value,
    )


def chunks_together(n_ctx: int, n_batch: int) -> int:
    """The number of chunks of n_ctx tokens that are evaluated together in a batch of n_batch."""
    return max(1, n_batch // n_ctx)


def parse_lora(text: str) -> tuple[Path, float]:
    """Splits FILE:SCALE into path and scale; the scale of FILE alone is 1."""
    path, colon, scale = text.rpartition(":")
    if not colon or Path(text).exists():
        return Path(text), 1.0
    try:
        return Path(path), float(scale)
    except ValueError:
        return Path(text), 1.0
