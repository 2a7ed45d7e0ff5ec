"""GLM-5.3-Flash (text): Kimi's delta rule, latent attention over pools of tokens that an indexer chooses, experts, all
on hyper-connections. Of Z.ai."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.families.glm5_next import Glm5NextHparams
from hybrid.quant.ggml.families.hparams import by_period

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP
from .blocks import SIZES, read_kinds, routed_experts
from .experts import GROUPS, read_dense, read_expert_groups
from .family import Keyed, Row, Shapes, row
from .heads import Head, numbered_heads
from .kimi_linear import KimiLinear, read_linear
from .latent import LATENT, Latent, require_equal_heads
from .unused_fields import HEADS, PICTURES, mtp_layers, read_mtp

KINDS = {
    "linear_attention": "linear_attention",
    "indexed_attention": "indexed_attention",
    "full_attention": "indexed_attention",
}
PERIOD = 4  # the last of every N layers has attention, if the config does not say
FULL, SHARED = "full", "shared"
INDEXER_EPS = 1e-6  # of the norm of index keys, whatever the config says for the others
LLAMA_STREAMS = 4  # llama.cpp's number of streams
USUAL_LOWEST, LOWEST = -5.0, -80.0  # logarithms of decays; exp(-80) leaves nothing of a state


@dataclass(frozen=True)
class Indexer(Keyed):
    """The indexer that chooses tokens for attention: n_head heads of d_head values; n_chosen tokens in pools of n_pool.
    full: per layer, whether it chooses itself or uses the choice of the layer before it."""

    n_head: int
    d_head: int
    n_chosen: int
    n_pool: int
    full: tuple[bool, ...]

    @classmethod
    def read(cls, config: Config, attention: tuple[bool, ...]) -> Self:
        # without the tokens after the last whole pool the first ones of a text would see nothing
        config.expects("index_kpool_always_select_tail", True)
        n_pool, n_chosen = config.integer("index_kpool", default=16), config.integer("index_topk", default=2048)
        if n_chosen % n_pool:
            raise config.wrong("index_topk", f"a multiple of index_kpool = {n_pool}")
        return cls(
            config.integer("index_n_heads", default=32),
            config.integer("index_head_dim", default=128),
            n_chosen,
            n_pool,
            _read_full(config, attention),
        )

    def values(self) -> dict[str, Any]:
        return {**vars(self), "n_index_head": self.n_head, "d_index": self.d_head, "with_tail": True}

    def rows(self, hf: str, blk: str, n: int, q_rank: int) -> Iterator[Row]:
        """The tensors of a layer that chooses."""
        d, n_q = self.d_head, self.n_head * self.d_head
        yield row(hf + "wq_b.weight", blk + "indexer.attn_q_b.weight", n_q, q_rank)
        yield row(hf + "wk.weight", blk + "indexer.attn_k.weight", d, n)
        yield row(hf + "k_norm.weight", blk + "indexer.k_norm.weight", d)
        yield row(hf + "k_norm.bias", blk + "indexer.k_norm.bias", d)
        yield row(hf + "weights_proj.weight", blk + "indexer.proj.weight", self.n_head, n)
        yield row(hf + "index_kpool_compress_gate", blk + "indexer_compressor_gate.weight", d, n)
        yield row(hf + "index_kpool_compress_ape", blk + "indexer_compressor_ape.weight", self.n_pool, d)


@dataclass(frozen=True)
class Hyper(Keyed):
    """Hyper-connections: n_stream streams; n_iter iterations of Sinkhorn; the epsilon added to their sums."""

    n_stream: int
    n_iter: int
    floor: float

    def rows(self, hf: str, blk: str, n_embd: int) -> Iterator[Row]:
        """The tensors of one layer."""
        n = (2 + self.n_stream) * self.n_stream
        for part in ("attn", "ffn"):
            yield row(f"{hf}hc_{part}_fn", f"{blk}hc_{part}_fn.weight", n, self.n_stream * n_embd)
            yield row(f"{hf}hc_{part}_base", f"{blk}hc_{part}_base.weight", n)
            yield row(f"{hf}hc_{part}_scale", f"{blk}hc_{part}_scale.weight", 3)


@dataclass(frozen=True)
class Glm5Next(KimiLinear):
    """The text model."""

    arch = "glm5-next"
    architectures: ClassVar[tuple[str, ...]] = ("Glm5NextForConditionalGeneration",)
    hparams = Glm5NextHparams
    order = (
        f"{SIZES} eps n_expert n_expert_used {GROUPS} gating .general.file_type .vocab_size index_eps d_conv d_kda "
        f"lowest {LATENT} .attention.value_length n_index_head d_index n_chosen n_pool with_tail full n_stream n_iter "
        "floor n_dense n_ff_expert n_shared weights_scale weights_norm limit limit_shared n_ahead? n_kda?"
    )
    index_eps = INDEXER_EPS
    pre = ("glm4",)
    dropped: ClassVar[tuple[str, ...]] = ("model.visual.",)
    without_effect: ClassVar[Mapping[str, str]] = {
        **HEADS,
        **PICTURES,
        **dict.fromkeys(
            ("image_start_token_id", "image_end_token_id", "video_start_token_id", "video_end_token_id"),
            PICTURES["image_token_id"],
        ),
        **dict.fromkeys(("rope_theta", "rope_scaling", "rope_parameters"), "no layer has positions"),
        "head_dim": "parts of a head have sizes of their own",
        "qk_head_dim": "the sum of its parts",
    }
    conditional: ClassVar[Mapping[str, str]] = {
        "first_k_dense_replace": "only without mlp_layer_types",
        "linear_lower_bound": "only without gate_lower_bound in linear_attn_config, as in transformers",
        "linear_attn_config.safe_gate": "only where no gate_lower_bound is there",
        **dict.fromkeys(
            ("index_topk_pattern", "index_topk_freq", "index_skip_topk_offset"),
            "only without indexer_types, as in transformers",
        ),
    }

    lowest: float | None  # logarithm of the lowest decay
    limit: float  # of the inputs of gates in feed-forward parts
    indexer: Indexer
    hyper: Hyper
    heads_ahead: tuple[Head, ...]  # each with attention that chooses itself and experts, without hyper-connections

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        text = config.section("text_config")
        if "tie_word_embeddings" in text:  # transformers asks the outer config
            config.expects("tie_word_embeddings", text.get("tie_word_embeddings"))
        return cls.read_text(text.over(config) if text.data else config, shapes)

    @classmethod
    def read_text(cls, config: Config, shapes: Shapes) -> Self:
        """`config`: the text part, with fields of the outer config added."""
        for key, value in {
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "moe_layer_freq": 1,
            "mhc": True,
            "mla_use_nope": True,
            "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
            "qk_rope_head_dim": 0,
        }.items():
            config.expects(key, value)
        sizes = cls.sizes(config, shapes, eps=1e-5)
        linear = config.section("linear_attn_config")
        n_layer, n_head = sizes["n_layer"], config.integer("num_attention_heads")
        require_equal_heads(config, n_head)
        n_expert = config.integer("n_routed_experts", "num_local_experts", maximum=4096)
        n_used = config.integer("num_experts_per_tok", maximum=n_expert)
        config.integer("q_lora_rank")  # required: the indexer computes its queries from this projection's output
        attention = _read_attention(config, n_layer)
        heads = numbered_heads({_plain_name(name): shape for name, shape in shapes.items()}, n_layer)
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            n_head=n_head,
            latent=Latent.read(config),
            attention=(*attention, *[True] * len(heads)),
            n_dense=read_dense(config, n_layer, min(3, n_layer)),
            d_conv=read_linear(config, "linear_conv_kernel_dim", linear, "short_conv_kernel_size", minimum=2),
            n_kda=read_linear(config, "linear_num_heads", linear, "num_heads"),
            d_kda=read_linear(config, "linear_head_dim", linear, "head_dim"),
            n_expert=n_expert,
            n_expert_used=n_used,
            groups=read_expert_groups(config, n_expert, n_used),
            n_ff_expert=config.integer("moe_intermediate_size"),
            n_shared=config.integer("n_shared_experts", default=1),
            weights_norm=config.boolean("norm_topk_prob", default=True),
            weights_scale=config.number("routed_scaling_factor", default=2.5),
            n_mtp=max(read_mtp(config), len(heads)),
            lowest=_read_lowest(config, linear),
            limit=config.number("swiglu_limit", default=10.0),
            indexer=Indexer.read(config, attention),
            hyper=Hyper(
                config.integer("hc_mult", default=4, maximum=64),
                config.integer("hc_sinkhorn_iters", default=20, maximum=1000),
                config.number("hc_eps", default=1e-6),
            ),
            heads_ahead=heads,
        )

    def values(self) -> dict[str, Any]:
        limits = [self.limit] * self.blocks_in_file
        return {**super().values(), "limit": limits, "limit_shared": limits}

    def notes(self) -> Iterator[str]:
        if self.n_kda != self.n_head:
            yield "llama.cpp cannot load this file: there the delta rule has as many heads as attention"
        if self.tied:
            yield "llama.cpp cannot load this file: there the output matrix is one of its own"
        if self.hyper.n_stream != LLAMA_STREAMS:
            yield f"llama.cpp cannot load this file: there a model has {LLAMA_STREAMS} residual streams"
        if self.indexer.n_pool < 2:
            yield "llama.cpp cannot load this file: there a pool has two tokens or more"

    def left_out(self) -> tuple[str, ...]:
        guessing = mtp_layers(self.blocks_in_file, self.n_mtp - len(self.heads_ahead))
        return (*self.dropped, *guessing, *(name.replace("model.", "model.language_model.", 1) for name in guessing))

    def canonical(self, name: str) -> str:
        return _plain_name(name)

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        for i, head in enumerate(self.heads_ahead):
            yield from head.rows(f"blk.{self.n_layer + i}.", self.n_embd, self.n_vocab)
        for i in range(self.blocks_in_file):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            ahead = i >= self.n_layer
            if not ahead:
                yield from self.hyper.rows(hf, blk, self.n_embd)
            if self.attention[i] and (ahead or self.indexer.full[i]):
                yield from self.indexer.rows(hf + "self_attn.indexer.", blk, self.n_embd, self.latent.q_rank)

    def gates(self, hf: str, blk: str, n_inner: int) -> Iterator[Row]:
        for part in super().gates(hf, blk, n_inner):
            if part.target != blk + "ssm_a":
                yield part
        yield row(hf + "A_log", blk + "ssm_a", self.n_kda, transform=NEGATIVE_EXP)

    def sparse(self, hf: str, blk: str) -> Iterator[Row]:
        sizes = self.n_expert, self.n_embd, self.n_ff_expert, self.n_shared
        yield from routed_experts(hf + "mlp.", blk, *sizes, "gate.e_score_correction_bias")


def _plain_name(name: str) -> str:
    """The tensor's name without the prefix of a multimodal checkpoint."""
    return name.replace("model.language_model.", "model.", 1)


def _read_attention(config: Config, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it has attention."""
    if "layer_types" not in config:
        return tuple(not linear for linear in by_period(PERIOD, n_layer))
    kinds = read_kinds(config, KINDS, "layer_types", n_layer=n_layer)
    return tuple(kind == "indexed_attention" for kind in kinds)


def _read_full(config: Config, attention: tuple[bool, ...]) -> tuple[bool, ...]:
    """Per layer, whether it chooses tokens itself; entries of layers without attention are ignored."""
    key, full = read_choosing(config, len(attention))
    for i, chooses in enumerate(full):
        if attention[i] and not chooses and not (i and attention[i - 1] and full[i - 1]):
            raise UnsupportedError(
                f"{config.where}: {key} makes layer {i} take what layer {i - 1} chose, which does not choose. Only a "
                "layer right behind one that chooses is supported."
            )
    return full


def read_choosing(config: Config, n_layer: int) -> tuple[str, tuple[bool, ...]]:
    """The key that tells which layers choose tokens themselves, and for each layer whether it does."""
    words, key = {FULL: FULL, SHARED: SHARED}, "indexer_types"
    if key in config:
        return key, tuple(kind == FULL for kind in read_kinds(config, words, key, n_layer=n_layer))
    if (key := "index_topk_pattern") in config:
        letters = words | {"F": FULL, "S": SHARED}
        return key, tuple(kind == FULL for kind in read_kinds(config, letters, key, n_layer=n_layer))
    step = config.integer(key := "index_topk_freq", default=1, minimum=0)
    first = config.integer("index_skip_topk_offset", default=2, minimum=0)
    return key, tuple(max(i - first + 1, 0) % max(step, 1) == 0 for i in range(n_layer))


def _read_lowest(config: Config, linear: Config) -> float | None:
    """The logarithm of the lowest decay; None: no limit. Published configs have it in a section."""
    where, key = config, "linear_lower_bound"
    lowest = where.number(key, default=USUAL_LOWEST if key not in where.data else None, positive=False)
    if linear.data:
        if "gate_lower_bound" in linear.data:
            where, key = linear, "gate_lower_bound"
            lowest = where.number(key, default=None, positive=False)
        if lowest is None and linear.boolean("safe_gate", default=True):
            lowest = USUAL_LOWEST
    if lowest is not None and not LOWEST <= lowest < 0:
        raise where.wrong(key, f"a number from {LOWEST:g} to below 0")
    return lowest
