"""Pictures in Python: paths, bytes, PIL images, arrays."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from seeing_models import pixels, png, seeing_model, tower_of

import hybrid
from hybrid.images import with_pictures
from hybrid.quant.ggml.errors import HybridError

SHORT: Any = {"tokens": 4, "temperature": 0.0}


@pytest.fixture(scope="module")
def seeing(data_dir: Path) -> Iterator[hybrid.Model]:
    with hybrid.load(seeing_model(data_dir), context=256, parallel=2) as model:
        yield model


def test_all_kinds_of_one_picture(seeing: hybrid.Model, tmp_path: Path) -> None:
    rgb, path = pixels(1), tmp_path / "a.png"
    path.write_bytes(png(rgb))
    kinds = [path, str(path), path.read_bytes(), Image.fromarray(rgb), rgb]
    answers = [seeing.chat(**SHORT).say("What?", images=[kind]) for kind in kinds]
    assert len({tuple(answer.tokens) for answer in answers}) == 1
    assert seeing.answering.eyes.open().n_encoded == 1
    assert answers[-1].timings.reused_tokens >= answers[-1].timings.prompt_tokens - 1
    plain = seeing.chat(**SHORT).say("What?")
    assert answers[0].timings.prompt_tokens == plain.timings.prompt_tokens + 8
    first = seeing.chat(images=[rgb], **SHORT)
    assert first.say("What?").tokens == answers[0].tokens
    assert not first.pictures and first.turns[0].pictures[0].title == "picture 1"


def test_messages(seeing: hybrid.Model) -> None:
    rgb = pixels(2)
    part = {"type": "image", "image": rgb}
    messages = [{"role": "user", "content": [part, {"type": "text", "text": "What?"}]}]
    answer = seeing.reply(messages, **SHORT)
    assert answer.tokens == seeing.chat(**SHORT).say("What?", images=[rgb]).tokens
    assert messages[0]["content"][0] is part, "the caller's own"  # type: ignore[index]
    again = with_pictures(seeing.answering.eyes, with_pictures(seeing.answering.eyes, messages))
    assert again[0]["content"][0]["image"].title == "picture 1"


def test_a_chat_goes_on(seeing: hybrid.Model, tmp_path: Path) -> None:
    chat = seeing.chat(**SHORT)
    chat.say("What?", images=[pixels(1), pixels(3)])
    chat.save(tmp_path / "chat")
    more = chat.say("More?")
    other = seeing.load_chat(tmp_path / "chat")
    assert [p.title for p in other.turns[0].pictures] == ["picture 1", "picture 2"]
    assert other.say("More?", **SHORT).tokens == more.tokens
    assert chat.branch(1).say("More?").tokens == more.tokens


def test_refusals(seeing: hybrid.Model, data_dir: Path, tmp_path: Path) -> None:
    chat = seeing.chat(**SHORT)
    with pytest.raises(HybridError, match="expected a list of pictures"):
        chat.say("What?", images="a.png")
    with pytest.raises(HybridError, match=r"nothing\.png: No such file"):
        chat.say("What?", images=[tmp_path / "nothing.png"])
    with pytest.raises(HybridError, match="picture 2 is an array float64"):
        chat.say("What?", images=[pixels(1), np.zeros((4, 4))])
    with pytest.raises(HybridError, match=r'no "image": a path'):
        seeing.reply([{"role": "user", "content": [{"type": "image"}]}])
    assert not chat.turns
    with hybrid.load(seeing_model(data_dir), context=256, mmproj=False) as blind:
        with pytest.raises(HybridError, match="its vision tower is switched off"):
            blind.chat(images=[pixels(1)])
        with pytest.raises(HybridError, match="its vision tower is switched off"):
            blind.chat().say("What?", images=[pixels(1)])
    with pytest.raises(HybridError, match="no such file"):
        hybrid.load(seeing_model(data_dir), context=256, mmproj=tmp_path / "nothing")
    with hybrid.load(seeing_model(data_dir), context=256, mmproj=tower_of(seeing_model(data_dir))) as own:
        assert own.chat(**SHORT).say("What?", images=[pixels(1)]).tokens
    with pytest.raises(HybridError, match="is of another model"):
        hybrid.load(seeing_model(data_dir), context=256, mmproj=tower_of(seeing_model(data_dir, "qwen3-vl")))
