"""Attention over a window: what a config says of it, and the key for architectures whose GGUF has no key for it."""

from collections.abc import Iterator, Sequence
from typing import Any

from ..checkpoint import Config
from .blocks import read_kinds

KINDS = {"sliding_attention": "sliding_attention", "full_attention": "full_attention"}


def read_window(config: Config, default: int = 0) -> int:
    """Tokens that a token sees, itself included; 0: all. `default`: where the config has no such key. null: no window,
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
    """Per layer, the window of those that are local. CheckpointError where the config allows no window."""
    if any(local) and not window:
        raise config.wrong("layer_types", "no sliding_attention: use_sliding_window and sliding_window allow none")
    return tuple(window if is_local else 0 for is_local in local)


def window_values(window: int, windows: Sequence[int]) -> dict[str, Any]:
    """Of an architecture in which llama.cpp has windows; `window` 0: no keys."""
    return {"window": window or None, "local": tuple(size > 0 for size in windows) if window else None}


def one_or_each(windows: Sequence[int]) -> int | Sequence[int]:
    """A number where all layers have the same. `windows`: per layer, as `read_window` has it."""
    return windows[0] if len(set(windows)) == 1 else windows


def window_notes(windows: Sequence[int], n_ctx: int) -> Iterator[str]:
    """That other readers see no window."""
    reached = [window for window in windows if 0 < window < n_ctx]
    if reached:
        yield f"llama.cpp has no window for this architecture: beyond {min(reached)} tokens its results differ"
