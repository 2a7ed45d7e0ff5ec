"""The model's own head guesses: the bits are the model's without it, whatever the head says."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import random_heads
from made_models import made, sources
from pairwise import in_turn, mostly_long
from random_models import TOKENIZER
from test_batch_guessing import BUDGET, Asked, outcome
from test_conformance import tokens
from test_draft import Steps, answer

from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.batcher import Batcher
from hybrid.infer.answers.guessing import foretelling
from hybrid.infer.answers.guessing import head_guesser as heads
from hybrid.infer.answers.guessing.head_guesser import HeadGuesser
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.engine.pictures import Picture
from hybrid.infer.faults import SidePath

pytestmark = pytest.mark.exhaustive

RECURRENT, PLAIN, LATENT, MAMBA = "qwen35-mtp", "glm4-moe-mtp", "deepseek-v3-mtp", "nemotron-h-moe-mtp"
STREAMS, WIDE, GATED = "glm5-next-plain-mtp", "deepseek4-yarn-mtp", "qwen4exp-plain-mtp"
WRONG = [RECURRENT, PLAIN, LATENT, MAMBA, "ernie4_5-moe-mtp", STREAMS, WIDE, GATED, "gigachat35-mtp"]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guess as much as possible: these models are too small for guesses to pay."""
    monkeypatch.setattr(heads, "may_pay", lambda *_: True)
    monkeypatch.setattr(foretelling, "best_rate", lambda chances, value, spent: (float(len(chances)), len(chances)))
    monkeypatch.setattr(foretelling, "LEAST_CHANCE", 0.0)
    monkeypatch.setattr(HeadGuesser, "rests", False)


@contextmanager
def with_head(path: Path, n_texts: int = 1, n_ctx: int = 256, **options: object) -> Iterator[LoadedModel]:
    with LoadedModel.load(path, n_ctx=n_ctx, n_ubatch=64, n_seq_max=n_texts, **options) as model:  # type: ignore[arg-type]
        model.runner.costs = Steps()
        helper = model.runner.guessers.helper = heads.head_guesser(model)
        model.runner.guessers.ngrams = False
        assert helper is not None
        yield model
        helper.close()


@pytest.fixture
def model_file(tmp_path: Path) -> Callable[..., Path]:
    makers = sources("convert", "quant", "tests/random_checkpoints.py", "tests/random_heads.py")

    def make(name: str, write: Callable[[str, Path], Path] = random_heads.write) -> Path:
        title = f"{name}-{write.__name__}"
        key = f"{makers} {random_heads.WITH_HEADS[name]}"

        def convert_random(path: Path) -> None:
            convert(write(name, tmp_path / title), path, outtype="q8_0", tokenizer=TOKENIZER)

        return made(f"{title}.gguf", key, convert_random)

    return make


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["qwen3next-mtp", "deepseek-v32-mtp", *WRONG])
def test_a_head_that_is_right(name: str, model_file: Callable[..., Path]) -> None:
    """Over nine tenths of its guesses are right, so less than a third of the passes suffices."""
    with with_head(model_file(name, random_heads.write_right)) as model:
        want, plain = answer(model, tokens(40), 60, guess=False)
        got, guessed = answer(model, tokens(40), 60)
        assert got == want
        assert plain.passes == 59
        assert guessed.accepted > 0.9 * guessed.guessed and guessed.passes < 18
        assert guessed.passes + guessed.accepted == 59


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(("name", "temp"), list(mostly_long(in_turn(WRONG, [0.0, 0.9]), WRONG, [0.0, 0.9])))
def test_a_head_that_is_mostly_wrong(name: str, temp: float, model_file: Callable[..., Path]) -> None:
    with with_head(model_file(name)) as model:
        for seed in range(3):
            prompt = tokens(20 + seed, seed)
            want, _ = answer(model, prompt, 50, temp=temp, guess=False)
            got, guessed = answer(model, prompt, 50, temp=temp)
            assert got == want and guessed.guessed > 40
            assert guessed.passes + guessed.accepted == 49


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("name", "right"),
    [
        (RECURRENT, True),
        (RECURRENT, False),
        (PLAIN, True),
        (MAMBA, True),
        (STREAMS, False),
        (WIDE, True),
        (GATED, False),
    ],
)
def test_answers_of_a_batch(name: str, right: bool, model_file: Callable[..., Path]) -> None:
    """Beside prompts and answers without guesses."""
    path = model_file(name, random_heads.write_right if right else random_heads.write)
    asked = [Asked(i, tokens(20 + 7 * i, i), 30 + i, temp=(0.0, 0.9)[i % 2], remember=i == 3) for i in range(7)]
    for i, one in enumerate(asked):  # without the bias, which a head does not know
        one.params = SamplingParams(temp=(0.0, 0.5)[i % 2], seed=i)
    with LoadedModel.load(path, n_ctx=128, n_ubatch=64) as model:
        want = [outcome(one.alone(model)) for one in asked]
    with with_head(path, n_texts=4, n_ctx=128, checkpoint_budget=BUDGET) as model:
        batcher = Batcher(model.runner, 4)
        batcher.plans.guessing.costs = Steps()
        jobs = [one.job(model, speculate=i != 5) for i, one in enumerate(asked)]
        for job in jobs:
            batcher.submit(job)
        for _ in batcher.run():
            pass
        assert [outcome(job.result) for job in jobs] == want
        n_right, n_all = (sum(getattr(j.result, name) for j in jobs) for name in ("accepted", "guessed"))
        print(f"{name}: {n_right} of {n_all} in {batcher.n_steps} steps")
        assert n_all > 50 and jobs[5].result.guessed == 0
        assert not right or n_right > 0.5 * n_all


@pytest.mark.faults
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("broken", ["follow", "guesses"])
def test_a_head_that_fails_costs_no_answer(
    broken: str, model_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it fails at every call, answers are generated without guesses."""
    path = model_file(PLAIN, random_heads.write_right)
    asked = [Asked(i, tokens(20 + 7 * i, i), 20) for i in range(3)]
    with LoadedModel.load(path, n_ctx=128, n_ubatch=64) as model:
        want = [outcome(one.alone(model)) for one in asked]

    def fail(*_: object) -> object:
        raise RuntimeError("a fault of ours")

    with with_head(path, n_texts=4, n_ctx=128, checkpoint_budget=BUDGET) as model:
        monkeypatch.setattr(HeadGuesser, broken, fail)
        batcher = Batcher(model.runner, 4)
        batcher.plans.guessing.costs = Steps()
        jobs = [one.job(model, speculate=True) for one in asked]
        for job in jobs:
            batcher.submit(job)
        for _ in batcher.run():
            pass
        assert [outcome(job.result) for job in jobs] == want and batcher.n_faults == 0
    path_of = {"follow": "what reads along to guess tokens", "guesses": "guesses of what answers say next"}
    assert SidePath.all[path_of[broken]].is_off


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", [PLAIN, "ernie4_5-moe-mtp"])
def test_texts_that_go_back_and_on(name: str, model_file: Callable[..., Path]) -> None:
    """The head's state follows its text: rewound, continued otherwise, moved, cleared, in another's slot."""
    with with_head(model_file(name, random_heads.write_right), n_ctx=96) as model:
        plain: list[list[int]] = []
        for guess in (False, True):
            seq, out = model.sequence(), []
            for step in ("begin", "rewind", "shift", "clear"):
                if step == "rewind":
                    seq.rewind(30)
                elif step == "shift":
                    seq.shift(2, 20)
                elif step == "clear":
                    seq.clear()
                more, result = go_on(model, seq, tokens(12, len(step)), guess)
                out.append(more)
                assert not guess or result.accepted > 10, step
            seq.close()
            plain.append(out)
        assert plain[0] == plain[1]


def go_on(model: LoadedModel, seq, prompt: list[int], guess: bool) -> tuple:  # type: ignore[no-untyped-def]
    from test_speculation import Plain

    from hybrid.infer.answers.batch.generate import generate
    from hybrid.infer.answers.sampling import Sampler

    sampler = Sampler(SamplingParams(temp=0.0, seed=3), model.n_vocab)
    run = generate(seq, prompt, sampler, max_tokens=20, tokenizer=Plain(), speculate=guess)  # type: ignore[arg-type]
    for _ in run:
        pass
    return run.result.ids, run.result


def test_a_head_that_never_paid_rests(model_file: Callable[..., Path]) -> None:
    """It guesses nothing, and does not process texts."""
    with with_head(model_file(RECURRENT)) as model:
        helper = model.runner.guessers.helper
        assert isinstance(helper, HeadGuesser)
        helper.credit.left = -1.0
        _, result = answer(model, tokens(40), 20)
        assert result.guessed == 0 and not helper._texts


def test_a_file_without_a_head_has_no_guesser(tmp_path: Path) -> None:
    plain = tmp_path / "plain.gguf"
    convert(random_heads.write(PLAIN, tmp_path / "model"), plain, outtype="q8_0", tokenizer=TOKENIZER, heads=False)
    with LoadedModel.load(plain, n_ctx=64) as model:
        assert heads.head_guesser(model) is None


def with_picture(model: LoadedModel, rows: tuple[int, int]) -> tuple[list[int], Picture]:
    """A text of 40 tokens, 6 of which are of a picture."""
    rng = np.random.default_rng(5)
    picture = Picture(rng.standard_normal((6, model.hparams.n_embd)).astype(np.float32), rows)
    model.runner.pictures.add(picture)
    text = tokens(40)
    return [*text[:9], *picture.ids, *text[15:]], picture


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", [RECURRENT, PLAIN])
def test_texts_with_pictures(name: str, model_file: Callable[..., Path]) -> None:
    with with_head(model_file(name)) as model:
        ids, picture = with_picture(model, (2, 3))
        plain, _ = answer(model, ids, 24, guess=False)
        guessed, result = answer(model, ids, 24)
        assert plain == guessed and result.guessed > 0
        assert guessed[2][:40] == ids and picture.ids == ids[9:15]
