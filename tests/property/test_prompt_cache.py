"""Texts restored from checkpoints continue with the bits of texts computed from the beginning, and cost at most the
tokens after the last checkpoint."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_conformance import FAMILIES, MODELS, SHAPES, same, tokens

from hybrid.infer import LoadedModel, Work
from hybrid.infer.memory.cache import LADDER
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.types import FileType

pytestmark = pytest.mark.exhaustive

BUDGET = 64 << 20


@pytest.mark.parametrize("family", FAMILIES)
def test_random_texts_that_share_beginnings(family: str, random_model: Callable[..., Path]) -> None:
    path = random_model(MODELS[family], FileType.Q8_0)
    rng = np.random.default_rng(7)
    with (
        LoadedModel.load(path, n_ctx=256, n_ubatch=128, n_threads=2) as plain,
        LoadedModel.load(path, n_ctx=256, n_ubatch=128, n_threads=2, n_seq_max=3, checkpoint_budget=BUDGET) as model,
    ):
        reference = plain.sequence()
        sequences = [model.sequence() for _ in range(3)]
        texts: list[list[int]] = [[]]
        n_restored = 0
        for step in range(30):
            base = texts[rng.integers(len(texts))][:200]
            if rng.random() < 0.3:
                base = base[: rng.integers(len(base) + 1)]
            ids = base + tokens(int(rng.integers(1, 30)), 100 + step)
            texts.append(ids)
            seq = sequences[step % 3]
            at = seq.resume(ids)
            assert at < len(ids) and seq.tokens == ids[:at] and seq.n_past == at
            n_restored += at > 0
            reference.clear()
            want = reference.logits_of(ids)
            assert same(seq.prefill(ids[at:]), want[-1]), (step, at, len(ids))
            # some tokens one by one, with others in between
            more = tokens(3, step)
            got = np.stack([seq.decode(t) for t in more])
            assert same(got, reference.logits_of(more)), step
            texts.append(ids + more)
            if step % 7 == 0:
                other = seq.rewind(len(ids))
                assert other == len(ids)
                assert same(seq.decode(more[0]), got[0]), "back at the end of the prompt"
            if step % 5 == 0:
                assert seq.resume(ids) == len(ids) and seq.logits is not None
                assert same(seq.logits, want[-1]), "the logits after a prompt are known without a token processed"
        assert n_restored >= 15


@pytest.mark.parametrize("family", ["jamba", "mamba2", "llama"])
def test_at_most_a_rung_is_processed_again(family: str, random_model: Callable[..., Path]) -> None:
    ids = tokens(3 * LADDER + 100)
    with LoadedModel.load(random_model(SHAPES[family], FileType.F32), n_ctx=2048, checkpoint_budget=BUDGET) as model:
        seq = model.sequence()
        whole = seq.prefill(ids, boundaries=[700])
        for n in (LADDER - 1, LADDER, LADDER + 1, 699, 701, 3 * LADDER + 50):
            at = seq.resume([*ids[:n], 261])
            least = (
                n if family == "llama" else max((b for b in (LADDER, 700, 2 * LADDER, 3 * LADDER) if b <= n), default=0)
            )
            assert at == least
            seq.prefill([*ids[:n], 261][at:])
        at = seq.resume(ids)
        assert at == len(ids) and seq.logits is not None and same(seq.logits, whole)


def test_a_closed_sequence_is_remembered(random_model: Callable[..., Path]) -> None:
    ids = tokens(50)
    with LoadedModel.load(random_model(SHAPES["jamba"], FileType.Q8_0), n_ctx=64, checkpoint_budget=BUDGET) as model:
        first = model.sequence()
        first.prefill(ids[:40])
        want = [first.decode(t) for t in ids[40:]]
        first.close()
        again = model.sequence()
        assert again.resume([*ids, 300]) == 50
        assert again.resume([*ids[:40], 300]) == 40
        assert same(again.decode(ids[40]), want[0])
        for seq in (again, model.sequence() if model.n_free else None):
            if seq is not None:
                seq.close()
        assert model.cache is not None
        model.cache.clear()
        assert model.memory.recurrent.pool.used == model.memory.attention.pool.used == 0, "nothing leaks"


def test_what_a_measurement_filled_in_is_never_found(random_model: Callable[..., Path]) -> None:
    ids = tokens(50)
    with LoadedModel.load(random_model(SHAPES["jamba"], FileType.Q8_0), n_ctx=64, checkpoint_budget=BUDGET) as model:
        seq = model.sequence()
        seq.fill(ids)
        seq.decode(ids[0])
        seq.clear()
        assert seq.resume([*ids, 5]) == 0


@pytest.mark.parametrize("family", ["jamba", "llama", "mamba"])
def test_a_thousand_sequences(family: str, random_model: Callable[..., Path]) -> None:
    """In any order; memory grows with the sequences in use."""
    path = random_model(SHAPES[family], FileType.Q8_0)
    with LoadedModel.load(path, n_ctx=48, n_ubatch=512, n_seq_max=1000) as model:
        assert model.memory.attention.pool.touched == model.memory.recurrent.pool.touched == 0
        assert bool(model.memory.recurrent.specs) == (family != "llama")
        assert bool(model.memory.attention.specs) == (family != "mamba")
        seqs = [model.sequence() for _ in range(1000)]
        with pytest.raises(UsageError, match="all 1000 sequences are in use"):
            model.sequence()
        order = np.random.default_rng(1).permutation(1000)[:700].tolist()
        results = model.eval([Work(seqs[i], tokens(3, i)) for i in order])
        assert model.memory.attention.pool.touched in (0, 700)
        more = model.eval([Work(seqs[i], [261]) for i in reversed(order)])
        check = seqs[0] if 0 not in order else seqs[order[0]]
        for place in (0, 350, 699):
            check.clear()
            want = check.logits_of([*tokens(3, order[place]), 261])
            first, second = results[place].logits, more[699 - place].logits
            assert first is not None and second is not None
            assert same(first[0], want[2]) and same(second[0], want[3])
