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
from hybrid.infer.answers.guessing.ngrams import MOST, NGrams
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.engine import programs
from hybrid.infer.memory.hybrid import MOST_PIECES
from hybrid.infer.runner import Result, Work
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


@pytest.mark.parametrize("family", ["jamba", "llama"])
def test_programs_for_wider_passes_wait_for_gains(family: str, random_model: Callable[..., Path]) -> None:
    """Building and compiling them in the middle of a short answer would take longer than it."""
    prompt = tokens(12) * 4
    with LoadedModel.load(random_model(SHAPES[family], FileType.Q8_0), n_ctx=256, n_ubatch=64) as model:
        model.runner.costs, engine = Free(), model.engine
        evaluate, widths, said = model.runner.eval, [], []

        def counted(works: list[Work]) -> list[Result]:
            widths.append(max(len(work.ids) for work in works if work.each))
            return evaluate(works)

        for gained, least, most in ((-1e9, 2, 3), (1e9, 4, 1 + MOST)):
            model.runner.costs.gained = gained
            seq = model.sequence()
            sampler = Sampler(SamplingParams(temp=0, logit_bias=dict.fromkeys(tokens(5), 3.0)), model.n_vocab)
            run = generate(seq, prompt, sampler, max_tokens=40, tokenizer=Plain(), speculate=True)  # type: ignore
            for _ in run:
                model.runner.eval = counted  # type: ignore[method-assign, assignment]
            model.runner.eval = evaluate  # type: ignore[method-assign]
            said.append(run.result.ids)
            assert least <= max(widths) <= most, (gained, widths)
            assert engine.expects_few == (gained > 0)
            widths.clear()
            seq.close()
        assert said[0] == said[1]


def test_missing_kernels_wait_for_larger_gains(
    random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoadedModel.load(random_model(SHAPES["llama"], FileType.Q8_0), n_ctx=64) as model:
        engine = model.engine
        engine._few_seconds = 0.5
        monkeypatch.setattr(programs, "load_cached", lambda _kernels: ["one", "another", "a third"])
        monkeypatch.setattr(programs, "KERNEL_SECONDS", 1.0)
        assert not engine.expect_few(0.4) and engine._few is None, "not even built"
        assert not engine.expect_few(0.6) and engine._few is not None
        n_built = len(engine._programs)
        assert not engine.expect_few(2.9) and len(engine._programs) == n_built
        assert engine.expect_few(3.0) and len(engine._programs) > n_built and engine.expects_few
        assert engine.expect_few(-1.0), "they stay"


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
    text = AnswerText([1, 2, 3, 4, 5, 1, 2], drawn)
    assert text.foretold(9) == [3, 4, 5, 1, 2, 3, 4], "round and round"
    assert text.foretold(2) == [3, 4] and text.foretold(0) == []
    drawn += [7]
    assert text.foretold(9) == [], "never seen"
    drawn += [1, 2]
    assert text.foretold(2) == [7, 1], "what followed last"
    assert text.likely < 0.5, "the first guess was wrong"
    assert len(AnswerText(list(range(99)) * 2, []).foretold(99)) == MOST
    assert AnswerText([5] * 9, []).foretold(4) == [5] * 4


def test_longer_repetitions_are_trusted_apart() -> None:
    """Pairs that lie do not silence the quotation of a page."""
    rng = np.random.default_rng(0)
    page, pairs = list(range(100, 140)), [t for _ in range(40) for t in (7, 8, int(rng.integers(200, 2000)))]
    text = AnswerText([*page, *pairs], [])
    text.foretold(9)
    liked = AnswerText([*page, *pairs, *page[:20]], [])
    assert liked.foretold(3) == page[20:23] and text.likely < 0.2 < 0.8 < liked.likely


@pytest.mark.parametrize("n", [1, 3, 40, 64, 65, 66, 200, 1000])
def test_a_prompt_is_looked_at_at_once(n: int) -> None:
    """The same guess as by looking token by token; also after tokens of pictures, which are negative."""
    rng = np.random.default_rng(n)
    ids = rng.integers(-3, 9, n).tolist()
    slow = NGrams([])
    for token in ids:
        slow.extend([token])
        slow.look()
    fast = NGrams(ids)
    fast.look()
    assert fast.foretold(5) == slow.foretold(5) and fast._after == slow._after and fast._last == slow._last
    expected = [
        ids[i:] for length in (4, 3, 2) for i in range(n - 1, length - 1, -1) if ids[i - length : i] == ids[-length:]
    ]
    assert fast.foretold(5)[:1] == (expected[0][:1] if expected and n > 2 else [])
    more = rng.integers(0, 9, 200).tolist()
    for text in (fast, slow):
        text.extend(more)
    fast.look()
    for k in range(len(more)):
        slow.ids = [*ids, *more[: k + 1]]
        slow.look()
    assert fast._after == slow._after and fast.foretold(3) == slow.foretold(3)
