"""Loads the tower of an mmproj file."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.vision.tower import projector_of, read_tower

from ..loading.options import Precision
from ..program.threads import default_threads
from .tower import VisionTower

# clip.projector_type -> module and class
_HOMES = {
    "gemma3": "siglip.Gemma3Vl",
    "gemma4v": "gemma4_vl.Gemma4Vl",
    "granite4_vision": "granite4_vision.Granite4Vision",
    "idefics3": "siglip.SmolVlm",
    "lfm2": "siglip.Lfm2Vl",
    "lfm3": "lfm3_vl.Lfm3Vl",
    "qwen2.5vl_merger": "qwen25_vl.Qwen25Vl",
    "qwen3vl_merger": "qwen_vl.QwenVl",
}


def load_tower(
    path: Path | str, *, n_threads: int = 0, precision: Precision = "fast", cpus: Sequence[int] = ()
) -> VisionTower:
    """The tower of a file: ours, or llama.cpp's.

    n_threads  0: one for each core
    precision  as for a text model

    Raises FormatError, or UnsupportedError for another kind of tower.
    """
    gguf = open_gguf(path)
    hparams = read_tower(gguf)
    module, kind = _HOMES[projector_of(gguf)].split(".")
    family: type[VisionTower] = getattr(import_module(f"{__package__}.{module}"), kind)
    return family(gguf, hparams, n_threads or default_threads(), exact=precision == "exact", cpus=cpus)
