"""DeepSeek-V4: attention over a window and over compressed groups of tokens, which an indexer chooses on some layers;
experts, on the first layers by token; all on hyper-connections. Of DeepSeek."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.families.deepseek4 import DeepSeek4Hparams

from ..checkpoint import Config
from .blocks import read_kinds, refuse_scaling, stacked_experts
from .decoder import Decoder
from .family import Keyed, Row, Shapes, row
from .heads import MOST_HEADS, Head
from .rope import NOT_SCALED, SCALING, RopeScaling, Rotation, original_context, read_kind, read_scaling
from .unused_fields import HEADS, read_mtp

SQRT_SOFTPLUS = 4  # of llama.cpp's expert_gating_func
WINDOW, CSA, HCA = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
RATES = {CSA: 4, HCA: 128}  # tokens of an entry; llama.cpp has no others
_BY_RATIO = {0: WINDOW, 4: CSA, 128: HCA}
_PROJECTIONS = (("down", "w2"), ("gate", "w1"), ("up", "w3"))
_MANY = 1 << 24
# A head is a layer with a window alone, on residual streams of its own.
HEAD = Head(
    "mtp.0.e_proj.weight",
    "mtp.0.enorm.weight",
    "mtp.0.hnorm.weight",
    "mtp.0.norm.weight",
    join_state="mtp.0.h_proj.weight",
)
HEAD_MIX = "mtp.0.hc_head"


@dataclass(frozen=True)
class CompressedRope(Keyed):
    """RoPE rotates n_rot values of a head: with base `theta` on layers with a window only, on others with base
    `compressed` and `scaling`."""

    n_rot: int
    theta: float
    compressed: float
    scaling: RopeScaling = NOT_SCALED

    @classmethod
    def read(cls, config: Config, d_head: int, n_ctx: int) -> Self:
        """Reads an object per kind of layer, or one object, whose scaling applies to compressed layers."""
        rope = config.section("rope_parameters", "rope_scaling")
        if "main" in rope and "compress" in rope:
            main, compress = rope.section("main"), rope.section("compress")
            refuse_scaling(main)
            shares = [part.number("partial_rotary_factor", default=1.0) for part in (main, compress)]
            if shares[0] != shares[1]:
                raise compress.wrong("partial_rotary_factor", f"{shares[0]:g}, as in main")
            thetas = [part.number("rope_theta") for part in (main, compress)]
            share, nested = shares[0], True
        else:
            compress, nested = rope, False
            share = _share(config, d_head)
            thetas = [
                config.number("rope_theta", default=10000.0),
                config.number("compress_rope_theta", default=160000.0),
            ]
        n_rot = int(d_head * share)
        if n_rot % 2 or not 0 < n_rot <= d_head:
            key = "qk_rope_head_dim" if "qk_rope_head_dim" in config else "partial_rotary_factor"
            raise config.wrong(key, f"a positive even number of values to turn in heads of {d_head}; it gives {n_rot}")
        kind = read_kind(compress)
        if kind != "yarn":
            refuse_scaling(compress)
            return cls(n_rot, thetas[0], thetas[1])
        given = {} if nested or "attention_factor" in compress else {"attention_factor": 1.0}
        settings = Config({**compress.data, **given}, compress.where, compress.looked, compress.prefixes)
        rotation = Rotation(n_rot, thetas[1], n_ctx, original_context(config, settings, n_ctx))
        return cls(n_rot, thetas[0], thetas[1], _yarn(settings, rotation))

    def values(self) -> dict[str, Any]:
        bases = {"freq_base": self.theta, "compressed_base": self.compressed}
        return {"n_rot": self.n_rot, **bases, **self.scaling.stated}


def _share(config: Config, d_head: int) -> float:
    """The number of values of a head that are rotated."""
    if config.get("partial_rotary_factor") is not None:
        return config.number("partial_rotary_factor")
    if config.get("qk_rope_head_dim") is not None:
        return config.integer("qk_rope_head_dim") / d_head
    return 64 / 512


def _yarn(settings: Config, r: Rotation) -> RopeScaling:
    """YaRN without its usual factor on cos and sin: only an attn_factor in the config multiplies them."""
    scaling = read_scaling(settings, "yarn", r)
    stated = {name: value for name, value in scaling.stated.items() if name != "attn_factor"}
    if "attention_factor" not in settings:
        raise UnsupportedError(
            f"{settings.where}: YaRN without attention_factor is not supported in rope_parameters.compress. "
            "The published models have 1."
        )
    factor = settings.number("attention_factor")
    if factor == 1:
        return RopeScaling(stated, notes=scaling.notes)
    note = f"llama.cpp takes attention_factor = 1, not {factor:g}: its results differ"
    return RopeScaling(stated | {"attn_factor": factor}, notes=(*scaling.notes, note))


@dataclass(frozen=True)
class DeepSeekV4(Decoder):
    """One model of DeepSeek-V4, whose matrices may be published in FP8 and whose experts in MXFP4."""

    arch = "deepseek4"
    architectures: ClassVar[tuple[str, ...]] = ("DeepseekV4ForCausalLM",)
    hparams = DeepSeek4Hparams
    order = (
        f"n_layer n_ctx_train n_embd n_head .attention.head_count_kv {SCALING} freq_base eps n_expert n_expert_used "
        "gating d_head .attention.value_length=d_head .general.file_type n_rot q_rank window n_ff_expert n_shared "
        "weights_scale weights_norm limit limit_shared n_index_head=index/0 d_index=index/1 n_best=index/2 n_group "
        "out_rank every=ratios compressed_base n_stream=streams/0 n_iter=streams/1 floor=streams/2 n_hashed "
        ".embedding_length_out n_ahead?"
    )
    gating, n_shared, weights_norm = SQRT_SOFTPLUS, 1, True
    pre: ClassVar[tuple[str, ...]] = ("deepseek-v3",)
    embedding = "embed.weight"
    dropped: ClassVar[tuple[str, ...]] = ("vision.", "aligner.", "image_")
    without_effect: ClassVar[Mapping[str, str]] = {
        **HEADS,
        "router_jitter_noise": "only training",
        "expert_dtype": "the tensors show how they are stored",
    }
    conditional: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("rope_theta", "compress_rope_theta", "partial_rotary_factor", "qk_rope_head_dim"),
            "where rope_parameters has no objects main and compress",
        ),
        "compress_ratios": "where layer_types is absent",
        "num_hash_layers": "where mlp_layer_types is absent",
    }

    n_head: int
    d_head: int
    q_rank: int
    window: int
    kinds: tuple[str, ...]
    rates: tuple[tuple[str, int], ...]
    rope: CompressedRope
    index: tuple[int, int, int]  # heads, values of each, entries
    n_group: int
    out_rank: int
    streams: tuple[int, int, float]
    n_hashed: int
    n_expert: int
    n_expert_used: int
    n_ff_expert: int
    weights_scale: float
    limit: float
    heads_ahead: tuple[Head, ...]

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        for key, value in {
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "scoring_func": "sqrtsoftplus",
            "num_key_value_heads": 1,
            "norm_topk_prob": True,
            "n_shared_experts": 1,
        }.items():
            config.expects(key, value)
        read_mtp(config)
        sizes = cls.sizes(config, shapes, n_ctx=1 << 20)
        n_layer, n_head, d_head = sizes["n_layer"], config.integer("num_attention_heads"), _width(config)
        kinds, rates = _read_kinds(config, n_layer), _read_rates(config)
        n_expert = config.integer("n_routed_experts", "num_local_experts", default=256, maximum=4096)
        n_group = config.integer("o_groups", default=8)
        if n_head * d_head % n_group:
            raise config.wrong("o_groups", f"a divisor of the {n_head * d_head} values of all heads")
        rope = CompressedRope.read(config, d_head, sizes["n_ctx"])
        d_index = config.integer("index_head_dim", default=128)
        if d_index < rope.n_rot:
            raise config.wrong("index_head_dim", f"at least {rope.n_rot}, the values that turn")
        return cls(
            **sizes,
            n_head=n_head,
            d_head=d_head,
            q_rank=config.integer("q_lora_rank", default=1024),
            window=config.integer("sliding_window", default=128),
            kinds=kinds,
            rates=tuple(rates.items()),
            rope=rope,
            index=(config.integer("index_n_heads", default=64), d_index, config.integer("index_topk", default=512)),
            n_group=n_group,
            out_rank=config.integer("o_lora_rank", default=1024),
            streams=(
                config.integer("hc_mult", default=4),
                config.integer("hc_sinkhorn_iters", default=20),
                config.number("hc_eps", default=1e-6),
            ),
            n_hashed=_read_hashed(config, n_layer),
            n_expert=n_expert,
            n_expert_used=config.integer("num_experts_per_tok", default=6, maximum=n_expert),
            n_ff_expert=config.integer("moe_intermediate_size", "intermediate_size", default=2048),
            weights_scale=config.number("routed_scaling_factor", default=1.5),
            limit=config.number("swiglu_limit", default=10.0),
            heads_ahead=(HEAD,) if all(name in shapes for name in (HEAD.join, HEAD_MIX + "_fn")) else (),
        )

    @property
    def ratios(self) -> list[int]:
        """Tokens per compressed entry, for every block; 0: the block has no entries."""
        return [*(dict(self.rates).get(kind, 0) for kind in self.kinds), *[0] * len(self.heads_ahead)]

    def left_out(self) -> tuple[str, ...]:
        ahead = [f"mtp.{i}." for i in range(len(self.heads_ahead), MOST_HEADS)] if self.heads_ahead else ["mtp."]
        return (*self.dropped, *ahead)

    def values(self) -> dict[str, Any]:
        limits = [self.limit] * self.blocks_in_file
        width = self.n_embd * self.streams[0]
        return {"attention.head_count_kv": 1, "embedding_length_out": width, "limit": limits, "limit_shared": limits}

    def notes(self) -> Iterator[str]:
        yield from self.rope.scaling.notes
        odd = {f"{rate} tokens" for kind, rate in self.rates if rate != RATES[kind] and kind in self.kinds}
        if odd:
            yield f"llama.cpp cannot load this file: entries of {' and '.join(sorted(odd))}, there of 4 and 128"
        if self.streams[0] != 4:
            yield f"llama.cpp cannot run this file: it has {self.streams[0]} residual streams, there 4"

    def rows(self) -> Iterator[Row]:
        n, wide = self.n_embd, self.streams[0] * self.n_embd
        yield row(self.embedding, "token_embd.weight", self.n_vocab, n)
        yield row("norm.weight", "output_norm.weight", n)
        yield row("head.weight", "output.weight", self.n_vocab, n, tied_to=self.embedding)
        yield from _mix("hc_head", "output_hc", self.streams[0], 1, wide)
        for i, head in enumerate(self.heads_ahead):
            blk = f"blk.{self.n_layer + i}."
            yield from head.rows(blk, n, self.n_vocab)
            yield from _mix(HEAD_MIX, blk + "nextn.hc_head", self.streams[0], 1, wide)
        for i in range(self.blocks_in_file):
            hf, blk = f"layers.{i}." if i < self.n_layer else "mtp.0.", f"blk.{i}."
            for part in ("attn", "ffn"):
                yield row(f"{hf}{part}_norm.weight", f"{blk}{part}_norm.weight", n)
                yield from _mix(f"{hf}hc_{part}", f"{blk}hc_{part}", (2 + self.streams[0]) * self.streams[0], 3, wide)
            yield from self._attention(hf + "attn.", blk, i)
            yield from self._experts(hf + "ffn.", blk, i)

    def _attention(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        n, n_q, thin = self.n_embd, self.n_head * self.d_head, self.n_group * self.out_rank
        yield row(hf + "wq_a.weight", blk + "attn_q_a.weight", self.q_rank, n)
        yield row(hf + "q_norm.weight", blk + "attn_q_a_norm.weight", self.q_rank)
        yield row(hf + "wq_b.weight", blk + "attn_q_b.weight", n_q, self.q_rank)
        yield row(hf + "wkv.weight", blk + "attn_kv.weight", self.d_head, n)
        yield row(hf + "kv_norm.weight", blk + "attn_kv_a_norm.weight", self.d_head)
        yield row(hf + "attn_sink", blk + "attn_sinks.weight", self.n_head)
        yield row(hf + "wo_a.weight", blk + "attn_output_a.weight", thin, n_q // self.n_group)
        yield row(hf + "wo_b.weight", blk + "attn_output_b.weight", n, thin)
        every, chosen = self.ratios[i], i < self.n_layer and self.kinds[i] == CSA
        if every:
            yield from _compressor(hf + "compressor.", blk + "attn_compressor", n, self.d_head, every, chosen)
        if chosen:
            n_head, d_head, _ = self.index
            yield row(hf + "indexer.wq_b.weight", blk + "indexer.attn_q_b.weight", n_head * d_head, self.q_rank)
            yield row(hf + "indexer.weights_proj.weight", blk + "indexer.proj.weight", n_head, n)
            yield from _compressor(hf + "indexer.compressor.", blk + "indexer_compressor", n, d_head, every, chosen)

    def _experts(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        n, n_ff, gate = self.n_embd, self.n_ff_expert, hf + "gate."
        yield row(
            gate + "weight",
            blk + "ffn_gate_inp.weight",
            self.n_expert,
            n,
            unread=(gate + "bias_vl", *([gate + "bias"] if i < self.n_hashed else [])),
        )
        if i < self.n_hashed:
            table = blk + "ffn_gate_tid2eid.weight"
            yield row(gate + "tid2eid", table, self.n_vocab, self.n_expert_used, integers=True)
        else:
            yield row(gate + "bias", blk + "exp_probs_b.bias", self.n_expert)
        yield from stacked_experts(hf + "experts.", blk, self.n_expert, n, n_ff, _PROJECTIONS)
        for part, name in _PROJECTIONS:
            shape = (n, n_ff) if part == "down" else (n_ff, n)
            yield row(f"{hf}shared_experts.{name}.weight", f"{blk}ffn_{part}_shexp.weight", *shape)


def _mix(hf: str, target: str, n: int, n_scale: int, wide: int) -> Iterator[Row]:
    """The matrices that compute n numbers from all streams."""
    yield row(hf + "_fn", target + "_fn.weight", n, wide)
    yield row(hf + "_base", target + "_base.weight", n)
    yield row(hf + "_scale", target + "_scale.weight", n_scale)


def _compressor(hf: str, target: str, n: int, d: int, every: int, overlapping: bool) -> Iterator[Row]:
    width = 2 * d if overlapping else d
    yield row(hf + "wkv.weight", target + "_kv.weight", width, n)
    yield row(hf + "wgate.weight", target + "_gate.weight", width, n)
    yield row(hf + "ape", target + "_ape.weight", every, width)
    yield row(hf + "norm.weight", target + "_norm.weight", d)


def _width(config: Config) -> int:
    return config.integer("head_dim", default=512, maximum=1 << 16)


def _read_kinds(config: Config, n_layer: int) -> tuple[str, ...]:
    """For each layer: which compressed tokens it attends to, besides those in its window."""
    if config.get("layer_types") is not None:
        return tuple(read_kinds(config, {kind: kind for kind in (WINDOW, CSA, HCA)}, "layer_types", n_layer=n_layer))
    ratios = config.get("compress_ratios")
    if ratios is None:
        return tuple(HCA if i < 2 or i % 2 == 0 else CSA for i in range(n_layer))
    known = isinstance(ratios, list) and len(ratios) >= n_layer and all(type(r) is int for r in ratios)
    if not known or not all(r in _BY_RATIO for r in ratios[:n_layer]):
        raise config.wrong("compress_ratios", f"0, 4 or 128 for each of {n_layer} layers")
    return tuple(_BY_RATIO[r] for r in ratios[:n_layer])


def _read_rates(config: Config) -> dict[str, int]:
    """Tokens per entry, by kind of layer."""
    given = config.section("compress_rates")
    whole = {kind: given.integer(kind, minimum=2, maximum=_MANY) for kind in RATES} if given.data else dict(RATES)
    return {
        CSA: config.integer("compress_rate_csa", default=whole[CSA], minimum=2, maximum=_MANY),
        HCA: config.integer("compress_rate_hca", default=whole[HCA], minimum=2, maximum=_MANY),
    }


def _read_hashed(config: Config, n_layer: int) -> int:
    """The number of first layers whose experts are chosen by token."""
    if config.get("mlp_layer_types") is None:
        return config.integer("num_hash_layers", default=min(3, n_layer), minimum=0, maximum=n_layer)
    kinds = read_kinds(config, {"hash_moe": "hash_moe", "moe": "moe"}, "mlp_layer_types", n_layer=n_layer)
    n = kinds.count("hash_moe")
    if kinds != ["hash_moe"] * n + ["moe"] * (n_layer - n):
        raise config.wrong("mlp_layer_types", "hash_moe on the first layers alone")
    return n
