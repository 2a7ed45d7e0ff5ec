"""Texts with pictures: the reference's features in place of embeddings give its logits and its greedy tokens, however a
text is split, kept, copied or taken back."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from golden.models import Golden
from golden.vision_goldens import PROMPTS, VISION, PicturePrompt, VisionGolden

from hybrid.infer import LoadedModel
from hybrid.infer.engine.pictures import Picture
from hybrid.infer.runner import Work
from hybrid.infer.sequence import Sequence
from hybrid.quant.ggml.errors import UsageError

ALLOWED = 4  # as a multiple of the reference's own noise
pytestmark = pytest.mark.shared


class Seeing:
    """A loaded model, and its prompts with pictures."""

    def __init__(self, name: str, golden: Golden, path: Path) -> None:
        self.name, self.reference = name, VisionGolden(golden)
        self.prompts = {prompt: self.reference.prompt(prompt) for prompt in PROMPTS}
        self.model = LoadedModel.load(path, n_ctx=512, precision="exact", n_seq_max=4, checkpoint_budget=64 << 20)
        for prompt in self.prompts.values():
            for picture in prompt.pictures:
                self.model.runner.pictures.add(picture)
        self._whole: dict[str, np.ndarray] = {}

    def whole(self, prompt: str) -> np.ndarray:
        """Logits of all tokens of a prompt that is read at once."""
        if prompt not in self._whole:
            with closing(self.model) as seq:
                self._whole[prompt] = seq.logits_of(self.prompts[prompt].ids)
        return self._whole[prompt]

    def is_together(self) -> bool:
        return self.model.memory.is_together


class closing:  # noqa: N801  as contextlib.closing
    """An empty sequence that the prompt cache does not keep."""

    def __init__(self, model: LoadedModel) -> None:
        self.seq = model.sequence()

    def __enter__(self) -> Sequence:
        return self.seq

    def __exit__(self, *_: object) -> None:
        self.seq.close(remember=False)


@pytest.fixture(scope="module", params=VISION)
def seeing(request: pytest.FixtureRequest, golden: Callable[[str], Golden], converted: Callable) -> Iterator[Seeing]:
    seeing = Seeing(request.param, golden(request.param), converted(request.param))
    yield seeing
    seeing.model.close()


def greedy(seq: Sequence, logits: np.ndarray, n: int = 32) -> list[int]:
    ids = [int(logits.argmax())]
    while len(ids) < n:
        ids.append(int(seq.decode(ids[-1]).argmax()))
    return ids


@pytest.mark.parametrize("prompt", PROMPTS)
def test_logits_and_greedy_continuations(prompt: str, seeing: Seeing) -> None:
    golden, noise = seeing.reference.golden, seeing.reference.noise[prompt]
    logits, expected = seeing.whole(prompt), golden.last_logits(prompt)
    error = np.abs(logits[-len(expected) :] - expected).max()
    print(f"{seeing.name} {prompt}: max error {error:.1e}, noise {noise:.1e}")
    assert error <= ALLOWED * noise
    with closing(seeing.model) as seq:
        assert greedy(seq, seq.prefill(seeing.prompts[prompt].ids)) == golden.greedy[prompt]["ids"][:32]
        delta = golden.prompts[prompt].get("rope_delta")
        place = seeing.model.memory.next_position(seq.slot)
        assert place == seq.n_past + (0 if delta is None else int(np.ravel(delta)[0]))


def test_any_split_gives_the_same_bits(seeing: Seeing) -> None:
    prompt = seeing.prompts["img2"]
    inside = [n for begin, end in prompt.runs() for n in range(begin + 1, end)]
    rng = np.random.default_rng(0)
    for _ in range(6):
        cuts = set(rng.choice(len(prompt.ids), 5, replace=False).tolist()) - {0}
        cuts = cuts - set(inside) if seeing.is_together() else cuts | {inside[0], inside[-1]}
        edges = [0, *sorted(cuts), len(prompt.ids)]
        with closing(seeing.model) as seq:
            parts = [seq.logits_of(prompt.ids[a:b]) for a, b in pairwise(edges)]
        np.testing.assert_array_equal(np.concatenate(parts), seeing.whole("img2"))
    if seeing.is_together():
        with closing(seeing.model) as seq, pytest.raises(UsageError, match="reads a picture whole"):
            seq.logits_of(prompt.ids[: inside[0]])


def test_passes_that_a_picture_fills(seeing: Seeing, converted: Callable) -> None:
    longest = max(len(picture.ids) for prompt in seeing.prompts.values() for picture in prompt.pictures)
    with LoadedModel.load(converted(seeing.name), n_ctx=512, precision="exact", n_ubatch=longest) as model:
        for name, prompt in seeing.prompts.items():
            for picture in prompt.pictures:
                model.runner.pictures.add(picture)
            with closing(model) as seq:
                np.testing.assert_array_equal(seq.logits_of(prompt.ids), seeing.whole(name))


def test_after_save_and_restore_behind_a_picture(seeing: Seeing, tmp_path: Path) -> None:
    prompt = seeing.prompts["img2"]
    cuts = [prompt.runs()[0][1], prompt.runs()[-1][1] + 1]
    if not seeing.is_together():
        cuts.append(prompt.runs()[0][0] + 1)
    for cut in cuts:
        with closing(seeing.model) as seq:
            seq.prefill(prompt.ids[:cut])
            seq.save(tmp_path / "saved")
        restored = seeing.model.restore(tmp_path / "saved")
        assert restored.tokens == prompt.ids[:cut] and restored.is_computed
        np.testing.assert_array_equal(restored.logits_of(prompt.ids[cut:]), seeing.whole("img2")[cut:])
        restored.close(remember=False)


def test_a_fork_and_a_way_back(seeing: Seeing) -> None:
    prompt, model = seeing.prompts["img1"], seeing.model
    begin, end = prompt.runs()[0]
    with closing(model) as seq:
        seq.prefill(prompt.ids)
        want = greedy(seq, seq.logits, 8)
        fork = seq.copy()
        fork.prefill([5, 9])
        assert seq.rewind(end + 1) <= end + 1
        rest = prompt.ids[seq.n_past :]
        assert greedy(seq, seq.prefill(rest), 8) == want
        assert fork.tokens[-2:] == [5, 9]
        assert fork.rewind(begin + 1) <= (begin if seeing.is_together() else begin + 1)
        assert greedy(fork, fork.prefill(prompt.ids[fork.n_past :]), 8) == want
        fork.close(remember=False)


def test_a_known_picture_is_not_read_again(seeing: Seeing) -> None:
    prompt, model = seeing.prompts["img1"], seeing.model
    assert model.cache is not None
    model.cache.clear()
    ids, end = [*prompt.ids[:-1], 4, 8], prompt.runs()[0][1]
    with closing(model) as seq:
        seq.prefill(prompt.ids, boundaries=[end])
    with closing(model) as other:
        known = other.resume(ids)
        assert end <= known < len(ids)
        got = other.logits_of(ids[known:])[-1]
    with closing(model) as fresh:
        np.testing.assert_array_equal(fresh.logits_of(ids)[-1], got)
    model.cache.clear()


def test_sequences_with_different_pictures_in_one_pass(seeing: Seeing) -> None:
    text = seeing.reference.golden.prompts["p64"]["ids"]
    texts = [seeing.prompts["img1"].ids, text, seeing.prompts["img2"].ids]
    seqs = [seeing.model.sequence() for _ in texts]
    results = seeing.model.eval([Work(seq, ids, "all") for seq, ids in zip(seqs, texts, strict=True)])
    for seq in seqs:
        seq.close(remember=False)
    np.testing.assert_array_equal(results[0].logits, seeing.whole("img1"))
    np.testing.assert_array_equal(results[2].logits, seeing.whole("img2"))
    with closing(seeing.model) as seq:
        np.testing.assert_array_equal(results[1].logits, seq.logits_of(text))


def test_refusals(seeing: Seeing) -> None:
    prompt, model = seeing.prompts["img1"], seeing.model
    unknown = Picture(np.zeros((4, model.hparams.n_embd), np.float32), (2, 2))
    with closing(model) as seq:
        with pytest.raises(UsageError, match="of no picture that is at hand"):
            seq.logits_of([*unknown.ids, 1])
        other = Picture(np.zeros((4, 7), np.float32), (2, 2))
        model.runner.pictures.add(other)
        with pytest.raises(UsageError, match=f"have 7 values, this model's {model.hparams.n_embd}"):
            seq.logits_of(other.ids)
        with pytest.raises(UsageError, match=r"one by one|verified at once"):
            seq.verify(prompt.pictures[0].ids)
        assert not seq.tokens


def test_the_text_decides_nothing_alone(seeing: Seeing) -> None:
    """Other rows under the same text change the logits: the pictures are read."""
    prompt = seeing.prompts["img1"]
    dark = PicturePrompt()
    ids = list(prompt.ids)
    for (begin, end), picture in zip(prompt.runs(), prompt.pictures, strict=True):
        added = [np.zeros_like(rows) for rows in picture.added]
        dark.pictures.append(Picture(np.zeros_like(picture.rows), picture.grid, added))
        seeing.model.runner.pictures.add(dark.pictures[-1])
        ids[begin:end] = dark.pictures[-1].ids
    with closing(seeing.model) as seq:
        assert np.abs(seq.logits_of(ids)[-1] - seeing.whole("img1")[-1]).max() > 1
