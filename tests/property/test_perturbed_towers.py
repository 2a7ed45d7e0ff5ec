"""A vision tower's file with other values of its keys, or without a tensor: it is refused in one line, or the features
change, or the reason why not is known."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_towers
from made_towers import Made, tower_file
from test_perturbed_keys import others

from hybrid.infer.towers.loading import load_tower
from hybrid.quant.ggml.errors import HybridError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter
from hybrid.quant.rewrite import set_value

# Keys of the processor, and keys that llama.cpp needs.
OTHERS = (
    r"clip\.(has_vision_encoder|use_gelu|use_silu)|clip\.vision\.(image_size|image_mean|image_std|preproc_.*"
    r"|image_(min|max)_pixels|image_grid_pinpoints)|hybrid\.vision\.(?!rope|attention|shortconv|window|full|projector).*"
)
REPEATED = r"v\.blk\.[1-9]|v\.proj_blk\.[1-9]"
OPTIONAL = r"\.bias$|std_|_(min|max)$|mm\.input_norm\.weight"
HUGE = [str(2**31 - 1), "0", "3"]


def features(made: Made) -> np.ndarray:
    picture = made.encode(len(made.sizes) - 1)
    return np.concatenate([picture.rows, *picture.added])


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", random_towers.CONFIGS)
def test_keys(name: str, data_dir: Path, tmp_path: Path) -> None:
    path = tower_file(name, data_dir)
    made = Made(name, path, precision="exact", n_threads=1)
    before = features(made)
    made.tower.close()
    with GGUFFile.open(path) as gguf:
        values: dict[str, Any] = {
            key: value.tolist() if hasattr(value := gguf.get(key), "tolist") else value
            for key in gguf.metadata
            if key.startswith(("clip.", "hybrid.vision")) and not re.fullmatch(OTHERS, key)
        }
    refused = 0
    for key, value in values.items():
        more = HUGE if isinstance(value, int) and not isinstance(value, bool) else []
        changed = False
        for text in [*others(value), *more]:
            changed_path = tmp_path / "changed.gguf"
            shutil.copyfile(path, changed_path)
            changed_path.chmod(0o644)
            set_value(changed_path, key, text)
            try:
                other = Made(name, changed_path, precision="exact", n_threads=1)
                after = features(other)
                other.tower.close()
            except HybridError as error:
                assert "\n" not in str(error)
                refused, changed = refused + 1, True
                continue
            changed |= after.shape != before.shape or not np.array_equal(after, before)
        assert changed or _has_no_effect(name, key), f"{key} changes nothing"
    assert refused > 3


def _has_no_effect(name: str, key: str) -> bool:
    """The epsilon of Qwen's towers is fixed, Gemma 4 has a key of its own; heads of 4 values have one frequency, 1."""
    if key.endswith("rope.freq_base"):
        return name.startswith("qwen")
    return key == "clip.vision.attention.layer_norm_epsilon" and name.startswith(("qwen", "gemma4"))


def write(path: Path, source: GGUFFile, tensors: dict[str, np.ndarray]) -> None:
    """A file with the keys of another, and other tensors."""
    with GGUFWriter(path, "clip") as writer:
        for key in source.metadata:
            if key.startswith(("clip.", "hybrid.")):
                writer.add_raw(key, source)
        for name, values in tensors.items():
            writer.declare(name, values.shape, GGMLType.F32)
        for name, values in tensors.items():
            writer.write(name, values)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", random_towers.CONFIGS)
def test_tensors_of_other_shapes(name: str, data_dir: Path, tmp_path: Path) -> None:
    path, changed = tower_file(name, data_dir), tmp_path / "changed.gguf"
    with GGUFFile.open(path) as gguf:
        tensors = {tensor: gguf.f32(tensor) for tensor in gguf.tensors}
        for tensor in tensors:
            if re.match(REPEATED if name != "granite4-vision" else f"{REPEATED}|v\\.post_ln", tensor):
                continue
            rest = {other: values for other, values in tensors.items() if other != tensor}
            wider = {**rest, tensor: np.concatenate([tensors[tensor]] * 2, axis=-1)}
            for case in (wider,) if re.search(OPTIONAL, tensor) else (wider, rest):
                write(changed, gguf, case)
                with pytest.raises(HybridError) as error:
                    load_tower(changed, n_threads=1)
                assert tensor in str(error.value) or "position" in tensor or "mm." in str(error.value), tensor
        write(changed, gguf, {**tensors, "v.unknown.weight": np.zeros(3, np.float32)})
        with pytest.raises(HybridError, match=r"v\.unknown\.weight: this architecture has no such tensor"):
            load_tower(changed, n_threads=1)
