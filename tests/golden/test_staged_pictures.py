"""A model in stages reads pictures with the bits of the whole model."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from golden.models import Golden
from golden.vision_goldens import VISION, VisionGolden
from staged_models import OPTIONS, check_same

from hybrid.infer import LoadedModel, Work
from hybrid.infer.stages.line import LineHere
from hybrid.infer.stages.loading import load_staged

pytestmark = pytest.mark.shared
# one of each: axes of positions, plain positions, tokens that see each other, features for later layers
STAGED = ("qwen35-vl", "smolvlm", "gemma3-vl", "qwen3-vl", "granite4-vision")
assert set(STAGED) <= set(VISION)


def read(model: LoadedModel, reference: VisionGolden) -> list[np.ndarray]:
    """Two texts with pictures together with one without, then single tokens, a copy, and a way back."""
    prompts = [reference.prompt(name) for name in ("img1", "img2")]
    model.runner.pictures.add(*(picture for prompt in prompts for picture in prompt.pictures))
    seqs = [model.sequence() for _ in range(3)]
    texts = [prompts[0].ids, reference.golden.prompts["p64"]["ids"], prompts[1].ids]
    results = model.eval([Work(seq, ids, "all") for seq, ids in zip(seqs, texts, strict=True)])
    out = [result.logits for result in results if result.logits is not None]
    out += [seqs[0].decode(token) for token in (5, 9, 4)]
    seqs[1].close()
    fork = seqs[0].copy()
    out += [fork.decode(7), seqs[0].decode(8)]
    known = fork.resume([*texts[0], 11, 12])
    out += [np.array([known]), fork.prefill([*texts[0], 11, 12][known:])]
    for seq in (seqs[0], seqs[2], fork):
        seq.close()
    return out


@pytest.mark.parametrize("name", STAGED)
def test_stages(name: str, golden: Callable[[str], Golden], converted: Callable[..., Path]) -> None:
    reference, options = VisionGolden(golden(name)), replace(OPTIONS, n_ctx=512, precision="exact", n_ubatch=128)
    with LoadedModel.load(converted(name), options) as model:
        want = read(model, reference)
    for n in (2, 3):
        with load_staged(converted(name), options, n, LineHere) as model:
            check_same(read(model, reference), want)
