"""DeepSeek-V2 and V3, GLM-4.7-Flash: latent attention with RoPE on the part of a key that heads share, experts.
arXiv:2405.04434"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.families.deepseek2 import DeepSeek2Hparams
from hybrid.quant.ggml.families.experts import SIGMOID, SOFTMAX

from ..checkpoint import Config
from .blocks import SIZES, read_rope, routed_experts, swiglu
from .decoder import Decoder
from .experts import GROUPS, read_dense, read_expert_groups
from .family import Row, Shapes, TensorBlock, row
from .heads import Head, numbered_heads
from .latent import LATENT, LATENT_EPS, Latent, latent_eps, require_equal_heads
from .rope import RopeScaling, Rotation, original_context, read_kind, read_scaling
from .unused_fields import HEADS, mtp_layers, read_mtp

GATING = {"softmax": SOFTMAX, "sigmoid": SIGMOID}
WITHOUT_Q_RANK = (26, 27)  # numbers of layers with which llama.cpp expects queries straight from the input


@dataclass(frozen=True)
class DeepSeekV2(Decoder):
    """One model of DeepSeek-V2 or V2-Lite."""

    arch = "deepseek2"
    architectures: ClassVar[tuple[str, ...]] = ("DeepseekV2ForCausalLM",)
    hparams: ClassVar[type[Any]] = DeepSeek2Hparams
    order: ClassVar[str] = (
        f"{SIZES} freq_base eps n_expert_used {GROUPS} gating .general.file_type n_dense .vocab_size {LATENT} "
        ".attention.value_length n_ff_expert n_expert n_shared weights_scale weights_norm? rope_type factor original "
        "fast slow truncate log_share n_ahead? latent_eps? group_best?"
    )
    pre: ClassVar[tuple[str, ...]] = ("deepseek-llm", "deepseek-coder")
    without_effect: ClassVar[Mapping[str, str]] = {
        **HEADS,
        "head_dim": "parts of a head have sizes of their own",
        "qk_head_dim": "the sum of its parts",
        **dict.fromkeys(("aux_loss_alpha", "seq_aux"), "only training"),
        "ep_size": "only how it is computed",
    }
    conditional: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("n_group", "topk_group"), "only with topk_method = group_limited_greedy")
    }
    scoring: ClassVar[str] = "softmax"
    group_best: ClassVar[int] = 1

    n_ff: int
    n_head: int
    latent: Latent
    freq_base: float
    rope_scaling: RopeScaling
    n_dense: int
    n_expert: int
    n_expert_used: int
    groups: tuple[int, int]
    n_ff_expert: int
    n_shared: int
    weights_norm: bool
    weights_scale: float
    n_mtp: int  # blocks after the layers, whether the file has them or not
    heads_ahead: tuple[Head, ...]  # each with attention and experts

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        for key, value in {
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "moe_layer_freq": 1,
        }.items():
            config.expects(key, value)
        config.expects("scoring_func", cls.scoring)
        sizes = cls.sizes(config, shapes, eps=cls.usual_eps)
        n_head, latent = config.integer("num_attention_heads"), Latent.read(config)
        if "q_lora_rank" not in config.data:
            raise config.wrong("q_lora_rank", "a number, or null where queries come straight from the input")
        if latent.d_rope % 2:
            raise config.wrong("qk_rope_head_dim", "an even number")
        require_equal_heads(config, n_head)
        rope, theta = read_rope(config)
        n_expert = config.integer("n_routed_experts", *cls.other_spelling(), maximum=4096)
        n_used = config.integer("num_experts_per_tok", maximum=n_expert)
        heads = numbered_heads(shapes, sizes["n_layer"])
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            n_head=n_head,
            latent=latent,
            freq_base=theta,
            rope_scaling=latent_scaling(config, rope, theta, latent.d_rope, sizes["n_ctx"]),
            n_dense=cls.read_dense(config, sizes["n_layer"]),
            n_expert=n_expert,
            n_expert_used=n_used,
            groups=cls.read_groups(config, n_expert, n_used),
            n_ff_expert=config.integer("moe_intermediate_size"),
            n_shared=config.integer("n_shared_experts", default=cls.usual_shared),
            weights_norm=cls.read_norm(config),
            weights_scale=config.number("routed_scaling_factor", default=cls.usual_scale),
            n_mtp=max(read_mtp(config), len(heads)),
            heads_ahead=heads,
            **cls.read_more(config, sizes["n_ctx"]),
        )

    usual_eps: ClassVar[float] = 1e-6
    usual_dense: ClassVar[int] = 0
    usual_shared: ClassVar[int] = 2
    usual_scale: ClassVar[float] = 1.0

    @classmethod
    def read_more(cls, config: Config, n_ctx: int) -> dict[str, Any]:
        """Further fields of a family."""
        return {}

    @classmethod
    def read_dense(cls, config: Config, n_layer: int) -> int:
        """The number of first layers without experts."""
        return config.integer("first_k_dense_replace", default=cls.usual_dense, minimum=0)

    @classmethod
    def other_spelling(cls) -> tuple[str, ...]:
        """Other keys for n_routed_experts."""
        return ("num_experts",)

    @classmethod
    def read_norm(cls, config: Config) -> bool:
        """Whether weights of experts are normalized to a sum of 1: transformers' class never does that, whatever the
        config says."""
        config.expects("norm_topk_prob", False)
        return False

    @classmethod
    def read_groups(cls, config: Config, n_expert: int, n_used: int) -> tuple[int, int]:
        method = config.string("topk_method", default="greedy")
        if method == "greedy":
            return 1, 1
        config.expects("topk_method", "greedy", "group_limited_greedy")
        return read_expert_groups(config, n_expert, n_used)

    def values(self) -> dict[str, Any]:
        own = {"n_head_kv": 1, "gating": GATING[self.scoring], "latent_eps": latent_eps(self.eps)}
        return own if self.groups[0] > 1 else own | {"group_best": None}

    def notes(self) -> Iterator[str]:
        yield from self.rope_scaling.notes
        if not self.latent.q_rank and self.n_layer not in WITHOUT_Q_RANK:
            yield f"llama.cpp cannot load this file: with {self.n_layer} layers queries have latent vectors there"
        if self.eps != LATENT_EPS:
            yield f"llama.cpp normalizes latent vectors with an epsilon of {self.eps:g}: its results differ"
        if self.groups[0] > 1 and self.group_best == 1:
            yield "llama.cpp chooses groups of experts by their two best, not by their best: its results differ"

    def left_out(self) -> tuple[str, ...]:
        return (*self.dropped, *mtp_layers(self.blocks_in_file, self.n_mtp - len(self.heads_ahead)))

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        if name.endswith(".kv_b_proj.weight"):
            yield from self.latent.parts(name, self.n_head)

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        for i, head in enumerate(self.heads_ahead):
            yield from head.rows(f"blk.{self.n_layer + i}.", n, self.n_vocab)
        for i in range(self.blocks_in_file):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "post_attention_layernorm.weight", blk + "ffn_norm.weight", n)
            yield from self.mixer(hf, blk, i)
            yield from self.feed_forward(hf + "mlp.", blk, i)

    bias: ClassVar[str] = "gate.e_score_correction_bias"  # of the choice of experts

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        """Tensors of the feed-forward part of layer i."""
        yield from swiglu(hf, blk, self.n_embd, self.n_ff) if i < self.n_dense else self.experts(hf, blk)

    def experts(self, hf: str, blk: str) -> Iterator[Row]:
        """Tensors of the experts of a layer."""
        sizes = self.n_expert, self.n_embd, self.n_ff_expert, self.n_shared
        yield from routed_experts(hf, blk, *sizes, self.bias if self.scoring == "sigmoid" else "")

    def mixer(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        """Tensors of the attention of layer i."""
        yield from self.latent.rows(hf + "self_attn.", blk, self.n_embd, self.n_head, "o_proj.weight")


@dataclass(frozen=True)
class DeepSeekV3(DeepSeekV2):
    """One model of DeepSeek-V3 or R1."""

    architectures: ClassVar[tuple[str, ...]] = ("DeepseekV3ForCausalLM",)
    pre: ClassVar[tuple[str, ...]] = ("deepseek-v3", "gigachat")  # the latter of GigaChat 3, which has this class
    conditional: ClassVar[Mapping[str, str]] = {}
    scoring = "sigmoid"
    group_best = 2
    usual_dense = 3
    usual_shared = 1
    usual_scale = 2.5

    @classmethod
    def other_spelling(cls) -> tuple[str, ...]:
        return ("num_local_experts",)

    @classmethod
    def read_norm(cls, config: Config) -> bool:
        config.expects("rope_interleave", True)
        return config.boolean("norm_topk_prob", default=True)

    @classmethod
    def read_groups(cls, config: Config, n_expert: int, n_used: int) -> tuple[int, int]:
        config.expects("topk_method", "noaux_tc")
        config.integer("n_group"), config.integer("topk_group")  # without them transformers takes 8 and 4
        return read_expert_groups(config, n_expert, n_used)


@dataclass(frozen=True)
class Glm4MoeLite(DeepSeekV3):
    """One model of GLM-4.7-Flash: DeepSeek-V3 with other defaults. arXiv:2508.06471"""

    architectures: ClassVar[tuple[str, ...]] = ("Glm4MoeLiteForCausalLM",)
    pre: ClassVar[tuple[str, ...]] = ("glm4",)
    conditional: ClassVar[Mapping[str, str]] = {"first_k_dense_replace": "only without mlp_layer_types"}
    usual_eps = 1e-5
    usual_dense = 1
    usual_scale = 1.8

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        for settings in (config, read_rope(config)[0]):
            settings.expects("partial_rotary_factor", 1.0)
        return super().read(config, shapes)

    @classmethod
    def read_dense(cls, config: Config, n_layer: int) -> int:
        return read_dense(config, n_layer, cls.usual_dense)

    @classmethod
    def read_groups(cls, config: Config, n_expert: int, n_used: int) -> tuple[int, int]:
        config.expects("topk_method", "noaux_tc")
        return read_expert_groups(config, n_expert, n_used)


@dataclass(frozen=True)
class Youtu(DeepSeekV3):
    """One model of Youtu-LLM: DeepSeek-V3's attention without experts. arXiv:2512.24618"""

    architectures = ("YoutuForCausalLM",)
    order = (
        f"{SIZES} freq_base eps .general.file_type n_dense .vocab_size {LATENT} .attention.value_length n_ff_expert "
        "n_shared rope_type factor original fast slow truncate log_share latent_eps?"
    )
    pre = ("youtu",)
    without_effect: ClassVar[Mapping[str, str]] = {
        **DeepSeekV2.without_effect,
        "embedding_initializer_range": "only training: initial values",
    }
    usual_shared = 0

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        none = {"n_routed_experts": 1, "num_experts_per_tok": 1, "n_group": 1, "topk_group": 1}
        whole = {"tie_word_embeddings": True, **config.data, **none, "norm_topk_prob": False}
        whole |= {"moe_intermediate_size": config.integer("intermediate_size"), "routed_scaling_factor": 1.0}
        whole.pop("n_shared_experts", None)
        return super().read(Config(whole, config.where, config.looked, config.prefixes), shapes)

    @classmethod
    def read_dense(cls, config: Config, n_layer: int) -> int:
        return n_layer


def latent_scaling(config: Config, rope: Config, theta: float, n_rot: int, n_ctx: int) -> RopeScaling:
    """YaRN with scores that grow by mscale_all_dim. Its effect on cos and sin must cancel, since llama.cpp has no key
    for it in this architecture."""
    rotation = Rotation(n_rot, theta, n_ctx, original_context(config, rope, n_ctx))
    kind = read_kind(rope)
    if kind != "yarn":
        return read_scaling(rope, kind, rotation, ("default", "yarn"))
    share, both = (rope.number(key, default=0.0, positive=False) for key in ("mscale", "mscale_all_dim"))
    if not both > 0 or share != both or "attention_factor" in rope:
        raise UnsupportedError(
            f"{rope.where}: mscale = {share:g} and mscale_all_dim = {both:g} with YaRN are not supported, "
            "only equal positive ones without an attention_factor are."
        )
    scaling = read_scaling(rope, kind, rotation)
    stated = {name: value for name, value in scaling.stated.items() if name != "attn_factor"}
    return RopeScaling(stated | {"log_share": 0.1 * both}, notes=scaling.notes)
