"""MiniCPM3: MiniCPM with latent attention. arXiv:2404.06395"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.minicpm3 import MiniCpm3Hparams

from ..checkpoint import Config
from .blocks import SIZES, Heads, read_layers
from .family import Row, Shapes
from .latent import LATENT_EPS, Latent, latent_eps, require_equal_heads
from .llama import Llama
from .rope import SCALING

USUAL = {
    "kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "scale_emb": 12,
    "scale_depth": 1.4, "dim_model_base": 256,
}  # fmt: skip
OPTIONAL_SCALING = " ".join(f"{word}?" for word in SCALING.split())


@dataclass(frozen=True)
class MiniCpm3(Llama):
    """One model of MiniCPM3."""

    arch = "minicpm3"
    architectures: ClassVar[tuple[str, ...]] = ("MiniCPM3ForCausalLM",)
    hparams: ClassVar[type[Any]] = MiniCpm3Hparams
    order = (
        f"{SIZES} eps .vocab_size .general.file_type q_rank? rank d_key d_value? n_rot freq_base? {OPTIONAL_SCALING} "
        "embedding_scale? residual_scale? logit_scale? latent_eps?"
    )
    without_effect: ClassVar[Mapping[str, str]] = {
        "head_dim": "parts of a head have sizes of their own",
        "qk_head_dim": "the sum of its parts",
    }
    usually_tied = True
    usual_ctx, usual_eps = 32768, 1e-5

    latent: Latent
    scales: Mapping[str, float]  # of the embedding, of every part's result, and the divisor of logits

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config = config.over(Config(USUAL, config.where))
        if config.get("v_head_dim") is None:
            whole = {**config.data, "v_head_dim": Heads.read(config, config.integer("hidden_size")).d_head}
            config = Config(whole, config.where, config.looked, config.prefixes)
        return super().read(config, shapes)

    @classmethod
    def read_rope(cls, config: Config) -> tuple[Config, float]:
        rope, theta = super().read_rope(config)
        for key in ("rope_type", "type"):
            rope.expects(key, "default", "longrope", "linear", "llama3")  # YaRN would change scores, too
        return rope, theta

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        n_rot = config.integer("qk_rope_head_dim")
        if n_rot % 2:
            raise config.wrong("qk_rope_head_dim", "an even number")
        return n_rot

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        for key in ("attention_bias", "mlp_bias"):
            config.expects(key, False)
        return {"attention_bias": False, "mlp_bias": False}

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        require_equal_heads(config, config.integer("num_attention_heads"))
        n_layer, n_embd = read_layers(config), config.integer("hidden_size")
        root, base = math.sqrt(n_layer), float(n_embd)
        scales = {
            "embedding_scale": config.number("scale_emb"),
            # null: no factor
            "residual_scale": (root if config.get("scale_depth") is None else config.number("scale_depth")) / root,
            "logit_scale": n_embd / (base if config.get("dim_model_base") is None else config.number("dim_model_base")),
        }
        return {"latent": Latent.read(config), "scales": scales}

    def values(self) -> dict[str, Any]:
        scales, base = self.scales, self.n_embd / 256
        return {
            **super().values(),
            "embedding_scale": scales["embedding_scale"],
            "residual_scale": scales["residual_scale"],  # always there: a file may lose some of its layers
            "logit_scale": scales["logit_scale"] if scales["logit_scale"] != base else None,
            "n_head_kv": self.heads.n_head,
            "d_value": self.latent.d_value if self.latent.d_value * self.heads.n_head != self.n_embd else None,
            "latent_eps": latent_eps(self.eps),
        }

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if not self.latent.q_rank:
            yield "llama.cpp cannot load this file: there queries have latent vectors"
        if tuple(self.scales.values()) != (12, 1.4 / math.sqrt(self.n_layer), self.n_embd / 256):
            yield "llama.cpp takes 12, 1.4 and 256 for scale_emb, scale_depth and dim_model_base: its results differ"
        if self.eps != LATENT_EPS:
            yield f"llama.cpp normalizes latent vectors with an epsilon of {self.eps:g}: its results differ"

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.latent.rows(hf, blk, self.n_embd, self.heads.n_head, "o_proj.weight", whole=True)
