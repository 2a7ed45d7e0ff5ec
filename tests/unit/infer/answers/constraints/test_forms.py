"""Forms are compiled once, and a hostile form cannot harm the other users of a machine."""

import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hostile_forms import LONG, QUICK, SLOW, grammar

from hybrid.infer.answers.constraints import Constraint, Grammar, forms
from hybrid.infer.answers.constraints.constraint import DeadEndError
from hybrid.infer.answers.constraints.forms import Forms, TooManyFormsError
from hybrid.infer.answers.constraints.trial import Trial
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import HybridError, UsageError


@pytest.fixture(scope="module")
def made(tokenizer: Tokenizer) -> Iterator[Forms]:
    made = Forms(tokenizer)
    yield made
    made.close()


@pytest.fixture(scope="module")
def patient(tokenizer: Tokenizer) -> Iterator[Forms]:
    """Forms with a generous time limit, for tests in which time is not the reason of a refusal: the machine may be
    busy."""
    made = Forms(tokenizer)
    made.trial = Trial(tokenizer, seconds=60)
    yield made
    made.close()


def used_or_refused(made: Forms, patient: Forms, case: tuple[str, Any, str], tokenizer: Tokenizer) -> None:
    kind, what, refusal = case
    if LONG not in refusal:
        made = patient
    before = made.trial.n_ended
    try:
        constraint = made.compiled(grammar(kind, what)).copy()
    except UsageError as error:
        says = str(error)
        assert refusal and re.search(refusal, says) and "\n" not in says and len(says) < 600, says
        assert (made.trial.n_ended > before) == ("takes more than" in says)
        return
    assert not refusal, "it is used"
    rng = np.random.default_rng(1)
    try:
        for _ in range(12):
            if constraint.ended:
                return
            logits = rng.standard_normal(tokenizer.n_vocab).astype(np.float32)
            token = int(constraint.masked(logits).argmax())
            if token in tokenizer.eog:
                return
            constraint.accept(token)
            constraint.forced()
    except DeadEndError:
        pass  # this answer ends with an error, and nothing else does


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", QUICK)
def test_hostile_forms_are_used_or_refused(name: str, made: Forms, patient: Forms, tokenizer: Tokenizer) -> None:
    used_or_refused(made, patient, QUICK[name], tokenizer)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n if n == "10 000 properties" else pytest.param(n, marks=pytest.mark.soak) for n in SLOW]
)
def test_large_hostile_forms_are_used_or_refused(name: str, made: Forms, patient: Forms, tokenizer: Tokenizer) -> None:
    used_or_refused(made, patient, SLOW[name], tokenizer)


def test_a_form_is_compiled_once_and_a_refused_one_each_time(made: Forms) -> None:
    asked = Grammar.choice(["once", "more"])
    before = made.n_compiled
    with ThreadPoolExecutor(8) as pool:
        compiled = list(pool.map(lambda _: made.compiled(asked), range(40)))
    assert made.n_compiled == before + 1 and len({id(one) for one in compiled}) == 1
    for _ in range(2):
        with pytest.raises(UsageError, match="the expression cannot be used"):
            made.compiled(Grammar.regex("("))


def test_those_used_longest_ago_are_forgotten(tokenizer: Tokenizer) -> None:
    made, often = Forms(tokenizer), Grammar.regex("often")
    try:
        for i in range(forms.MOST_KEPT + 5):
            made.compiled(Grammar.regex(f"a{i}"))
            made.compiled(often)
        before = made.n_compiled
        made.compiled(often)
        made.compiled(Grammar.regex(f"a{forms.MOST_KEPT + 4}"))
        assert made.n_compiled == before
        made.compiled(Grammar.regex("a0"))
        assert made.n_compiled == before + 1
    finally:
        made.close()


def test_no_more_wait_than_may(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One form is compiled while others wait; a second caller of the form being compiled does not count as waiting."""
    going_on, begun = threading.Event(), threading.Event()

    def waits(*given: object) -> Constraint:
        begun.set()
        assert going_on.wait(60)
        return Constraint(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(forms, "Constraint", waits)
    monkeypatch.setattr(forms, "MOST_WAITING", 2)
    made = Forms(tokenizer)
    try:
        with ThreadPoolExecutor(4) as pool:
            first = pool.submit(made.compiled, Grammar.regex("a"))
            assert begun.wait(60)
            second = pool.submit(made.compiled, Grammar.regex("b"))
            while len(made._making) < 2:
                pass
            again = pool.submit(made.compiled, Grammar.regex("a"))
            with pytest.raises(TooManyFormsError, match=r"2 forms of answers wait to be compiled\. Try again later"):
                made.compiled(Grammar.regex("c"))
            going_on.set()
            assert first.result() is again.result() and second.result().grammar.text == "b"
        assert made.compiled(Grammar.regex("c")).grammar.text == "c"
    finally:
        made.close()


def test_the_process_for_trials_ends_with_its_forms(tokenizer: Tokenizer) -> None:
    made = Forms(tokenizer)
    made.compiled(Grammar.regex("a"))
    process = made.trial.process
    assert process is not None and process.poll() is None
    del made
    assert process.poll() is not None


def test_a_process_that_does_not_start_is_told(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error does not blame the form."""
    monkeypatch.setattr("sys.executable", shutil.which("true"))
    with pytest.raises(HybridError, match=r"forms cannot be compiled: .*/true .* does not start"):
        Forms(tokenizer).compiled(Grammar.regex("a"))


def test_a_trial_knows_the_control_tokens(made: Forms, tokenizer: Tokenizer) -> None:
    """A Lark grammar names control tokens by id or by text."""
    for text in ('start: "a" <[1]>', 'start: "a" <s>'):
        constraint = made.compiled(Grammar.of_text(text)).copy()
        constraint.accept(tokenizer.encode("a", add_special=False, continues=True)[0])
        assert np.flatnonzero(np.isfinite(constraint.masked(np.zeros(tokenizer.n_vocab, np.float32)))).tolist() == [1]
