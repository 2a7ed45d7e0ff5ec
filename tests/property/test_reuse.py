"""The reused part of a prompt, and the reason for the rest: every code; positions compared with a search through all
texts."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from test_batch_guessing import Foreseen
from test_conformance import SHAPES, tokens
from test_speculation import Plain

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.batcher import Batcher, Job, answer_all
from hybrid.infer.answers.batch.reuse import CODES, Reuse, read_anew
from hybrid.infer.answers.drawing.drawing import Drawing
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.memory.cache import LADDER
from hybrid.infer.runner import Runner
from hybrid.infer.sequence import common_beginning
from hybrid.quant.ggml.types import FileType

Loaded = Callable[..., LoadedModel]


@pytest.fixture
def load(random_model: Callable[..., Path]) -> Iterator[Loaded]:
    models = []

    def loaded(family: str, budget: int = 64 << 20, n_ctx: int = 2048) -> LoadedModel:
        path = random_model(SHAPES[family], FileType.Q8_0)
        models.append(LoadedModel.load(path, n_ctx=n_ctx, n_ubatch=512, n_seq_max=4, checkpoint_budget=budget))
        return models[-1]

    yield loaded
    for model in models:
        model.close()


def job(model: LoadedModel | Runner, ids: list[int], n: int = 1, **more: object) -> Job:
    sampler = Sampler(SamplingParams(temp=0.9, seed=1), model.n_vocab)
    return Job(ids, Drawing(sampler, Plain(), n, ()), remember=True, **more)  # type: ignore[arg-type]


def answered(batcher: Batcher, ids: list[int], n: int = 1) -> Reuse:
    one = job(batcher.runner, ids, n)
    batcher.submit(one)
    for _ in batcher.run():
        pass
    assert one.reuse is not None and one.reuse.n_reused == one.n_known
    assert one.result.prompt_tokens == one.reuse.n_processed
    return one.reuse


STEM = tokens(700)


@pytest.mark.parametrize("family", ["jamba", "mamba2", "llama"])
def test_every_reason(family: str, load: Loaded) -> None:
    model = load(family)
    assert model.cache is not None
    recurrent, batcher = model.memory.is_recurrent, Batcher(model.runner, 1)

    def check(ids: list[int], n_reused: int, code: str, reason: str) -> None:
        got = answered(batcher, ids)
        assert (got.n_reused, got.n_processed) == (n_reused, len(ids) - n_reused)
        assert (got.code, got.reason) == (code, reason)
        assert sum(n for _, n in got.parts) == got.n_processed

    check(STEM, 0, "new", "nothing is known that begins like this")
    check(STEM, 700, "whole", "all of it is known")
    check([*STEM, 3, 4], 700, "continues", "continues a known text from its end, at token 700")
    b = STEM[600] + 1
    other, why = [*STEM[:600], b, *tokens(300, 9)], f"differs from every known text at token 600 ('{b}')"
    if recurrent:
        check(other, LADDER, "differs", f"{why}; the nearest checkpoint is at {LADDER}")
        check(STEM[:650], LADDER, "ladder", f"the nearest checkpoint is at {LADDER}")
        check(STEM[:300], 0, "ladder", "there is no checkpoint before token 300")
    else:
        check(other, 600, "differs", why)
        check(STEM[:650], 649, "last", "all of it is known, except the logits after its last token")
    budget, model.cache.budget = model.cache.budget, 1
    model.cache.trim()
    model.cache.budget = budget
    expected = "tokens 0 to 650 were known and given up: budget"
    check([*STEM[:690], *tokens(9, 5)], 0, "budget", expected)
    if not recurrent:
        check(STEM[:650], 649, "last", "all of it is known, except the logits after its last token")


def test_a_checkpoint_that_was_given_up(load: Loaded) -> None:
    """The text is still known, because a longer one is."""
    model = load("jamba")
    assert model.cache is not None
    batcher, cache = Batcher(model.runner, 1), model.cache
    answered(batcher, STEM)
    answered(batcher, [*STEM, *tokens(400, 3)])
    budget = cache.budget

    def left() -> list[int]:
        return sorted(p for node in cache.tree for p in node.checkpoints)

    while 700 in left():
        cache.budget = cache.nbytes - 1
        cache.trim()
    cache.budget = budget
    assert left()[-1] == 1100, "what is to be tested"
    before = max((p for p in left() if p < 700), default=0)
    got = answered(batcher, [*STEM, 5, 6, 7])
    assert got.reason == (
        f"differs from every known text at token 700 ('5'); no checkpoint between {before} and 700: budget"
    )
    assert got.parts == (("budget", 700 - before), ("differs", 3)) and got.code == "budget"
    assert not answered(batcher, [*STEM, 5, 6, 7, 8]).reason.endswith("budget"), "it is there again"


@pytest.mark.parametrize("family", ["jamba", "llama"])
def test_owners_share_nothing(family: str, load: Loaded) -> None:
    """Neither processed texts, nor running steps, nor dropped texts: nobody learns anything by trying prompts."""
    model = load(family)
    cache, batcher = model.cache, Batcher(model.runner, 4)
    assert cache is not None

    def asked(*owners: bytes, ids: list[int] = STEM) -> list[Reuse]:
        jobs = [job(model, [*ids, 3 + i], owner=owner) for i, owner in enumerate(owners)]
        for one in jobs:
            batcher.submit(one)
        assert len([*batcher.run()]) == len(jobs)
        return [one.reuse for one in jobs if one.reuse is not None]

    for owners, reused in (((b"a", b"b"), False), ((b"c", b"c"), True)):
        last = asked(*owners)[-1]
        assert (last.n_reused > 0) is reused and last.code == ("continues" if reused else "new")
    alone = {result.ids[0] for result in answer_all(model, [job(model, [*STEM, 3], owner=b"d")], 1)}
    assert alone == {result.ids[0] for result in answer_all(model, [job(model, [*STEM, 3], owner=b"a")], 1)}
    budget, cache.budget = cache.budget, 0
    cache.trim()
    cache.budget = budget
    assert not len(cache.tree.roots)
    for owner, code in ((b"e", "new"), (b"a", "budget")):
        assert asked(owner)[0].code == code


def test_nothing_is_kept_without_a_budget(load: Loaded) -> None:
    batcher = Batcher(load("jamba", 0).runner, 1)
    for _ in range(2):
        got = answered(batcher, STEM)
        assert (got.code, got.reason, got.n_reused) == ("off", "nothing that was read is kept", 0)


class Syllables(Plain):
    """Token 300 stands for two other tokens; 299 begins every text."""

    bos = 299

    def piece(self, token: int) -> bytes:
        return {300: b"abab", 301: b"ab", 299: b""}.get(token, f" {token}".encode())


def test_the_same_text_in_other_tokens(load: Loaded) -> None:
    model = load("mamba2")
    batcher = Batcher(model.runner, 1)

    def ask(ids: list[int]) -> Reuse:
        one = job(model, ids)
        one.drawing.tokenizer = Syllables()  # type: ignore[assignment]
        batcher.submit(one)
        assert [*batcher.run()] == [one] and one.reuse is not None
        return one.reuse

    assert ask([299, 17, 300, 18, 19, 20]).code == "new"
    got = ask([299, 17, 301, 301, 18, 19, 20])
    assert (got.code, got.reason) == (
        "tokens",
        "is known as other tokens from token 2 on ('17abab'); there is no checkpoint before token 2",
    )
    got = ask([299, 17, 308, 301, 18])
    assert got.reason.startswith("differs from every known text at token 2 ('17 308ab')")
    got = ask([299, 4, 5])
    assert (got.code, got.n_known) == ("new", 1), "all texts begin with BOS"


@pytest.mark.parametrize("family", ["jamba", "llama"])
@pytest.mark.parametrize("n_parallel", [1, 4])
def test_what_is_said_against_a_search_through_all_texts(family: str, n_parallel: int, load: Loaded) -> None:
    """Also several at a time: an answer that waits for another to process the shared prefix reuses it, and reports
    that."""
    model, rng = load(family), np.random.default_rng(3)
    batcher = Batcher(model.runner, n_parallel)
    texts: list[list[int]] = []
    codes = set()
    for step in range(20):
        jobs = []
        for i in range(n_parallel):
            base = texts[rng.integers(len(texts))] if texts and rng.random() < 0.9 else []
            base = base[: rng.integers(len(base) + 1)] if rng.random() < 0.5 else base
            jobs.append(job(model, base[:1500] + tokens(int(rng.integers(1, 400)), 100 * step + i), 3))
        for one in jobs:
            batcher.submit(one)
        assert len([*batcher.run()]) == len(jobs)
        for one in jobs:
            assert one.reuse is not None and one.reuse.code in CODES and "\n" not in one.reuse.reason
            codes.add(one.reuse.code)
            assert one.reuse.n_reused + one.reuse.n_processed == len(one.ids)
            assert one.reuse.n_processed == one.result.prompt_tokens == sum(n for _, n in one.reuse.parts)
            assert one.reuse.n_reused <= one.reuse.n_known
            longest = max((common_beginning(one.ids, text) for text in texts), default=0)
            if n_parallel == 1:
                assert one.reuse.n_known == longest
            else:
                assert one.reuse.n_known >= longest
            if one.reuse.code == "differs":
                at = one.reuse.n_known
                assert f"at token {at} ('{one.ids[at]}')" in one.reuse.reason, "its own token, and nobody else's"
        texts += [one.ids + one.result.ids[:-1] for one in jobs]
    assert {"differs", "continues"} <= codes
    figures = batcher.figures
    assert figures.n_prompt == sum(figures.processed.values())
    assert figures.n_drawn == 3 * 20 * n_parallel and figures.prompt_seconds > 0 < figures.draw_seconds


def test_who_waits_for_another_tells_what_it_reused(load: Loaded) -> None:
    model = load("jamba")
    batcher = Batcher(model.runner, 4)
    jobs = [job(model, [*tokens(300), *tokens(20, 50 + i)]) for i in range(4)]
    for one in jobs:
        batcher.submit(one)
    for _ in batcher.run():
        pass
    assert [one.reuse.n_reused for one in jobs if one.reuse] == [0, 300, 300, 300]
    assert [one.reuse.code for one in jobs if one.reuse] == ["new", "continues", "continues", "continues"]


def test_what_was_cancelled_counts_what_it_read(load: Loaded) -> None:
    model = load("jamba")
    batcher = Batcher(model.runner, 1)
    one = job(model, tokens(1500))
    batcher.submit(one)
    batcher.step()
    one.cancel()
    batcher.step()
    assert 0 < batcher.figures.n_prompt == batcher.figures.processed["new"] < 1500


def test_guesses_are_counted(load: Loaded) -> None:
    model = load("llama")
    batcher = Batcher(model.runner, 1)
    ids, want = tokens(50), answer_all(load("llama"), [job(model, tokens(50), 30)], 1)[0].ids
    batcher.plans.guessing = Foreseen({tuple(ids): want}, np.random.default_rng(5))
    one = job(model, ids, 30, speculate=True)
    batcher.submit(one)
    assert [*batcher.run()] == [one] and one.result.ids == want
    figures = batcher.figures
    assert 0 < figures.n_accepted == one.result.accepted <= figures.n_guessed == one.result.guessed
    assert 0 < figures.n_guesses <= min(figures.n_guessed, figures.n_passes - 1)
    assert figures.n_prompt == 50 and figures.n_drawn == 30, "what was guessed is no prompt"


def test_logprobs_of_a_prompt_are_read(load: Loaded) -> None:
    model = load("jamba")
    batcher = Batcher(model.runner, 1)
    answered(batcher, STEM)
    one = job(model, STEM, prompt_top=0)
    batcher.submit(one)
    assert [*batcher.run()] == [one] and one.reuse is not None
    assert (one.reuse.code, one.result.prompt_tokens) == ("logprobs", 700)
    assert batcher.figures.processed == {"new": 700, "logprobs": 700}


def test_what_is_pinned_and_where(load: Loaded) -> None:
    """Cancelled jobs are not pinned: nobody got their name."""
    model = load("jamba")
    assert model.cache is not None
    batcher = Batcher(model.runner, 2)
    cancelled, whole = job(model, tokens(1200, 3), pin=True), job(model, tokens(60), 8, pin=True)
    batcher.submit(cancelled)
    batcher.step()
    cancelled.cancel()
    batcher.submit(whole)
    assert {*batcher.run()} == {cancelled, whole}
    assert cancelled.kept is not None and not cancelled.kept.pinned
    assert whole.kept is not None and whole.kept.pinned
    (node,) = model.cache.pins.nodes
    assert node.name == whole.kept.name and node.end == 60 + 7
    longer = job(model, [*whole.ids, *whole.result.ids, 5], 4)
    batcher.submit(longer)
    assert [*batcher.run()] == [longer] and longer.kept is not None
    assert longer.kept.name == whole.kept.name and not longer.kept.pinned, "its new part is not"
    assert model.cache.pins.nodes == [node]
    no_longer = job(model, [*longer.ids, *longer.result.ids, 6], 4, pin=False)
    batcher.submit(no_longer)
    assert [*batcher.run()] == [no_longer] and model.cache.pins.nodes == []


@pytest.mark.soak
def test_a_reason_is_found_quickly(load: Loaded) -> None:
    """15 000 tokens beside 1 000 texts, 100 of which diverge at one position; no model processes them."""
    model = load("llama", 1 << 30, 16384)
    batcher = Batcher(model.runner, 1)
    assert model.cache is not None
    long, page = tokens(15000), model.memory.attention.pool.take()
    for i in range(1000):
        at = 7000 if i < 100 else 0
        model.cache.tree.insert(np.array([*long[:at], 3, i % 256, i // 256, *tokens(50, i)], np.int32), [page] * 300)
    model.cache.tree.insert(np.asarray([*long[:14000], 3, 4], np.int32), [page] * 300)
    ids = np.asarray(long, np.int64)
    model.cache.given_up.add(ids.astype(np.int32), 0)
    seconds = []
    for _ in range(9):
        begun = time.perf_counter()
        got = batcher.reasons._look(model.cache, ids.astype(np.int32), b"", Plain())  # type: ignore[arg-type]
        lost = model.cache.given_up.last(ids.astype(np.int32), got.n)
        seconds.append(time.perf_counter() - begun)
    assert got.n == 14000 and lost == 15000
    print(f"{1e6 * min(seconds):.0f} us")
    assert min(seconds) < 1e-3


@pytest.mark.parametrize("code", ["logprobs", "asked"])
def test_what_is_read_in_any_case(code: str) -> None:
    got = read_anew(12, code)  # type: ignore[arg-type]
    assert (got.n_reused, got.n_processed, got.code, got.parts) == (0, 12, code, ((code, 12),)) and got.reason
    assert got.split(5) == [(code, 5)]
