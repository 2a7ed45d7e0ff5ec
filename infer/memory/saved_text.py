"""One sequence out of a state file, with everything checked before anybody's memory is touched."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import Remedy, StateError

from .attention import ArrayLayout
from .hybrid import HybridMemory
from .positions import first_moved
from .state_file import StateFile


@dataclass(frozen=True, eq=False)
class SavedText:
    """What a state file holds of its own sequence. `arrays` are views of the file, as long as that is open.

    arrays     by name, with dtypes and shapes of `HybridMemory.layout`
    positions  i64 [tokens] of the tokens, None: 0, 1, 2...
    computed   how many tokens are what the model makes of them, None: all
    """

    tokens: list[int]
    logits: np.ndarray | None
    extra: Mapping[str, Any]
    arrays: dict[str, np.ndarray]
    positions: np.ndarray | None
    computed: int | None

    def load(self, memory: HybridMemory, slot: int) -> None:
        """Put it into a slot of the memory that it was checked for."""
        memory.load(slot, len(self.tokens), self.arrays)
        memory.mark(slot, self.positions, self.computed)


def read_text(state: StateFile, memory: HybridMemory, n_vocab: int) -> SavedText:
    """StateError when the file is damaged, longer than the context, or keeps keys and values in another type."""
    n = state.header.n_tokens
    if n > memory.n_ctx:
        raise StateError(
            f"{state.path.name} holds {n} tokens, the context is {memory.n_ctx}.", remedy=Remedy.LARGER_CONTEXT
        )
    state.verify()
    tokens = state.expect("tokens", np.int32, (n,))
    logits = state.expect("logits", np.float32, (n_vocab,)).copy() if "logits" in state else None
    if n and not (tokens.min() >= 0 and tokens.max() < n_vocab):
        raise StateError(
            f"{state.path.name} holds tokens that are not of this vocabulary.", remedy=Remedy.WITHOUT_STATE
        )
    positions, computed = _positions(state, n)
    layout = memory.layout(n)
    _check_kv_type(state, layout, memory.attention.kind.name)
    arrays = {name: state.expect(name, dtype, shape) for name, (dtype, shape) in layout.items()}
    return SavedText(
        [int(t) for t in tokens], logits, state.header.extra, arrays, positions,
        0 if computed is not None and memory.is_recurrent else computed,
    )  # fmt: skip


def _positions(state: StateFile, n: int) -> tuple[np.ndarray | None, int | None]:
    """Positions of the n tokens, where they are not 0, 1, 2..., and how many tokens are computed, where not all."""
    positions, computed = None, state.header.computed
    if "positions" in state:
        positions = state.expect("positions", np.int64, (n,))
        if n and not (positions[0] >= 0 and positions[-1] < 2**31 and (np.diff(positions) >= 0).all()):
            raise StateError(f"{state.path.name} is damaged: its positions decrease.", remedy=Remedy.WITHOUT_STATE)
        computed = min(first_moved(positions), n if computed is None else computed)
    return positions, computed


def _check_kv_type(state: StateFile, layout: ArrayLayout, kv_type: str) -> None:
    """Converting would give other tokens than going on without a stop, so a state of another type is refused."""
    names = {"float32": "f32", "float16": "f16", "int8": "q8_0"}
    for name, (dtype, _) in layout.items():
        is_values = not name.endswith((".scale", "conv", "ssm")) and name in state
        saved_as = names.get(str(state.dtype(name))) if is_values else None
        # any other type is damage, which is found later
        if saved_as and state.dtype(name) != dtype:
            raise StateError(
                f"{state.path.name} keeps keys and values in {saved_as}, this model in {kv_type}.",
                remedy=Remedy.KV_TYPE_OR_WITHOUT_STATE,
                value=saved_as,
            )
