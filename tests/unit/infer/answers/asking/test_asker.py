"""Jobs made from prompts and settings, and what is noted when they end."""

import math
from pathlib import Path

import pytest
from reference.tokenizer_files import bpe

from hybrid.infer.answers.asking.asker import AnswerSettings, Asker, Prompt
from hybrid.infer.answers.batch.job import Job
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.quant.ggml.errors import HybridError, UsageError

GREEDY = SamplingParams(temp=0, seed=3)


@pytest.fixture
def asker(data_dir: Path) -> Asker:
    tokenizer = load_tokenizer(bpe(data_dir / "tokenizers/bpe_qwen.json", "qwen2"))
    return Asker(tokenizer, None, tokenizer.n_vocab)


def ended(asker: Asker, job: Job, said: str) -> None:
    """End the job with the answer `said`, one token per byte, unlike the tokenizer's own encoding."""
    tokenizer = asker.tokenizer
    of_byte = {tokenizer.piece(token): token for token in reversed(range(tokenizer.n_vocab))}
    job.result.ids = [of_byte[bytes([byte])] for byte in said.encode()]
    job.result.text, job.result.reason = said, "length"


def test_settings_and_fields_reach_the_job(asker: Asker) -> None:
    settings = AnswerSettings(
        GREEDY, 9, ("end",), n_top=2, sampled=True, ends=(5,), min_tokens=3, special=True, most_seconds=1.5
    )
    prompt = Prompt([1, 2, 3], boundaries=(2,), known=[1, 2])
    job = asker.job(prompt, settings, key=4, keep=1, owner=b"me")
    assert (job.ids, job.boundaries, job.n_drawn, job.key, job.keep, job.owner) == ([1, 2, 3], (2,), 2, 4, 1, b"me")
    drawing = job.drawing
    assert (drawing.max_tokens, drawing.min_tokens, drawing.n_top, drawing.sampled) == (9, 3, 2, True)
    assert drawing.most_seconds == 1.5 and drawing.sampler.params == GREEDY
    assert asker.job(prompt, AnswerSettings(GREEDY, 9)).drawing.most_seconds == math.inf
    with pytest.raises(UsageError, match="min_tokens = 10"):
        asker.job(prompt, AnswerSettings(GREEDY, 9, min_tokens=10))


@pytest.mark.parametrize("case", ["noted", "not asked for", "a fault", "another owner"])
def test_an_answer_comes_back_as_it_was_drawn(asker: Asker, case: str) -> None:
    prompt = asker.text("What the model said: ", owner=b"me")
    job = asker.job(prompt, AnswerSettings(GREEDY, 30), note=case != "not asked for", owner=b"me")
    said = "a state of its own, and then more of it"
    ended(asker, job, said)
    if case == "a fault":
        job.error = HybridError("the model has failed.")
    if job.on_end is not None:
        job.on_end()
    again = asker.text(prompt.text + said + ".", owner=b"them" if case == "another owner" else b"me")  # type: ignore[operator]
    drawn = [*prompt.ids, *job.result.ids]
    assert (again.ids[: len(drawn)] == drawn) is (case == "noted")
    assert bool(again.known) is (case == "noted")


def test_nobody_finds_it_who_asks_for_a_fresh_encoding(asker: Asker) -> None:
    prompt = asker.text("One ")
    job = asker.job(prompt, AnswerSettings(GREEDY, 30))
    ended(asker, job, "two three four five")
    assert job.on_end is not None
    job.on_end()
    assert asker.text("One two three four five.").known
    assert not asker.text("One two three four five.", drawn=False).known
