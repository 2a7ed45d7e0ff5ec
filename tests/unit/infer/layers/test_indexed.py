"""A layer's selection as part of a program: the lists of a batch, also for a later layer."""

import numpy as np
import pytest
from reference import selection as twin
from reference.run_kernel import run

from hybrid.infer.engine.ubatch import Control
from hybrid.infer.kernels.attention.kv import CACHE_TYPES
from hybrid.infer.layers.indexed import EntryChoice, lists_of
from hybrid.infer.layers.kept_rows import KeptRows
from hybrid.infer.memory import HybridMemory
from hybrid.infer.program.builder import Builder, Ref, Rows

N_CTX, N, N_HEAD, EVERY = 300, 24, 3, 8


def test_lists_of_a_program() -> None:
    """Keys are stored and queries scored in one run; positions 0 .. 149."""
    n_tok, rng = 150, np.random.default_rng(0)
    keys = KeptRows(2, "index", N, every=EVERY)
    memory = HybridMemory([keys.spec], 1, N_CTX, CACHE_TYPES["f32"])
    memory.attention.extend(0, 0, n_tok)
    control = Control(n_tok)
    arrays = control._arrays
    arrays["ctl"][:2], arrays["pos"][:] = (n_tok, 1), np.arange(n_tok)
    b = Builder(n_tok, 1, exact=False, batch=control.batch)
    k, q, weights = (rng.standard_normal((n_tok, n)).astype(np.float32) for n in (N, N_HEAD * N, N_HEAD))
    given = [Rows(int(x.ctypes.data), x.shape[1], x.strides[0]) for x in (k, q, weights)]
    keys.store(b, given[0], memory)
    choice = EntryChoice(2, EVERY, 5, keys, N_HEAD, 0.5)
    lists = choice.lists(b, memory, *given[1:])
    assert lists_of(b, 2) == lists
    b.keep(lists.items, lists.counts)
    program = b.build()
    program.link()
    program.counters[:] = 0
    for op, fields in zip(program.ops, program.records, strict=True):
        run(op.kernel, fields[1:])

    def read(ref: Ref, size: int, dtype: type) -> np.ndarray:
        start = ref.base.offset + ref.offset  # type: ignore[union-attr]
        return program.arena[start : start + size * n_tok].view(dtype).reshape(n_tok, -1)

    items, counts = read(lists.items, lists.stride, np.int32), read(lists.counts, 8, np.int64)[:, 0]
    held = k[EVERY - 1 :: EVERY].astype(np.float64)
    for t in range(n_tok):
        seen = held[: (t + 1) // EVERY]
        scores = twin.index_scores(q[t].reshape(N_HEAD, N).astype(float), seen, 0.5, weights[t].astype(float))
        want = twin.tokens_of(twin.best(scores, 5), EVERY, t)
        assert items[t, : counts[t]].tolist() == want
    work = program.ops[1].work
    assert work is not None and work([(90, 10)]) == (12 * 4 * 32, 2 * (5 * 11 + 5 * 12) * N_HEAD * N)


@pytest.mark.parametrize("n_ctx", [1, 7, 8, 100, 333])
@pytest.mark.parametrize(
    "choice",
    [
        EntryChoice(0, 8, 5),
        EntryChoice(0, 1, 3),
        EntryChoice(0, 16, 0, as_entries=True, window=20),
        EntryChoice(0, 4, 9, as_entries=True),
    ],
)
def test_lists_have_room_for_all_that_can_be_listed(choice: EntryChoice, n_ctx: int) -> None:
    longest = 0
    for pos in range(n_ctx):
        chosen = list(range((pos + 1) // choice.every))[: choice.n_best or None]
        whole = (
            twin.entries_and_window(chosen, choice.window, pos)
            if choice.as_entries
            else (twin.tokens_of(chosen, choice.every, pos))
        )
        longest = max(longest, len(whole))
    assert choice.most(n_ctx) == longest
