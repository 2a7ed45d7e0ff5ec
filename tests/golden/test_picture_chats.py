"""Chats with pictures, from the bytes of PNG files to the reference's ids, positions and greedy tokens."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.models import Golden
from golden.vision_goldens import PROMPTS, VISION, VisionGolden

from hybrid.infer import LoadedModel
from hybrid.infer.answers.asking.asker import AnswerSettings, Asker
from hybrid.infer.answers.asking.eyes import Eyes
from hybrid.infer.answers.batch.batcher import Batcher
from hybrid.infer.answers.batch.job import Job
from hybrid.infer.answers.chat.dialect import NOTHING
from hybrid.infer.answers.chat.picture_parts import pictures_in
from hybrid.infer.answers.sampling import SamplingParams

pytestmark = pytest.mark.shared


class Asked:
    """A loaded model with eyes, and its reference."""

    def __init__(self, name: str, golden: Golden, path: Path) -> None:
        self.name, self.reference = name, VisionGolden(golden)
        self.model = LoadedModel.load(path, n_ctx=512, precision="exact", n_seq_max=2, checkpoint_budget=64 << 20)
        self.eyes = Eyes.open(next(path.parent.glob("mmproj-*.gguf")), self.model)
        self.asker = Asker(self.model.tokenizer, self.model.chat_template, self.model.n_vocab)

    def messages(self, prompt: str) -> list[dict[str, Any]]:
        """The messages of a golden prompt, with its pictures from their files."""
        described = self.reference.golden.prompts[prompt]
        files = iter(described["images"])

        def part(given: dict[str, Any]) -> dict[str, Any]:
            if given["type"] != "image":
                return given
            name = next(files)
            data = (self.reference.golden.folder / "images" / name).read_bytes()
            return {**given, "image": self.eyes.read(data, name)}

        return [{**m, "content": [part(given) for given in m["content"]]} for m in described["messages"]]

    def run(self, messages: list[dict[str, Any]], n: int) -> Job:
        prompt = self.asker.messages(self.asker.dialect.prompt(messages, NOTHING))
        params = SamplingParams(temp=0, repeat_penalty=1.0)
        job = self.asker.job(prompt, AnswerSettings(params, n, ignore_eos=True), remember=True)
        batcher = Batcher(self.model.runner, 1)
        batcher.submit(job)
        list(batcher.run())
        batcher.close()
        assert job.error is None
        return job


@pytest.fixture(scope="module", params=VISION)
def asked(request: pytest.FixtureRequest, golden: Callable[[str], Golden], converted: Callable) -> Iterator[Asked]:
    asked = Asked(request.param, golden(request.param), converted(request.param))
    yield asked
    asked.eyes.close()
    asked.model.close()


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_reference_ids_and_tokens(prompt: str, asked: Asked) -> None:
    messages, golden, token = asked.messages(prompt), asked.reference.golden, asked.eyes.image_token
    ids = golden.prompts[prompt]["ids"]
    written = asked.asker.dialect.prompt(messages, NOTHING)
    assert asked.asker.n_tokens(written) == len(ids)
    made = asked.asker.messages(written)
    assert [token if one < 0 else one for one in made.ids] == ids
    assert [one < 0 for one in made.ids] == [one == token for one in ids]
    features = np.concatenate([picture.rows for picture in made.pictures])
    assert len(features) == ids.count(token)
    assert asked.run(messages, 32).result.ids == golden.greedy[prompt]["ids"][:32]


def test_a_conversation_reads_nothing_twice(asked: Asked) -> None:
    first = asked.messages("img1")
    begun = asked.run(first, 8)
    n_encoded = asked.eyes.n_encoded
    answer = {"role": "assistant", "content": begun.result.text}
    second = [*first, answer, *asked.messages("img2")]
    go_on = asked.run(second, 8)
    third = [*second, {"role": "assistant", "content": go_on.result.text}, {"role": "user", "content": "And now?"}]
    ended = asked.run(third, 8)
    assert asked.eyes.n_encoded <= n_encoded + 2, "of img2"
    if asked.name not in ("gemma3-vl", "gemma4-vl"):  # whose templates trim the answers
        assert go_on.n_known >= len(begun.ids) and ended.n_known >= len(go_on.ids)
    assert ended.n_known > max(i for i, token in enumerate(go_on.ids) if token < 0), "both questions' pictures"
    known = asked.asker.messages(asked.asker.dialect.prompt(third, NOTHING))
    assert known.ids == ended.ids and list(known.boundaries) == sorted(known.boundaries)
    anew = asked.asker.messages(asked.asker.dialect.prompt(third, NOTHING), drawn=False)
    assert [picture.ids for picture in anew.pictures] == [picture.ids for picture in known.pictures]


def test_boundaries_are_where_messages_end(asked: Asked) -> None:
    first, second = asked.messages("img1"), asked.messages("img2")
    messages = [*first, {"role": "assistant", "content": "Nothing."}, *second]
    whole = asked.asker.messages(asked.asker.dialect.prompt(messages, NOTHING), drawn=False)
    written = asked.asker.dialect.prompt(messages, NOTHING)
    for n in (1, 2):
        text = asked.asker.dialect.rendered(written, written.messages[:n])
        ids = asked.asker.encoded(text, drawn=False, seen=pictures_in(messages[:n])).ids
        common = next((i for i, (a, b) in enumerate(zip(ids, whole.ids, strict=False)) if a != b), len(ids))
        assert common in whole.boundaries, (n, common, whole.boundaries)
    assert all(a < b for a, b in pairwise(whole.boundaries))
