"""Attention over a window: config fields, and our key for architectures without a GGUF key for it."""

from collections.abc import Iterator, Sequence
from typing import Any

from ..checkpoint import Config
from .blocks import read_kinds

KINDS = {"sliding_attention": "sliding_attention", "full_attention": "full_attention"}


def read_window(config: Config, default: int = 0) -> int:
    """Tokens that a token sees, itself included; 0: all. `default`: for configs without the key; null means no window,
    as in transformers."""
    absent = default if "sliding_window" not in config.data else 0
    return config.integer("sliding_window", default=absent)


def read_layer_types(config: Config, n_layer: int) -> list[bool] | None:
    """Per layer, whether it has a window; None: the config has no layer_types."""
    if "layer_types" not in config:
        return None
    kinds = read_kinds(config, KINDS, "layer_types", n_layer=n_layer)
    return [kind == "sliding_attention" for kind in kinds]


def windows_of(config: Config, window: int, local: Sequence[bool]) -> tuple[int, ...]:
    """Per layer, its window; 0 for layers that are not `local`. CheckpointError: the config allows no window."""
    if any(local) and not window:
        raise config.wrong("layer_types", "no sliding_attention: use_sliding_window and sliding_window allow none")
    return tuple(window if is_local else 0 for is_local in local)


def window_values(window: int, windows: Sequence[int]) -> dict[str, Any]:
    """The keys for architectures in which llama.cpp has windows; none if `window` is 0."""
    return {"window": window or None, "local": tuple(size > 0 for size in windows) if window else None}


def one_or_each(windows: Sequence[int]) -> int | Sequence[int]:
    """One number if all layers have the same. `windows`: per layer, as from `read_window`."""
    return windows[0] if len(set(windows)) == 1 else windows


def window_notes(windows: Sequence[int], n_ctx: int) -> Iterator[str]:
    """The note that other readers ignore the window."""
    reached = [window for window in windows if 0 < window < n_ctx]
    if reached:
        yield f"llama.cpp has no window for this architecture: beyond {min(reached)} tokens its results differ"
