"""Quantizes models, and makes GGUF files from GGUF files.

    quantize, plan, file_nbytes    a model in another type; the plan; the size of its file
    Options, SsmType               types of single tensors
    Imatrix                        importance matrices (files are llama.cpp's)
    target, budget                 (modules) the best type for every matrix; a file of a given size
    inspect                        facts about a file's model
    split, merge, set_value        split a file, join parts, change a value of the metadata
    hashes, merge_lora             hash weights; merge adapters into them

`ggml` is the floor under all stages: the container and the block formats. Long operations accept a callback
progress(name, done, total); errors are `ggml.errors.HybridError`. Everything is imported on first use, since every
stage imports `ggml` through here; kernels (numba) are imported when the first block is encoded.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ggml.progress import Progress
    from .hashing import Hash, HashKind, hashes, read_manifest
    from .imatrix import Imatrix
    from .imatrix_data import InputSums
    from .inspection import Inspection, inspect
    from .layout import file_nbytes
    from .lora import MergeReport, merge_lora
    from .planning import PlannedTensor, plan
    from .policy import TARGETS, Options, SsmType
    from .quantization import QuantizeReport, quantize
    from .recoding import TensorReport
    from .rewrite import Change, PartReport, SplitReport, merge, set_value, split
    from .source import GGUFSource, RowSlice, Source

__all__ = [
    "TARGETS",
    "Change",
    "GGUFSource",
    "Hash",
    "HashKind",
    "Imatrix",
    "InputSums",
    "Inspection",
    "MergeReport",
    "Options",
    "PartReport",
    "PlannedTensor",
    "Progress",
    "QuantizeReport",
    "RowSlice",
    "Source",
    "SplitReport",
    "SsmType",
    "TensorReport",
    "file_nbytes",
    "hashes",
    "inspect",
    "merge",
    "merge_lora",
    "plan",
    "quantize",
    "read_manifest",
    "set_value",
    "split",
]

# No module has the name of an export: the meaning of `hybrid.quant.NAME` would depend on earlier imports.
_MODULES = {
    "ggml.progress": ("Progress",),
    "hashing": ("Hash", "HashKind", "hashes", "read_manifest"),
    "imatrix": ("Imatrix",),
    "imatrix_data": ("InputSums",),
    "inspection": ("Inspection", "inspect"),
    "layout": ("file_nbytes",),
    "lora": ("MergeReport", "merge_lora"),
    "planning": ("PlannedTensor", "plan"),
    "policy": ("TARGETS", "Options", "SsmType"),
    "quantization": ("QuantizeReport", "quantize"),
    "recoding": ("TensorReport",),
    "rewrite": ("Change", "PartReport", "SplitReport", "merge", "set_value", "split"),
    "source": ("GGUFSource", "RowSlice", "Source"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
