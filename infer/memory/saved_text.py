"""Read one sequence from a state file; everything is checked before any memory is changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import Remedy, StateError

from .hybrid import HybridMemory
from .picture_tokens import are_known, places_of
from .positions import first_moved
from .state_file import StateFile


@dataclass(frozen=True, eq=False)
class SavedText:
    """A state file's own sequence. `arrays` are views of the file, valid while it is open.

    arrays     by name, with dtypes and shapes of `HybridMemory.layout`
    positions  i64 [tokens]; None: 0, 1, 2...
    computed   see `HybridMemory.computed`; None: all tokens
    """

    tokens: list[int]
    logits: np.ndarray | None
    extra: Mapping[str, Any]
    arrays: dict[str, np.ndarray]
    positions: np.ndarray | None
    computed: int | None

    def load(self, memory: HybridMemory, slot: int) -> None:
        """Load it into a slot of the memory for which it was checked."""
        memory.load(slot, len(self.tokens), self.arrays)
        memory.mark(slot, self.positions, self.computed)


def read_text(state: StateFile, memory: HybridMemory, n_vocab: int) -> SavedText:
    """Read the file's sequence. Raises StateError if it is damaged, too long, or of another KV type."""
    n = state.header.n_tokens
    if n > memory.n_ctx:
        raise StateError(
            f"{state.path.name} holds {n} tokens, the context is {memory.n_ctx}.", remedy=Remedy.LARGER_CONTEXT
        )
    state.verify()
    tokens = state.expect("tokens", np.int32, (n,))
    logits = state.expect("logits", np.float32, (n_vocab,)).copy() if "logits" in state else None
    if not are_known(tokens, n_vocab):
        raise StateError(
            f"{state.path.name} holds tokens that are not of this vocabulary.", remedy=Remedy.WITHOUT_STATE
        )
    positions, computed = _positions(state, tokens, memory)
    layout = memory.layout(n)
    older = _check_keys_values(state, memory)
    arrays = {name: state.expect(name, dtype, shape) for name, (dtype, shape) in layout.items()}
    if older:
        arrays = memory.attention.in_basis(arrays)
    return SavedText(
        [int(t) for t in tokens], logits, state.header.extra, arrays, positions,
        0 if computed is not None and memory.is_recurrent else computed,
    )  # fmt: skip


def _positions(state: StateFile, tokens: np.ndarray, memory: HybridMemory) -> tuple[np.ndarray | None, int | None]:
    """Positions of the tokens (None: 0, 1, 2...), and how many tokens are computed (None: all)."""
    positions, computed, n = None, state.header.computed, len(tokens)
    if "positions" in state:
        positions = state.expect("positions", np.int64, (n,))
        if n and not (positions[0] >= 0 and positions[-1] < 2**31 and (np.diff(positions) >= 0).all()):
            raise StateError(f"{state.path.name} is damaged: its positions decrease.", remedy=Remedy.WITHOUT_STATE)
        unmoved = places_of(tokens, 0) if memory.has_axes else None
        computed = min(first_moved(positions, unmoved), n if computed is None else computed)
        computed = None if computed == n else computed
    return positions, computed


def _check_keys_values(state: StateFile, memory: HybridMemory) -> bool:
    """Whether keys and values must be brought into the memory's basis: older versions of hybrid did not transform them.

    Raises StateError for another type: converting would change the continuation.
    """
    attention, stated = memory.attention, state.header.keys_values
    wanted = attention.described()
    if not attention.specs:
        return False
    saved_as = _types_of(state, attention.kind.name) if stated is None else _name_of(stated)
    if saved_as != attention.kind.name:
        raise StateError(
            f"{state.path.name} keeps keys and values in {saved_as}, this model in {attention.kind.name}.",
            remedy=Remedy.KV_TYPE_OR_WITHOUT_STATE,
            value=saved_as,
        )
    if stated is None or stated == wanted:
        return stated != wanted
    raise StateError(
        f"{state.path.name} keeps keys and values in another basis ({_short(stated)}) than this version of hybrid "
        f"({_short(wanted or {})}).",
        remedy=Remedy.WITHOUT_STATE,
    )


def _types_of(state: StateFile, expected: str) -> str:
    """The type in a file that does not state it; `expected` if it has none of the types of old: it is damaged."""
    names = {"float32": "f32", "float16": "f16", "int8": "q8_0"}
    kept = (name for name in state if name.startswith("blk.") and not name.endswith((".scale", "conv", "ssm")))
    return next((names[dtype] for name in kept if (dtype := str(state.dtype(name))) in names), expected)


def _name_of(stated: Mapping[str, Any]) -> str:
    one, other = (str(stated.get(side))[:20] for side in ("keys", "values"))
    return one if one == other else f"{one}/{other}"


def _short(stated: Mapping[str, Any]) -> str:
    return f"hadamard {str(stated.get('hadamard'))[:40]}"
