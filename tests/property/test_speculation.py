"""Tokens that are verified in one pass and taken back: the bits of a text that never had them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_conformance import FAMILIES, MODELS, SHAPES, same, tokens

from hybrid.infer import Model
from hybrid.infer.answers.generation.generate import generate
from hybrid.infer.answers.generation.speculate import MOST, NGramSpeculator
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.engine.pass_costs import AT_MOST, AT_START, MARGIN, UNKNOWN, PassCosts
from hybrid.infer.memory.hybrid import MOST_PIECES
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.types import FileType


@pytest.mark.parametrize("budget", [0, 8 << 20])
@pytest.mark.parametrize("family", FAMILIES)
def test_rolled_back_at_random_points(family: str, budget: int, random_model: Callable[..., Path]) -> None:
    """Right tokens and wrong ones after each of some 50 points of the text (200 for one family), on 1 to 3 threads."""
    path, rng = random_model(MODELS[family], FileType.Q8_0), np.random.default_rng(11)
    least, n = (200, 1000) if (family, budget) == ("jamba", 0) else (30, 220)
    ids = tokens(n)
    with Model.load(path, n_ctx=n + 24, n_ubatch=64, n_threads=2) as model:
        whole = model.sequence().logits_of(ids)
    threads = 1 + list(MODELS).index(family) % 3
    with Model.load(path, n_ctx=n + 24, n_ubatch=64, n_threads=threads, checkpoint_budget=budget) as model:
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
    with Model.load(random_model(SHAPES[family], FileType.Q8_0), n_ctx=256, n_ubatch=64) as model:
        model.runner.pass_costs = Free()
        results = []
        for speculate in (False, True):
            seq = model.sequence()
            # a bias makes the model repeat itself, as a text that quotes does
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


class Free(PassCosts):
    """Guesses as often as it can, however long passes take."""

    ready = True
    credit = property(lambda self: 1.0, lambda self, value: None)  # type: ignore[assignment]

    def cost(self, width: int) -> float:
        return 1.0


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
    with Model.load(random_model(SHAPES["jamba"], FileType.F32), n_ctx=64) as model:
        seq = model.sequence()
        for call in (lambda: seq.take_back(0), lambda: seq.verify([]), lambda: seq.verify([1] * (MOST_PIECES + 1))):
            with pytest.raises(UsageError):
                call()
        seq.verify([261, 262])
        with pytest.raises(UsageError, match="keep one of them"):
            seq.take_back(2)
        # forgotten, then used otherwise: all that was verified stays
        seq.verify([264, 265])
        assert seq.decode(263).shape == (320,) and seq.tokens == [261, 262, 264, 265, 263]
        with pytest.raises(UsageError, match="verify some first"):
            seq.take_back(1)
        assert seq.n_past == 5


def costs(wide: dict[int, float]) -> PassCosts:
    """Passes of one token cost 1, wider ones as they say."""
    passes = PassCosts()
    for width in (2, 99):
        passes.timed(width, 1e9)  # the first time compiles
    for width, cost in {1: 1.0, **wide}.items():
        for _ in range(2):
            passes.timed(width, cost)
    passes.credit = AT_MOST
    return passes


ZEN3 = {2: 1.5, 3: 1.8, 4: 2.1, 8: 3.6, 11: 4.6}  # jamba-3b, Q4_0
DEAR = {2: 2.0, 4: 2.6, 5: 4.7, 8: 7.0, 11: 11.5}  # 11 M weights, all in the caches
CHEAP = {2: 1.05, 3: 1.1, 4: 1.15, 8: 1.4}  # weights from memory, with arithmetic to spare


def test_costs_between_those_measured_lie_on_lines() -> None:
    passes = costs({2: 1.5, 4: 2.5, 8: 3.5})
    got = [passes.cost(n) / MARGIN for n in (2, 3, 4, 6, 8, 15)]
    assert got == pytest.approx([1.5, 2.0, 2.5, 3.0, 3.5, 6.0])
    assert passes.cost(1) == 1.0 == PassCosts().cost(5)
    assert costs({}).cost(3) == pytest.approx(MARGIN * (1 + 2 * UNKNOWN))


def test_guesses_come_from_the_text() -> None:
    free = costs({2: 0.0, 11: 0.0})
    speculator = NGramSpeculator([1, 2, 3, 4, 5, 6, 9, 1, 2], free)
    assert speculator.guess(9) == [3, 4, 5, 6, 9, 1, 2, 3, 4], "round and round"
    assert speculator.guess(2) == [3, 4] and speculator.guess(0) == []
    speculator.extend([7])
    assert speculator.guess(9) == [], "never seen"
    speculator.extend([1, 2])
    assert speculator.likely < 0.5 and speculator.guess(2) == [], "hardly ever right: looked at again some tokens later"
    speculator.extend([7] * 9 + [1, 2])
    assert speculator.guess(2) == [7, 7], "what followed last"
    assert len(NGramSpeculator(list(range(99)) * 2, free).guess(99)) == MOST
    assert NGramSpeculator([5] * 9, free).guess(4) == [5] * 4


def test_guesses_are_as_long_as_pays() -> None:
    """Long guesses where the text repeats itself, short ones or none where it hardly does."""
    page = list(range(40)) * 9
    sure = NGramSpeculator(page, costs(ZEN3))
    assert sure.likely > 0.99 and len(sure.guess(99)) == MOST
    assert len(NGramSpeculator(page, costs(DEAR)).guess(99)) == 3, "longer ones are too dear"
    assert NGramSpeculator(page, costs({2: 2.0, 11: 11.0})).guess(99) == [], "all are"
    assert 0 < len(NGramSpeculator(page, costs({2: 1.2, 3: 1.3, 4: 5.0, 11: 30.0})).guess(99)) <= 2
    rng = np.random.default_rng(0)
    wild = NGramSpeculator(rng.integers(0, 4, 400).tolist(), costs(ZEN3))
    assert wild.likely < 0.6 and wild.guess(99) == []
    before = wild.likely
    for _ in range(40):
        wild.extend([wild.ids[wild._at] if wild._at is not None else 0])
        wild.look()
    assert wild.likely > before, "learned without a guess"


def seconds(text: list[int], n_prompt: int, wide: dict[int, float]) -> float:
    """What the rest of a text costs, in passes of one token, with guesses."""
    passes, true = PassCosts(), costs(wide)
    speculator = NGramSpeculator(text[:n_prompt], passes)
    at, total = n_prompt, 0.0
    while at < len(text):
        speculator.extend([text[at]])
        guess = speculator.guess(len(text) - at - 1)
        cost = true.cost(1 + len(guess)) / (MARGIN if guess else 1)
        passes.timed(1 + len(guess), cost)
        total, at = total + cost, at + 1
        for token in guess:
            if token != text[at]:
                break
            passes.came_true()
            speculator.extend([token])
            at += 1
    return total


@pytest.mark.parametrize("wide", [CHEAP, ZEN3, DEAR])
def test_guessing_never_costs_much(wide: dict[int, float]) -> None:
    """Whatever the text is like and whatever passes cost: at most 1 % and the price of the first attempts."""
    rng = np.random.default_rng(4)
    page = rng.integers(0, 2000, 120).tolist()
    texts = {
        "nothing repeats": rng.permutation(2000).tolist()[:600],
        "few tokens": rng.integers(0, 5, 600).tolist(),
        "pairs that lie": [t for i in range(200) for t in (7, 8, int(rng.integers(0, 2000)))],
        "a page quoted": page + [t for i in range(40) for t in (*page[3 * i % 90 :][:9], int(rng.integers(2000)))],
        "one page again and again": page * 5,
    }
    for name, text in texts.items():
        plain = len(text) - 120
        cost = seconds(text, 120, wide)
        print(f"{wide[2]} {name}: {cost:.0f} passes for {plain} tokens")
        assert cost <= 1.01 * plain + AT_START + 2 * max(wide.values()), name
    if wide is CHEAP:
        assert seconds(texts["a page quoted"], 120, wide) < 0.9 * 400
    if wide is not DEAR:
        assert seconds(texts["one page again and again"], 120, wide) < 0.5 * 480
