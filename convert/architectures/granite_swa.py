"""Granite with windows: Granite 3 with a sink in every head, windows on three layers of four. Of ibm-granite."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.families.granite_swa import GraniteSwaHparams
from hybrid.quant.ggml.families.hparams import by_period

from ..checkpoint import Config
from .blocks import read_layers
from .family import Row, row
from .granite import Granite
from .llama import Llama
from .windows import read_layer_types, read_window, windows_of

THETAS = "layer_rope_theta"


@dataclass(frozen=True)
class GraniteSwa(Granite):
    """One model, dense."""

    arch = "granite_swa"
    architectures = ("GraniteSWAForCausalLM",)
    hparams = GraniteSwaHparams
    order = f"{Granite.order} window local turned?"
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "sliding_window": "where a layer has a window",
        **dict.fromkeys(("rope_theta", "rope_parameters"), "where layer_rope_theta is absent, or RoPE is scaled"),
    }
    usually_tied = True
    usual_ctx, usual_eps = 8192, 1e-5
    known_windows = True

    turned: tuple[bool, ...]  # per layer, whether it has RoPE

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        local = read_layer_types(config, n_layer) or by_period(4, n_layer, first=True)
        return windows_of(config, read_window(config, 128), local)

    @classmethod
    def read_rope(cls, config: Config) -> tuple[Config, float]:
        """The settings of RoPE, and its base, which layer_rope_theta may say."""
        rope, theta = super().read_rope(config)
        stated = {each for each in _thetas(config) if each}
        if len(stated) > 1:
            raise UnsupportedError(
                f"{config.where}: {THETAS} has {len(stated)} numbers besides 0, only one for all layers is supported."
            )
        return rope, stated.pop() if stated else theta

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        turned = [theta > 0 for theta in _thetas(config)] or [True] * read_layers(config)
        return {**super().read_more(config), "turned": tuple(turned)}

    def values(self) -> dict[str, Any]:
        return super().values() | {"window": max(self.windows), "local": tuple(size > 0 for size in self.windows)}

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from super().attention(hf, blk)
        yield row(hf + "sinks", blk + "attn_sinks.weight", self.heads.n_head)


def _thetas(config: Config) -> list[float]:
    """The base of RoPE for every layer, 0 for one without RoPE; empty: the config has no such list."""
    each, n_layer = config.get(THETAS), read_layers(config)
    if each is None:
        return []
    right = isinstance(each, list) and len(each) == n_layer
    if not right or not all(type(theta) in (int, float) and 0 <= theta < 3e38 for theta in each):
        raise config.wrong(THETAS, f"{n_layer} numbers, 0 for a layer without RoPE")
    return [float(theta) for theta in each]
