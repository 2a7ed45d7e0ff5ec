"""Tokens verified in one pass and rolled back: the bits of a text that never had them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_batch_guessing import Free
from test_conformance import FAMILIES, MODELS, SHAPES, same, tokens

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.batch.guesses import AnswerText
from hybrid.infer.answers.guessing.ngrams import MOST
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.memory.hybrid import MOST_PIECES
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.types import FileType


@pytest.mark.parametrize("budget", [0, 8 << 20])
@pytest.mark.parametrize("family", FAMILIES)
def test_rolled_back_at_random_points(family: str, budget: int, random_model: Callable[..., Path]) -> None:
    """Right and wrong tokens at 30 or more points of a text (200 for one family), on 1 to 3 threads."""
    path, rng = random_model(MODELS[family], FileType.Q8_0), np.random.default_rng(11)
    least, n = (200, 1000) if (family, budget) == ("jamba", 0) else (30, 220)
    ids = tokens(n)
    with LoadedModel.load(path, n_ctx=n + 24, n_ubatch=64, n_threads=2) as model:
        whole = model.sequence().logits_of(ids)
    threads = 1 + list(MODELS).index(family) % 3
    with LoadedModel.load(path, n_ctx=n + 24, n_ubatch=64, n_threads=threads, checkpoint_budget=budget) as model:
        seq = model.sequence()
        seq.prefill(ids[:10])
        n_points = 0
        while (at := len(seq.tokens)) < n - MOST_PIECES:
            right = int(rng.integers(1, 7))
            wrong = tokens(int(rng.integers(0, 6)), at)
            rows = seq.verify(ids[at : at + right] + wrong)
            assert same(rows[:right], whole[at : at + right]), (at, right, len(wrong))
            seq.take_back(len(wrong))
            assert seq.tokens == ids[: at + right] and seq.n_past == at + right
            assert seq.logits is not None and same(seq.logits, whole[at + right - 1])
            n_points += 1
            if rng.random() < 0.3:
                at = len(seq.tokens)
                assert same(seq.decode(ids[at]), whole[at]), at
        assert n_points >= least
        at = len(seq.tokens)
        assert same(seq.logits_of(ids[at:]), whole[at:]), "to the end in one pass"


@pytest.mark.parametrize("family", ["jamba", "mamba2", "granite", "llama"])
@pytest.mark.parametrize("temp", [0.0, 0.9])
def test_the_same_tokens_in_fewer_passes(family: str, temp: float, random_model: Callable[..., Path]) -> None:
    prompt = tokens(12) * 4
    with LoadedModel.load(random_model(SHAPES[family], FileType.Q8_0), n_ctx=256, n_ubatch=64) as model:
        model.runner.costs = Free()
        results = []
        for speculate in (False, True):
            seq = model.sequence()
            # a bias makes the model repeat itself, as when it quotes
            bias = dict.fromkeys(tokens(5), 3.0)
            sampler = Sampler(SamplingParams(temp=temp, seed=3, logit_bias=bias), model.n_vocab)
            run = generate(seq, prompt, sampler, max_tokens=60, tokenizer=Plain(), speculate=speculate)  # type: ignore
            for _ in run:
                pass
            assert seq.tokens == prompt + run.result.ids[:59], "the last one is not in the sequence yet"
            assert run.result.pending == run.result.ids[59:]
            assert seq.logits is not None
            results.append((run.result, seq.logits.tobytes(), seq.decode(261).tobytes(), sampler.state()))
            seq.close()
        (plain, *rest), (guessed, *also) = results
        assert guessed.ids == plain.ids and also == rest
        assert plain.passes == plain.gen_tokens == 59 and plain.guessed == 0
        assert guessed.passes + guessed.accepted == 59
        print(f"{family}: {guessed.passes} passes for 59 tokens, {guessed.accepted} of {guessed.guessed} guesses")
        if temp == 0:
            assert guessed.accepted > 0


class Plain:
    """A tokenizer without text."""

    eog: frozenset[int] = frozenset()
    bos: int | None = None

    def piece(self, token: int) -> bytes:
        return f"{token} ".encode()

    def is_control(self, token: int) -> bool:
        return False

    def is_eog(self, token: int) -> bool:
        return False

    def stream(self, skip_special: bool = False, shown: object = ()) -> object:
        class Stream:
            def push(self, token: int) -> str:
                return ""

            def flush(self) -> str:
                return ""

        return Stream()


def test_wrong_use_is_said(random_model: Callable[..., Path]) -> None:
    with LoadedModel.load(random_model(SHAPES["jamba"], FileType.F32), n_ctx=64) as model:
        seq = model.sequence()
        for call in (lambda: seq.take_back(0), lambda: seq.verify([]), lambda: seq.verify([1] * (MOST_PIECES + 1))):
            with pytest.raises(UsageError):
                call()
        seq.verify([261, 262])
        with pytest.raises(UsageError, match="keep one of them"):
            seq.take_back(2)
        # verified tokens stay if the sequence is used otherwise
        seq.verify([264, 265])
        assert seq.decode(263).shape == (320,) and seq.tokens == [261, 262, 264, 265, 263]
        with pytest.raises(UsageError, match="verify some first"):
            seq.take_back(1)
        assert seq.n_past == 5


def test_guesses_come_from_the_text() -> None:
    drawn: list[int] = []
    text = AnswerText([1, 2, 3, 4, 5, 6, 9, 1, 2], drawn)
    assert text.foretold(9) == [3, 4, 5, 6, 9, 1, 2, 3, 4], "round and round"
    assert text.foretold(2) == [3, 4] and text.foretold(0) == []
    drawn += [7]
    assert text.foretold(9) == [], "never seen"
    drawn += [1, 2]
    assert text.foretold(2) == [] and text.likely < 0.5, "hardly ever right: looked at again some tokens later"
    drawn += [7] * 9 + [1, 2]
    assert text.foretold(2) == [7, 7], "what followed last"
    assert len(AnswerText(list(range(99)) * 2, []).foretold(99)) == MOST
    assert AnswerText([5] * 9, []).foretold(4) == [5] * 4
    wild = AnswerText(np.random.default_rng(0).integers(0, 4, 400).tolist(), drawn := [])
    wild.foretold(9)
    before = wild.likely
    assert before < 0.6
    for _ in range(40):
        drawn.append(wild.ids[wild._at] if wild._at is not None else 0)
        wild.extend(drawn[-1:])
        wild.look()
    assert wild.likely > before, "learned without a guess"
