"""SmolLM3: Llama without positions on some layers, usually every fourth. Of HuggingFaceTB."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.families.hparams import by_period
from hybrid.quant.ggml.families.smollm3 import SmolLM3Hparams

from ..checkpoint import Config
from .blocks import read_layers
from .llama import LLAMA, Llama
from .windows import read_layer_types, read_window, windows_of

KEY = "hybrid.rope.layer_pattern"  # docs/gguf-extensions.md
PERIOD = 4  # the last of every N layers has no positions; readers know no other number


@dataclass(frozen=True)
class SmolLM3(Llama):
    """One model of SmolLM3. Layers without positions may have a window."""

    arch = "smollm3"
    architectures = ("SmolLM3ForCausalLM",)
    hparams = SmolLM3Hparams
    order = f"{LLAMA} .vocab_size n_rot turned? windows?"
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "no_rope_layer_interval": "where no_rope_layers is absent",
        "sliding_window": "where use_sliding_window is true",
        "use_sliding_window": "where a layer has a window",
    }
    without_effect: ClassVar[Mapping[str, str]] = {"max_window_layers": "transformers has no such key in this family"}
    usually_tied = True
    usual_ctx = 32768
    usual_theta = 2e6

    turned: tuple[bool, ...]  # per layer, whether it has RoPE

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        """Windows on the layers that layer_types names, else on those without RoPE."""
        window = read_window(config) if config.boolean("use_sliding_window", default=False) else 0
        local = read_layer_types(config, n_layer)
        if local is None:
            local = [window > 0 and not is_turned for is_turned in read_turned(config, n_layer)]
        return windows_of(config, window, local)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {"turned": read_turned(config, read_layers(config))}

    @property
    def _is_as_usual(self) -> bool:
        return self.turned == by_period(PERIOD, self.n_layer)

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if not self._is_as_usual:
            yield f"llama.cpp takes every layer but each {PERIOD}th to have RoPE: its results differ"
        if self.attention_bias or self.mlp_bias or self.scaling.tensors:
            yield (
                "llama.cpp cannot load this file: in this architecture it has no place for biases of attention's "
                "output and of feed-forward parts, nor for factors of RoPE"
            )


def read_turned(config: Config, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it has RoPE: no_rope_layers has 1 for it, and may have more entries than layers."""
    turned = config.get("no_rope_layers")
    if turned is None:
        return by_period(config.integer("no_rope_layer_interval", default=PERIOD), n_layer)
    if not isinstance(turned, list) or len(turned) < n_layer or not all(type(x) is int and x in (0, 1) for x in turned):
        raise config.wrong("no_rope_layers", f"{n_layer} times 1 for a layer with RoPE or 0 for one without")
    return tuple(x == 1 for x in turned[:n_layer])
