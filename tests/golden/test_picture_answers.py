"""Answers to prompts with pictures, many together: each is as alone, and a picture is read once."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from golden.models import Golden
from golden.vision_goldens import VISION, PicturePrompt, VisionGolden

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.batcher import Batcher, Job
from hybrid.infer.answers.drawing.drawing import Drawing
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.engine.pictures import Picture, UnknownPictureError
from hybrid.quant.ggml.errors import UsageError

pytestmark = pytest.mark.shared


def job(model: LoadedModel, ids: list[int], pictures: list[Picture], n: int, **more: object) -> Job:
    params = SamplingParams(temp=0, repeat_penalty=1.1)
    drawing = Drawing(Sampler(params, model.n_vocab), model.tokenizer, n, (), ignore_eos=True)
    return Job(ids, drawing, pictures=tuple(pictures), **more)  # type: ignore[arg-type]


def variants(prompt: PicturePrompt) -> list[PicturePrompt]:
    """The prompt, and prompts with other pictures of the same sizes."""
    made = [prompt]
    for change in (lambda rows: -rows, lambda rows: rows[::-1], lambda rows: np.roll(rows, 1, axis=1)):
        ids, pictures = list(prompt.ids), []
        for (begin, end), old in zip(prompt.runs(), prompt.pictures, strict=True):
            changed = [change(rows) for rows in (old.rows, *old.added)]
            pictures.append(Picture(changed[0], old.grid, changed[1:]))
            ids[begin:end] = pictures[-1].ids
        made.append(PicturePrompt(ids, pictures))
    return made


@pytest.mark.parametrize("name", VISION)
def test_four_together(name: str, golden: Callable[[str], Golden], converted: Callable[..., Path]) -> None:
    reference = VisionGolden(golden(name))
    prompts = variants(reference.prompt("img1"))
    prompts.append(PicturePrompt(reference.golden.prompts["p64"]["ids"]))
    alone, together = [], []
    for n_parallel, answers in ((1, alone), (4, together)):
        with LoadedModel.load(
            converted(name), n_ctx=512, precision="exact", n_seq_max=n_parallel, n_ubatch=96, checkpoint_budget=0
        ) as model:
            batcher = Batcher(model.runner, n_parallel, step_seconds=1e-6)  # slices as short as possible
            jobs = [job(model, p.ids, p.pictures, 12, speculate=True) for p in prompts]
            for one in jobs:
                batcher.submit(one)
            assert len(list(batcher.run())) == len(jobs)
            assert not any(one.error for one in jobs), [one.error for one in jobs]
            answers += [one.result.ids for one in jobs]
    assert alone == together
    assert len({tuple(ids) for ids in alone}) == len(prompts), "other pictures, other answers"


@pytest.mark.parametrize("name", VISION)
def test_a_follow_up_reads_only_the_question(
    name: str, golden: Callable[[str], Golden], converted: Callable[..., Path]
) -> None:
    reference = VisionGolden(golden(name))
    prompt = reference.prompt("img2")
    with LoadedModel.load(
        converted(name), n_ctx=512, precision="exact", n_seq_max=2, checkpoint_budget=64 << 20
    ) as model:
        batcher = Batcher(model.runner, 2)
        first = job(model, prompt.ids, prompt.pictures, 8, remember=True)
        batcher.submit(first)
        list(batcher.run())
        question = [*prompt.ids, *first.result.ids[:-1], 5, 9, 4]
        # the picture is known: nobody needs its rows again
        second = job(model, question, prompt.pictures, 8)
        batcher.submit(second)
        list(batcher.run())
        assert second.n_known >= len(prompt.ids) + len(first.result.ids) - 2
        scored = job(model, prompt.ids, prompt.pictures, 1, prompt_top=2)
        batcher.submit(scored)
        list(batcher.run())
        unscored = [i for i, one in enumerate(scored.prompt_logprobs) if one is None]
        assert unscored == [i for i, token in enumerate(prompt.ids) if token < 0 or i == 0]
        again = job(model, question, prompt.pictures, 8, use_cache=False)
        batcher.submit(again)
        list(batcher.run())
        assert again.n_known == 0 and again.result.ids == second.result.ids
        other = variants(prompt)[1]
        third = job(model, other.ids, other.pictures, 2)
        batcher.submit(third)
        list(batcher.run())
        assert third.reuse is not None and third.reuse.code == "picture"
        assert third.reuse.reason.startswith(f"another picture at token {prompt.runs()[0][0]}")
        unknown = Picture(np.ones((4, model.hparams.n_embd), np.float32), (2, 2))
        with pytest.raises(UnknownPictureError):
            batcher.submit(job(model, [*unknown.ids, 1], [], 4))
        with pytest.raises(UsageError, match="vocabulary"):
            batcher.submit(job(model, [model.n_vocab], [], 4))


@pytest.mark.parametrize("name", ["qwen3-vl", "qwen25-vl", "gemma3-vl", "granite4-vision"])
def test_a_picture_leaves_the_context_whole(
    name: str, golden: Callable[[str], Golden], converted: Callable[..., Path]
) -> None:
    prompt = VisionGolden(golden(name)).prompt("img2")
    begin, end = prompt.runs()[0]
    with LoadedModel.load(converted(name), n_ctx=512, precision="exact") as model:
        seq = model.sequence()
        seq.prefill(prompt.ids, pictures=prompt.pictures)
        place, n = model.memory.next_position(seq.slot), len(prompt.ids)
        seq.shift(2, begin)  # ends within the picture
        assert seq.tokens == [*prompt.ids[:2], *prompt.ids[end:]] and seq.is_shifted
        taken = max(prompt.pictures[0].grid) if model.memory.has_axes else end - begin
        assert model.memory.next_position(seq.slot) == place - (begin - 2) - taken
        assert np.isfinite(seq.decode(5)).all() and seq.n_past == n - (end - 2) + 1
        seq.close()
