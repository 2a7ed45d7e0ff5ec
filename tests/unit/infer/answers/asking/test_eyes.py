"""What a model sees: pictures are read once, named by their pixels, and placed in prompts."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from seeing_models import pixels, png, seeing_model, tower_of

from hybrid.infer import LoadedModel
from hybrid.infer.answers.asking.asker import AnswerSettings, Asker
from hybrid.infer.answers.asking.eyes import Eyes, SeenPicture
from hybrid.infer.answers.batch.batcher import Batcher
from hybrid.infer.answers.batch.job import Job
from hybrid.infer.answers.chat.dialect import NOTHING
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.text.literal_text import BREAK
from hybrid.quant.ggml.errors import PictureError, UsageError


@pytest.fixture(scope="module")
def model(data_dir: Path) -> Iterator[LoadedModel]:
    with LoadedModel.load(
        seeing_model(data_dir), n_ctx=512, precision="exact", n_seq_max=2, checkpoint_budget=16 << 20
    ) as model:
        yield model


@pytest.fixture
def eyes(model: LoadedModel) -> Iterator[Eyes]:
    eyes = Eyes.open(tower_of(model.path), model)
    yield eyes
    eyes.close()


def prompt_text(eyes: Eyes, *parts: str | SeenPicture) -> str:
    return "".join(part if isinstance(part, str) else part.text for part in parts)


class TestRead:
    def test_files_images_and_arrays_of_the_same_pixels(self, eyes: Eyes) -> None:
        rgb = pixels(1)
        sources = [png(rgb), png(rgb, "BMP"), Image.fromarray(rgb), rgb]
        seen = [eyes.read(source, "a.png") for source in sources]
        assert len({picture.text for picture in seen}) == len({picture.name for picture in seen}) == 1
        assert eyes.read(pixels(2)).text != seen[0].text and eyes.n_encoded == 0
        assert sum(seen[0].counts) == seen[0].features == seen[0].layout.features
        for picture in seen:
            assert [run.ids for run in picture.runs()] == [run.ids for run in seen[0].runs()]
        assert eyes.n_encoded == 1

    def test_an_array_that_changes_afterwards(self, eyes: Eyes, model: LoadedModel) -> None:
        rgb = pixels(3)
        seen, before = eyes.read(rgb), eyes.read(rgb.copy())
        want = before.runs()[0].rows.copy()
        other = Eyes(eyes.make, eyes.tower, model.tokenizer)
        late = other.read(rgb)
        rgb[:] = 0
        assert np.array_equal(late.runs()[0].rows, want) and seen.name == before.name

    def test_bad_files(self, eyes: Eyes) -> None:
        with pytest.raises(PictureError, match=r"a\.png"):
            eyes.read(b"no picture at all", "a.png")
        with pytest.raises(PictureError, match="cut off"):
            eyes.read(png(pixels(1))[:-300], "a.png")
        with pytest.raises(PictureError, match="longer side of at most"):
            eyes.read(pixels(1, 4, 4 * 400))

    def test_the_tower_of_another_model(self, model: LoadedModel, data_dir: Path, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="is of another model: it makes 4 x 18 values of a feature"):
            Eyes.open(tower_of(seeing_model(data_dir, "qwen3-vl")), model)
        with pytest.raises(UsageError, match="is of another model, whose vocabulary has the token <image>"):
            Eyes.open(tower_of(seeing_model(data_dir, "smolvlm")), model)


class TestRuns:
    def test_the_least_recently_used_features_go(self, model: LoadedModel) -> None:
        eyes = Eyes.open(tower_of(model.path), model, budget=1)
        one, two = eyes.read(pixels(1)), eyes.read(pixels(2))
        first = one.runs()
        assert one.runs() is first and eyes.n_encoded == 1
        two.runs()
        assert eyes.nbytes == sum(run.nbytes for run in two.runs())
        assert one.runs()[0].ids == first[0].ids and eyes.n_encoded == 3
        eyes.close()

    def test_features_in_files_are_found_by_another_process(self, model: LoadedModel, tmp_path: Path) -> None:
        made = []
        for n in range(2):
            eyes = Eyes.open(tower_of(model.path), model, folder=tmp_path, folder_budget=1 << 20)
            made.append([eyes.read(pixels(seed)).runs() for seed in (1, 2)])
            assert eyes.n_encoded == (0 if n else 2)
            eyes.close()
        for first, again in zip(*made, strict=True):
            assert [run.ids for run in first] == [run.ids for run in again]
            assert all(np.array_equal(a.rows, b.rows) for a, b in zip(first, again, strict=True))

    def test_two_threads_encode_a_picture_once(self, eyes: Eyes) -> None:
        seen = [eyes.read(pixels(n % 2)) for n in range(12)]
        with ThreadPoolExecutor(6) as pool:
            made_ = list(pool.map(SeenPicture.runs, seen))
        assert eyes.n_encoded == 2
        assert all(runs is made_[n % 2] for n, runs in enumerate(made_))
        assert not eyes._reading

    def test_a_fault_is_not_kept(self, eyes: Eyes, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = eyes.read(pixels(4))

        def fail(*_: Any, **__: Any) -> Any:
            raise MemoryError

        with monkeypatch.context() as patched, pytest.raises(MemoryError):
            patched.setattr(eyes.tower, "see", fail)
            seen.runs()
        assert seen.runs() and not eyes._reading


class TestPrompts:
    def test_tokens_of_pictures_in_place(self, model: LoadedModel, eyes: Eyes) -> None:
        asker = Asker(model.tokenizer, None, model.n_vocab)
        one, two = eyes.read(pixels(1)), eyes.read(pixels(2, 90, 30))
        text = prompt_text(eyes, "A ", one, " and ", two, two, " B")
        made_ = asker.text(text, seen=[one, two, two])
        own = [i for picture in (one, two, two) for run in picture.runs() for i in run.ids]
        assert [i for i in made_.ids if i < 0] == own and eyes.n_encoded == 2
        plain = asker.text("A " + one.placeholder + " and " + one.placeholder * 2 + " B").ids
        runs = [i for i in made_.ids if i >= 0]
        assert runs == [i for i in plain if i != eyes.image_token]
        with pytest.raises(PictureError, match="has 3 tokens for pictures, expected 2"):
            asker.text(text, seen=[one, two])

    def test_a_placeholder_in_a_message_is_text(self, model: LoadedModel, eyes: Eyes) -> None:
        asker = Asker(model.tokenizer, model.chat_template, model.n_vocab)
        one = eyes.read(pixels(1))
        typed = [{"type": "text", "text": f"{one.placeholder} is a word, and so is {one.text} "}]
        messages = [{"role": "user", "content": [*typed, {"type": "image", "image": one}]}]
        written = asker.dialect.prompt(messages, NOTHING)
        made_ = asker.messages(written)
        assert len(made_.pictures) == 1 and eyes.image_token not in made_.ids
        assert written.text.count(BREAK) >= 2 and asker.n_tokens(written) == len(made_.ids)

    def test_answers_come_back_beside_their_picture_only(self, model: LoadedModel, eyes: Eyes) -> None:
        asker = Asker(model.tokenizer, None, model.n_vocab)
        one, two = eyes.read(pixels(1)), eyes.read(pixels(2))
        first = asker.text(prompt_text(eyes, "Look: ", one, " It is"), seen=[one])
        job = run(asker, model, first)
        again = asker.text(first.text + job.result.text + ". And", seen=[one])
        if again.known:  # otherwise no token begins where the answer ends
            assert again.known == [*first.ids, *job.result.ids]
        other = prompt_text(eyes, "Look: ", two, " It is") + job.result.text + ". And"
        assert not asker.text(other, seen=[two]).known
        asker.ledger.note("Look: " + one.text, " It", [*asker.text("Look: " + two.text, seen=[two]).ids, 5])
        mixed = asker.text("Look: " + one.text + " It is", seen=[one])
        assert not mixed.known and [i for i in mixed.ids if i < 0] == [i for r in one.runs() for i in r.ids]
        known = asker.ledger.find("Look: " + one.text + " It").known
        asker.ledger.load(asker.ledger.entries())
        assert min(known) < 0 and asker.ledger.find("Look: " + one.text + " It").known == known, "kept on disk too"


def run(asker: Asker, model: LoadedModel, prompt: Any) -> Job:
    job = asker.job(prompt, AnswerSettings(SamplingParams(temp=0), 6, ignore_eos=True))
    batcher = Batcher(model.runner, 1)
    batcher.submit(job)
    list(batcher.run())
    batcher.close()
    assert job.error is None and job.on_end is not None
    job.on_end()
    return job
