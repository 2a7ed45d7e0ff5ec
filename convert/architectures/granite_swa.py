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
# names of tensors of experts in checkpoints of other Granites
OLDER = {
    "input_linear": "experts.gate_up_proj",
    "output_linear": "experts.down_proj",
    "router.layer": "router.weight",
}


@dataclass(frozen=True)
class GraniteSwa(Granite):
    """One model, dense."""

    arch = "granite_swa"
    architectures = ("GraniteSWAForCausalLM",)
    hparams = GraniteSwaHparams
    order: ClassVar[str] = f"{Granite.order} window local turned?"
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


@dataclass(frozen=True)
class GraniteMoeSwa(GraniteSwa):
    """One model with experts, and maybe a shared one, on all layers."""

    architectures = ("GraniteMoeSWAForCausalLM",)
    order = f"{GraniteSwa.order} n_expert n_expert_used n_ff_shared?"
    usually_tied = False
    usual_ctx, usual_eps = 2048, 1e-6

    n_expert: int
    n_expert_used: int
    n_ff_shared: int  # 0: no shared expert

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        n_expert = config.integer("num_local_experts", default=8, maximum=4096)
        return {
            **super().read_more(config),
            "n_expert": n_expert,
            "n_expert_used": config.integer("num_experts_per_tok", default=2, maximum=n_expert),
            "n_ff_shared": config.integer("shared_intermediate_size", default=0, minimum=0),
        }

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        return {"attention_bias": config.boolean("attention_bias", default=False), "mlp_bias": False}

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        n, n_ff, n_shared, layer = self.n_embd, self.n_ff, self.n_ff_shared, hf.removesuffix("mlp.")
        moe, shared = layer + "block_sparse_moe.", layer + "shared_mlp."
        yield row(moe + "router.weight", blk + "ffn_gate_inp.weight", self.n_expert, n)
        yield row(moe + "experts.gate_up_proj", blk + "ffn_gate_up_exps.weight", self.n_expert, 2 * n_ff, n)
        yield row(moe + "experts.down_proj", blk + "ffn_down_exps.weight", self.n_expert, n, n_ff)
        if n_shared:
            yield row(shared + "input_linear.weight", blk + "ffn_up_shexp.weight", 2 * n_shared, n)
            yield row(shared + "output_linear.weight", blk + "ffn_down_shexp.weight", n, n_shared)

    def canonical(self, name: str) -> str:
        for old, new in OLDER.items():
            name = name.replace(f".block_sparse_moe.{old}.weight", f".block_sparse_moe.{new}")
        return super().canonical(name)


def _thetas(config: Config) -> list[float]:
    """The base of RoPE for every layer, 0 for one without RoPE; empty: the config has no such list."""
    each, n_layer = config.get(THETAS), read_layers(config)
    if each is None:
        return []
    right = isinstance(each, list) and len(each) == n_layer
    if not right or not all(type(theta) in (int, float) and 0 <= theta < 3e38 for theta in each):
        raise config.wrong(THETAS, f"{n_layer} numbers, 0 for a layer without RoPE")
    return [float(theta) for theta in each]
