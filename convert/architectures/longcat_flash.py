"""LongCat-Flash: latent attention, experts on a shortcut over every other layer, some of which compute nothing.
arXiv:2509.01322

A layer of the checkpoint is two in GGUF: docs/gguf-extensions.md.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.longcat_flash import LongcatFlashHparams

from ..checkpoint import Config
from ..transforms import scaled
from .blocks import MAX_LAYERS, PROJECTIONS, SIZES, read_rope, stacked_experts, swiglu
from .decoder import Decoder
from .deepseek2 import latent_scaling
from .family import Row, Shapes, TensorBlock, row
from .latent import LATENT, Latent, latent_eps, require_equal_heads
from .rope import RopeScaling


@dataclass(frozen=True)
class LongcatFlash(Decoder):
    """One model; n_layer: layers of the file."""

    arch = "longcat-flash"
    architectures: ClassVar[tuple[str, ...]] = ("LongcatFlashForCausalLM",)
    hparams = LongcatFlashHparams
    order = (
        f"{SIZES} freq_base eps n_expert_used .general.file_type .vocab_size {LATENT} .attention.value_length "
        "n_ff_expert n_expert n_idle weights_scale rope_type factor original fast slow truncate log_share latent_eps? "
        "n_gram? n_each? n_row? base? end?"
    )
    in_llama_cpp = False
    dropped: ClassVar[tuple[str, ...]] = ("model.mtp.",)
    without_effect: ClassVar[Mapping[str, str]] = {
        "head_dim": "parts of a head have sizes of their own",
        "qk_head_dim": "the sum of its parts",
        "router_dtype": "only how it is computed: here sums are f32",
        "num_nextn_predict_layers": "only layers that guess tokens ahead, which are left out",
    }

    n_ff: int
    n_head: int
    latent: Latent
    freq_base: float
    rope_scaling: RopeScaling
    n_expert: int
    n_idle: int
    n_expert_used: int
    n_ff_expert: int
    weights_scale: float
    # of n-gram embeddings: most tokens, parts for each number of tokens, rows of a part, and the base of the hash
    n_gram: int = 0
    n_each: int = 0
    n_row: int = 0
    base: int = 0
    end: int = 0

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        half = config.integer("num_layers", default=28, maximum=MAX_LAYERS // 2)
        for key, value in {
            "hidden_act": "silu",
            "attention_bias": False,
            "router_bias": False,
            "norm_topk_prob": False,
            "mla_scale_q_lora": True,
            "mla_scale_kv_lora": True,
            "zero_expert_type": "identity",
            "num_hidden_layers": 2 * half,
        }.items():
            config.expects(key, value)
        config.expects("attention_method", "MLA", "mla")
        doubled = config.over(Config({"num_hidden_layers": 2 * half}, config.where))
        sizes = cls.sizes(doubled, shapes, n_ctx=131072, eps=1e-5)
        n_head, latent = config.integer("num_attention_heads", default=64), Latent.read(config)
        if not latent.q_rank:
            raise config.wrong("q_lora_rank", "a number")
        if latent.d_rope % 2 or not latent.d_rope:
            raise config.wrong("qk_rope_head_dim", "a positive even number")
        require_equal_heads(config, n_head)
        rope, theta = read_rope(config, 1e7)
        n_expert = config.integer("n_routed_experts", "num_local_experts", default=512, maximum=4096)
        return cls(
            **sizes,
            n_ff=config.integer("ffn_hidden_size", "intermediate_size", default=12288),
            n_head=n_head,
            latent=latent,
            freq_base=theta,
            rope_scaling=latent_scaling(config, rope, theta, latent.d_rope, sizes["n_ctx"]),
            n_expert=n_expert,
            n_idle=config.integer("zero_expert_num", default=256, minimum=0, maximum=4096),
            n_expert_used=config.integer("moe_topk", "num_experts_per_tok", default=12, maximum=n_expert),
            n_ff_expert=config.integer("expert_ffn_hidden_size", "moe_intermediate_size", default=2048),
            weights_scale=config.number("routed_scaling_factor", default=6.0),
        )

    def values(self) -> dict[str, Any]:
        return {"n_head_kv": 1, "latent_eps": latent_eps(self.eps)}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        yield from self.rope_scaling.notes

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        if name.endswith(".kv_b_proj.weight"):
            yield from self.latent.parts(name, self.n_head)

    def rows(self) -> Iterator[Row]:
        n, n_score = self.n_embd, self.n_expert + self.n_idle
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        for i in range(self.n_layer):
            hf, j, blk = f"model.layers.{i // 2}.", i % 2, f"blk.{i}."
            yield row(f"{hf}input_layernorm.{j}.weight", blk + "attn_norm.weight", n)
            yield row(f"{hf}post_attention_layernorm.{j}.weight", blk + "ffn_norm.weight", n)
            yield from self._attention(f"{hf}self_attn.{j}.", blk)
            yield from swiglu(f"{hf}mlps.{j}.", blk, n, self.n_ff)
            if j == 0:
                yield row(hf + "mlp.router.classifier.weight", blk + "ffn_gate_inp.weight", n_score, n)
                yield row(hf + "mlp.router.e_score_correction_bias", blk + "exp_probs_b.bias", n_score)
                experts = self.n_expert, n, self.n_ff_expert, PROJECTIONS
                yield from stacked_experts(hf + "mlp.experts.", blk, *experts)

    def _attention(self, hf: str, blk: str) -> Iterator[Row]:
        """Latent vectors grow by the root of the ratio of the widths: as part of their norms."""
        ranks = {blk + "attn_q_a_norm.weight": self.latent.q_rank, blk + "attn_kv_a_norm.weight": self.latent.rank}
        for one in self.latent.rows(hf, blk, self.n_embd, self.n_head, "o_proj.weight"):
            grown = ranks.get(one.target)
            yield replace(one, transform=scaled(math.sqrt(self.n_embd / grown))) if grown else one


@dataclass(frozen=True)
class LongcatFlashNgram(LongcatFlash):
    """LongCat-Flash-Lite: adds embeddings of n-grams to token embeddings. arXiv:2601.21204"""

    architectures: ClassVar[tuple[str, ...]] = ("LongcatFlashNgramForCausalLM",)

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        it = super().read(config, shapes)
        n_gram = config.integer("emb_neighbor_num", default=4, minimum=2, maximum=64)
        n_each = config.integer("emb_split_num", default=4, maximum=1 << 10)
        if it.n_embd < (n_gram - 1) * n_each:
            raise config.wrong("emb_split_num", f"at most {it.n_embd // (n_gram - 1)}")
        base = config.integer("vocab_size")
        ends = config.get("eos_token_id")
        if isinstance(ends, list) or ends is None:
            raise config.wrong("eos_token_id", "one token, which ends n-grams")
        return replace(
            it,
            n_gram=n_gram,
            n_each=n_each,
            n_row=int(config.number("ngram_vocab_size_ratio", default=78.0) * base),
            base=base,
            end=config.integer("eos_token_id", minimum=0),
        )

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        n_part = (self.n_gram - 1) * self.n_each
        sizes, d = tuple(self.n_row + 2 * j + 1 for j in range(n_part)), self.n_embd // n_part
        hf = "model.ngram_embeddings."
        sources = tuple(f"{hf}embedders.{j}.weight" for j in range(n_part))
        yield Row("ngram_embd.weight", (sum(sizes), d), sources, lengths=sizes)
        for j in range(n_part):
            yield row(f"{hf}post_projs.{j}.weight", f"ngram_proj.{j}.weight", self.n_embd, d)
