"""The inference core. Start with `LoadedModel`. Names are imported on first use, since numba takes a while to load."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import Interrupted, LoadedModel, LoadOptions, OpTime, Result, Sequence, Stop, Work

__all__ = ["Interrupted", "LoadOptions", "LoadedModel", "OpTime", "Result", "Sequence", "Stop", "Work"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from . import model

        return getattr(model, name)
    if name == "Model":  # the earlier name of LoadedModel
        from .model import LoadedModel

        return LoadedModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
