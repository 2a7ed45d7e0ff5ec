"""From a picture's file to the answer: the reference's tokens and greedy continuations."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from golden.models import Golden
from golden.vision_goldens import PROMPTS, VISION, VisionGolden

from hybrid.infer import LoadedModel
from hybrid.infer.pictures.decode import decode, picture_name
from hybrid.infer.pictures.placeholders import expanded
from hybrid.infer.pictures.processors import processor_of
from hybrid.infer.towers.loading import load_tower
from hybrid.infer.towers.prompts import with_pictures
from hybrid.quant.ggml.errors import UsageError

ALLOWED = 4  # as a multiple of the reference's own noise
pytestmark = pytest.mark.shared


@pytest.mark.parametrize("name", VISION)
def test_answers_to_picture_files(name: str, golden: Callable[[str], Golden], converted: Callable[..., Path]) -> None:
    reference = VisionGolden(golden(name))
    tower = load_tower(next(converted(name).parent.glob("mmproj-*.gguf")), precision="exact")
    processor = processor_of(tower.gguf)
    with LoadedModel.load(converted(name), n_ctx=512, precision="exact") as model:
        tower.check_model(model.engine)
        for prompt in PROMPTS:
            described = reference.golden.prompts[prompt]
            layouts, seen = [], []
            for image in described["images"]:
                rgb = decode((reference.golden.folder / "images" / image).read_bytes())
                pixels = processor.pixels(rgb)
                layouts.append(pixels.layout)
                seen.append(tower.see(pixels, picture_name(rgb)))
            text = expanded(described["text"], processor.placeholder, layouts)
            with_special = [model.tokenizer.encode(text, add_special=add, parse_special=True) for add in (False, True)]
            assert described["ids"] in with_special, "the template of some families has BOS"
            ids = with_pictures(described["ids"], reference.image_token, layouts, seen)
            seq = model.sequence()
            logits = seq.prefill(ids, pictures=[picture for runs in seen for picture in runs])
            error = np.abs(logits - reference.golden.last_logits(prompt)[-1]).max()
            print(f"{name} {prompt}: max error {error:.1e}, noise {reference.noise[prompt]:.1e}")
            assert error <= ALLOWED * reference.noise[prompt]
            greedy = [int(logits.argmax())]
            while len(greedy) < 32:
                greedy.append(int(seq.decode(greedy[-1]).argmax()))
            assert greedy == reference.golden.greedy[prompt]["ids"][:32]
            seq.close()
    tower.close()


@pytest.mark.parametrize(("tower", "text"), [("smolvlm", "qwen3-vl"), ("qwen25-vl", "qwen3-vl")])
def test_a_tower_of_another_model(tower: str, text: str, converted: Callable[..., Path]) -> None:
    """Of another width, or without the further features that the model reads."""
    other = load_tower(next(converted(tower).parent.glob("mmproj-*.gguf")))
    refused = pytest.raises(UsageError, match="is of another model: it makes 1 x ")
    with LoadedModel.load(converted(text), n_ctx=64) as model, refused:
        other.check_model(model.engine)
