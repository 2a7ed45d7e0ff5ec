"""Writes sizes.json: what transformers 5.24.0 makes of pictures of odd sizes, by its own functions of sizes.

    python tests/golden/pictures/make.py path/to/site-packages/transformers

The functions are cut out of its source and executed alone, so that neither torch nor torchvision is needed.
"""

import ast
import itertools
import json
import math
import sys
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SOURCE = Path(sys.argv[1])
PINPOINTS = [[384, 768], [768, 384], [768, 768], [384, 1152], [1152, 384], [384, 1536], [1536, 384]]
SIDES = (1, 2, 31, 48, 80, 117, 181, 256, 364, 512, 640, 1023, 1024, 1500, 3000, 8000)


def functions(file: str, *names: str) -> dict[str, Any]:
    """Functions and methods of a file by name, without their annotations and decorators."""
    found: dict[str, Any] = {
        "math": math, "itertools": itertools, "Fraction": Fraction, "lru_cache": lru_cache, "MAX_IMAGE_SIZE": 4096,
        "get_image_size": lambda image, channel_dim: image,
    }  # fmt: skip
    for node in ast.walk(ast.parse((SOURCE / file).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name in names and node.name not in found:
            node.returns, node.decorator_list = None, []
            for argument in node.args.args:
                argument.annotation = None
            exec(compile(ast.Module([node], []), file, "exec"), found)
    return found


class Image:
    """What can be sliced like a tensor, and has a shape."""

    def __init__(self, height: int, width: int) -> None:
        self.shape = (3, height, width)

    def __getitem__(self, key: tuple[Any, slice, slice]) -> "Image":
        return Image(*(len(range(n)[part]) for n, part in zip(self.shape[1:], key[1:], strict=True)))


def or_none(call: Any, *args: Any) -> Any:
    try:
        return call(*args)
    except ValueError:
        return None


QWEN = functions("models/qwen2_vl/image_processing_qwen2_vl.py", "smart_resize")
SMOL = functions(
    "models/smolvlm/image_processing_smolvlm.py",
    "_resize_output_size_rescale_to_max_len", "_resize_output_size_scale_below_upper_bound",
    "get_number_of_image_patches",
)  # fmt: skip
LFM2 = functions(
    "models/lfm2_vl/image_processing_lfm2_vl.py",
    "round_by_factor", "find_closest_aspect_ratio", "smart_resize", "_is_image_too_large", "_get_grid_layout",
    "_target_ratios",
)  # fmt: skip
GEMMA3 = functions("models/gemma3/image_processing_gemma3.py", "pan_and_scan_batched")
GEMMA4 = functions("models/gemma4/image_processing_gemma4.py", "get_aspect_ratio_preserving_size")
BOTH = functions("image_processing_utils.py", "select_best_resolution", "get_patch_output_size")
GRANITE = functions(
    "models/granite4_vision/processing_granite4_vision.py", "_get_number_of_features", "_get_unpadded_features"
)
GRANITE["select_best_resolution"] = BOTH["select_best_resolution"]


def lfm2(h: int, w: int) -> Any:
    me = SimpleNamespace(_target_ratios=lambda *a: LFM2["_target_ratios"](None, *a))
    width, height = LFM2["smart_resize"](me, h, w, 2, 64, 256, 16)
    if not LFM2["_is_image_too_large"](me, h, w, 256, 16, 2, 2.0):
        return [height, width, 0, 0]
    columns, rows, *_ = LFM2["_get_grid_layout"](me, h, w, 2, 10, 512)
    return [height, width, rows, columns]


def smol(h: int, w: int) -> Any:
    me = SimpleNamespace(do_image_splitting=True, max_image_size={"longest_edge": 512}, size={"longest_edge": 2048})
    return SMOL["get_number_of_image_patches"](me, h, w)


def granite(h: int, w: int) -> Any:
    own = SimpleNamespace(image_grid_pinpoints=PINPOINTS)
    me = SimpleNamespace(image_processor=own, patch_size=16, downsample_rate="1/2", num_additional_image_tokens=0)
    me._get_unpadded_features = lambda *a: GRANITE["_get_unpadded_features"](me, *a)
    best = BOTH["select_best_resolution"]((h, w), PINPOINTS)
    return [*best, GRANITE["_get_number_of_features"](me, h, w, 384, 384)]


rows = [
    {
        "size": [h, w],
        "qwen3.5": or_none(QWEN["smart_resize"], h, w, 32, 65536, 16777216),
        "qwen2.5": or_none(QWEN["smart_resize"], h, w, 28, 3136, 1003520),
        "smolvlm": smol(h, w),
        "lfm2": lfm2(h, w),
        "gemma3": [i.shape[1:] for i in GEMMA3["pan_and_scan_batched"](None, Image(h, w), 256, 4, 1.2)],
        "gemma4": or_none(GEMMA4["get_aspect_ratio_preserving_size"], h, w, 16, 280 * 9, 3),
        "granite": granite(h, w),
    }
    for h in SIDES
    for w in SIDES
]
lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
Path(__file__).with_name("sizes.json").write_text(f"[\n{lines}\n]\n")
