"""Settings for loading a model, with defaults and checks, for the library, the command line and servers.

    LoadOptions(n_ctx=4096, kv_type="q8_0")
    LoadOptions.from_json({"n_ctx": 4096, "checkpoint_budget": "1GiB", "lora": ["a.gguf", ["b.gguf", 0.5]]}, "m.json")

Imports nothing slow, so that reading a default does not load the compiler.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, get_args

from hybrid.quant.ggml.byte_sizes import parse_size
from hybrid.quant.ggml.cpus import MAX_THREADS, checked_list, parse_cpus
from hybrid.quant.ggml.errors import UsageError, shown

if TYPE_CHECKING:
    from hybrid.quant.ggml.adapter import Given

Precision = Literal["fast", "exact"]
KVTypeName = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "iq4_nl", "q4_0"]
StateTypeName = Literal["f32", "f16", "q8_0"]
NumaName = Literal["interleave"]
DEFAULT_UBATCH = 512
DEFAULT_KV_TYPE: dict[str, str] = {"fast": "f16", "exact": "f32"}
MAX_CONTEXT, MAX_UBATCH = 2**31 - 1, 1 << 16  # larger values are taken for typing errors


class LoadFields(TypedDict, total=False):
    """The fields of `LoadOptions` as keywords, for type checks of calls like `LoadedModel.load(path, n_ctx=4096)`."""

    n_ctx: int
    n_seq_max: int
    n_ubatch: int
    n_threads: int
    precision: Precision
    kv_type: str | None
    checkpoint_budget: int
    checkpoint_type: StateTypeName
    lora: "Iterable[Given]"
    activated: bool
    beside: int
    cpus: Iterable[int]
    numa: NumaName | None


@dataclass(frozen=True)
class LoadOptions:
    """The options of `LoadedModel.load`, `Embedder` and `Encoder.load`. Raises UsageError, which names a wrong field.

    `dataclasses.asdict` makes JSON of it, which `from_json` reads.
    """

    n_ctx: int = 0
    """Tokens a sequence can hold; 0: the context that the model was trained for, if it fits the memory
    (memory/needs.py). For LongRoPE models it also selects one of two sets of frequencies; 0: the first."""
    n_seq_max: int = 1
    """Sequences that can be open at a time."""
    n_ubatch: int = DEFAULT_UBATCH
    """Tokens that go through the layers at a time."""
    n_threads: int = 0
    """0: one for each of `cpus`; without `cpus`, one per physical core."""
    precision: Precision = "fast"
    """'fast' quantizes activations to 8 bits for integer weight types; 'exact' computes in f32."""
    kv_type: str | None = None
    """How keys and values are stored: a KVTypeName, or two for keys and values apart, as in 'q8_0/q4_0'; None: f16,
    with 'exact' f32."""
    checkpoint_budget: int = 0
    """Limit in bytes on checkpoints of earlier texts (memory/cache.py); 0: none are kept."""
    checkpoint_type: StateTypeName = "f32"
    """How recurrent states are stored in checkpoints: 'f32' exactly, 'f16' or 'q8_0' in fewer bytes."""
    lora: "tuple[Given, ...]" = ()
    """Files of LoRA adapters, each alone (scale 1) or with its scale."""
    activated: bool = False
    """Whether activated adapters (aLoRA) are taken: callers say at which token of a text one begins."""
    beside: int = 0
    """Bytes of memory reserved for other uses of this process, such as a second model."""
    cpus: tuple[int, ...] = ()
    """Processors to pin threads to, by the system's numbers: the i-th thread to the i-th. Empty: not pinned. The thread
    that calls the model is the first; it is pinned only during its calls."""
    numa: NumaName | None = None
    """'interleave': on a machine with several NUMA nodes, spread the model's memory and files over all of them (Linux).
    The memory policy of the calling thread changes only during its calls."""

    def __post_init__(self) -> None:
        for name in ("n_ctx", "n_seq_max", "n_ubatch", "n_threads", "checkpoint_budget", "beside"):
            self._set(name, _integer(name, getattr(self, name)))
        self._set("lora", _adapters(self.lora))
        self._set("cpus", _cpus(self.cpus))
        self._set("n_threads", self.n_threads or len(self.cpus))
        self._check_numbers()
        self._check_choice("precision", Precision, "expected")
        if self.kv_type is not None:
            self._set("kv_type", checked_kv_type(self.kv_type, "kv_type = "))
        self._check_choice("checkpoint_type", StateTypeName, "recurrent states are kept in")
        if self.numa is not None:
            self._check_choice("numa", NumaName, "expected")

    def _check_choice(self, name: str, choices: object, what: str) -> None:
        value, known = getattr(self, name), get_args(choices)
        if value not in known:
            raise UsageError(f"{name} = {shown(repr(value))}: {what} one of {', '.join(known)}.")

    def _check_numbers(self) -> None:
        if self.n_ctx < 0 or self.n_seq_max < 1 or self.n_ubatch < 1 or self.n_threads < 0:
            raise UsageError(
                f"n_ctx = {self.n_ctx}, n_seq_max = {self.n_seq_max}, n_ubatch = {self.n_ubatch}, n_threads = "
                f"{self.n_threads}: the context and the threads must not be negative, the others at least 1."
            )
        for name in ("checkpoint_budget", "beside"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} = {getattr(self, name)}: it is a number of bytes, 0 or more.")
        if self.n_ctx > MAX_CONTEXT or self.n_ubatch > MAX_UBATCH or self.n_threads > MAX_THREADS:
            raise UsageError(
                f"n_ctx = {self.n_ctx}, n_ubatch = {self.n_ubatch}, n_threads = {self.n_threads}: a context has at "
                f"most {MAX_CONTEXT} tokens, an ubatch {MAX_UBATCH}; at most {MAX_THREADS} threads are possible."
            )

        if self.cpus and self.n_threads > len(self.cpus):
            raise UsageError(
                f"n_threads = {self.n_threads}: more than the processors in cpus ({len(self.cpus)}), and each is for "
                "one thread. Name as many, or ask for fewer threads."
            )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the class is frozen

    @property
    def exact(self) -> bool:
        """Whether activations stay in f32."""
        return self.precision == "exact"

    @property
    def kv_type_used(self) -> str:
        """`kv_type`, or its default for this precision."""
        return self.kv_type or DEFAULT_KV_TYPE[self.precision]

    @classmethod
    def from_json(cls, values: object, where: str) -> Self:
        """Options from a parsed JSON object, such as a server's config. where: its name in errors.

        checkpoint_budget may be a size such as "1GiB", cpus a list such as "0-7,16"; an adapter in `lora` is a file
        name or [file name, scale].
        """
        if not isinstance(values, Mapping):
            raise UsageError(f"{where}: expected an object with fields such as n_ctx, found {shown(repr(values))}.")
        names = [field.name for field in fields(cls)]
        given: dict[str, Any] = dict(values)
        if unknown := [name for name in given if name not in names]:
            raise UsageError(f"{where}: unknown setting {shown(repr(unknown[0]))}. There are: {', '.join(names)}.")
        if isinstance(budget := given.get("checkpoint_budget"), str):
            given["checkpoint_budget"] = parse_size(budget, f"{where}: checkpoint_budget")
        if isinstance(cpus := given.get("cpus"), str):
            given["cpus"] = parse_cpus(cpus, f"{where}: cpus")
        try:
            return cls(**given)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None


def checked_kv_type(name: object, where: str) -> str:
    """The name of a type of keys and values, or two as in 'q8_0/q4_0'; two equal ones become one.

    Raises UsageError, which begins with `where`.
    """
    parts = name.split("/") if isinstance(name, str) else []
    known = get_args(KVTypeName)
    if not 1 <= len(parts) <= 2 or any(part not in known for part in parts):
        given = shown(repr(name) if where.endswith("= ") else str(name))
        raise UsageError(
            f"{where}{given}: keys and values are kept in one of {', '.join(known)}, or in two as in q8_0/q4_0."
        )
    return parts[0] if parts[0] == parts[-1] else "/".join(parts)


def merged(options: LoadOptions | None, changes: LoadFields) -> LoadOptions:
    """`options` (None: the defaults) with the fields in `changes` replaced."""
    return replace(options or LoadOptions(), **changes)  # type: ignore[arg-type]  # any iterable of adapters will do


def _integer(name: str, value: object) -> int:
    try:
        if not isinstance(value, bool):
            return index(value)  # type: ignore[arg-type]  # numpy's too
    except TypeError:
        pass
    raise UsageError(f"{name} = {shown(repr(value))}: expected an integer.")


def _cpus(given: object) -> tuple[int, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UsageError(f"cpus = {shown(repr(given))}: expected a list of processors, such as [0, 1, 2, 3].")
    return checked_list([_integer("cpus", cpu) for cpu in given], "cpus")


def _adapters(given: object) -> "tuple[Given, ...]":
    """Every adapter as (file, scale)."""
    if isinstance(given, str | os.PathLike) or not isinstance(given, Iterable):
        raise UsageError(f"lora = {shown(repr(given))}: expected a list of files, each alone or with its scale.")
    return tuple(_adapter(one) for one in given)


def _adapter(one: object) -> "Given":
    pair = (one, 1.0) if isinstance(one, str | os.PathLike) else one
    if isinstance(pair, tuple | list) and len(pair) == 2:
        file, scale = pair
        if isinstance(file, str | os.PathLike) and isinstance(scale, Real) and not isinstance(scale, bool):
            return os.fspath(file), float(scale)
    raise UsageError(f"lora: {shown(repr(one))} is neither the file of an adapter nor a file and its scale.")
