"""EXAONE 4: norms after the parts, and on queries and keys; windows on three layers of four. arXiv:2507.11407"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.families.olmo import Olmo2Hparams

from ..checkpoint import Config
from .blocks import MAX_LAYERS
from .family import Row
from .llama import LLAMA, Llama
from .olmo import Olmo2
from .windows import read_layer_types, read_window, window_values, windows_of

WITH_WINDOWS = 64  # number of layers of the only size with windows in llama.cpp


@dataclass(frozen=True)
class Exaone4(Llama):
    """One model. If it has windows, only layers with a window have positions."""

    arch = "exaone4"
    architectures = ("Exaone4ForCausalLM",)
    hparams = Olmo2Hparams
    order = f"{LLAMA} .vocab_size window? local"
    pre = ("exaone4",)
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "sliding_window_pattern": "where layer_types is absent",
    }
    usual_eps = 1e-5
    known_windows = True
    norms = Olmo2.norms

    window: int  # 0: no windows, and positions on all layers

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        return {"attention_bias": False, "mlp_bias": False}

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        """Windows on the layers that layer_types names, else by sliding_window_pattern."""
        window = read_window(config, 4096)
        return windows_of(config, window, read_local(config, window, n_layer))

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {"window": read_window(config, 4096)}

    def values(self) -> dict[str, Any]:
        return super().values() | window_values(self.window, self.windows)

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if (self.window > 0) != (self.n_layer == WITH_WINDOWS):
            yield f"llama.cpp takes models of {WITH_WINDOWS} layers, and no others, to have windows: its results differ"
        if self.heads.n_head * self.heads.d_head != self.n_embd:
            yield "llama.cpp cannot load this file: there the heads together are as wide as the model"

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd)
        yield from self.heads.norm_rows(hf, blk)


def read_local(config: Config, window: int, n_layer: int) -> list[bool]:
    """Per layer, whether it has a window: from layer_types, else by sliding_window_pattern. The pattern is a number
    n (all but the last of every n layers) or letters, repeated, in which L means a window."""
    if (local := read_layer_types(config, n_layer)) is not None:
        return local
    pattern = config.get("sliding_window_pattern") or 4
    if isinstance(pattern, str) and set(pattern) <= {"L", "G"}:
        local = [pattern[i % len(pattern)] == "L" for i in range(n_layer)]
    else:
        period = config.integer("sliding_window_pattern", default=4, maximum=MAX_LAYERS)
        local = [(i + 1) % period != 0 for i in range(n_layer)]
    return [window > 0 and is_local for is_local in local]
