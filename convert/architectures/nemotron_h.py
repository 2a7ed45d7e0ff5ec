"""Nemotron-H: every layer is Mamba-2, attention without positions, or a feed-forward part. arXiv:2504.03624"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.nemotron_h import NemotronHHparams

from ..checkpoint import Config
from ..transforms import interleave_rope
from .blocks import HEAD_SIZE, MAX_LAYERS, SIZES, Heads, read_kinds, stacked_experts
from .experts import GROUPS, read_expert_groups
from .family import Family, Row, Shapes, row, vocabulary_rows
from .heads import Head
from .mamba2 import NO_LIMITS, SSM, Ssm
from .unused_fields import HEADS, NO_POSITIONS, STEP_SIZES

# published configs have a string of letters, transformers 5's a list of words
KINDS = {
    "M": "mamba",
    "*": "attention",
    "-": "mlp",
    "E": "moe",
    "mamba": "mamba",
    "attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
    "linear_attention": "mamba",
    "full_attention": "attention",
}

# A head is a layer with attention and one with experts, one block in GGUF.
HEAD = Head(
    "mtp.layers.0.eh_proj.weight",
    "mtp.layers.0.enorm.weight",
    "mtp.layers.0.hnorm.weight",
    "mtp.layers.1.final_layernorm.weight",
)
HEAD_LAYERS = ("mtp.layers.0.mixer.q_proj.weight", "mtp.layers.1.mixer.gate.weight")  # names that confirm these layers
MOST_HEAD_LAYERS = 128


@dataclass(frozen=True)
class NemotronH(Family):
    """One model without experts."""

    arch = "nemotron_h"
    architectures = ("NemotronHForCausalLM",)
    hparams = NemotronHHparams
    order = (
        f"{SIZES} eps .attention.layer_norm_epsilon=eps .general.file_type .vocab_size "
        f".rope.dimension_count=heads/d_head {SSM} .rope.scaling.finetuned {HEAD_SIZE}"
    )
    conditional: ClassVar[Mapping[str, str]] = {
        "intermediate_size": "where a layer is dense",
        **dict.fromkeys(
            (
                "n_routed_experts",
                "num_local_experts",
                "n_shared_experts",
                "moe_intermediate_size",
                "moe_shared_expert_intermediate_size",
                "moe_latent_size",
                "num_experts_per_tok",
                "routed_scaling_factor",
                "n_group",
                "topk_group",
                "norm_topk_prob",
            ),
            "where a layer has experts",
        ),
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        **STEP_SIZES,
        **HEADS,
        **NO_POSITIONS,
        "mamba_proj_bias": "transformers' model reads use_bias instead",
        "time_step_min": "only training; transformers 5 also has it for a floor, but in prompts alone",
        **dict.fromkeys(("mamba_dt_min", "mamba_dt_max", "mamba_dt_init_floor"), STEP_SIZES["time_step_min"]),
        "num_hidden_layers": "transformers counts the layers of the pattern",
        "expand": "the heads say the width",
        "mamba_expand": "the heads say the width",
        "moe_shared_expert_overlap": "only how transformers computes",
    }

    n_vocab: int
    tied: bool
    n_embd: int
    n_ff: int  # of a dense layer
    mlp_bias: bool  # on feed-forward parts and shared experts
    kinds: tuple[str, ...]
    heads: Heads
    eps: float
    ssm: Ssm
    n_expert: int
    n_expert_used: int
    groups: tuple[int, int]  # number of groups of experts, and number of groups that a token uses
    n_latent: int  # width of the experts' inputs and outputs; 0: n_embd
    n_ff_expert: int
    n_ff_shared: int
    n_shared: int
    weights_norm: bool
    weights_scale: float
    heads_ahead: tuple[Head, ...]

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("mlp_hidden_act", "relu2")
        config.expects("mamba_hidden_act", "silu")
        config.expects("attention_bias", False)
        config.expects("sliding_window", None)
        n_embd = config.integer("hidden_size")
        kinds = read_kinds(config, KINDS, "layers_block_type", "layer_types", "hybrid_override_pattern")
        experts = "moe" in kinds
        n_expert = config.integer("n_routed_experts", "num_local_experts", maximum=4096) if experts else 0
        n_expert_used = config.integer("num_experts_per_tok", maximum=n_expert) if experts else 0
        d_inner = config.integer("mamba_num_heads") * config.integer("mamba_head_dim")
        bias = config.boolean("use_bias", default=False)  # mamba_proj_bias is not read here
        ssm = replace(Ssm.read(config, n_embd, d_inner, n_group=8), bias_in=bias, bias_out=bias)
        # time_step_min is not a limit: transformers applies it to prompts but not to single tokens, NVIDIA's own code
        # and llama.cpp never do
        if ssm.limits != NO_LIMITS:
            raise config.wrong("time_step_limit", "0 and Infinity: transformers passes over others")
        # one class per name in GGUF
        family_type: Any = NemotronHMoe if experts else NemotronH
        made: Self = family_type(
            n_vocab=vocabulary_rows(config, shapes, "backbone.embeddings.weight"),
            tied=config.boolean("tie_word_embeddings", default=False),
            n_embd=n_embd,
            n_ff=config.integer("intermediate_size") if "mlp" in kinds else 0,
            mlp_bias=config.boolean("mlp_bias", default=False),
            kinds=tuple(kinds),
            heads=Heads.read(config, n_embd),
            eps=config.number("layer_norm_epsilon", "rms_norm_eps", default=1e-5),
            ssm=ssm,
            n_expert=n_expert,
            n_expert_used=n_expert_used,
            groups=read_expert_groups(config, n_expert, n_expert_used) if experts else (1, 1),
            n_latent=config.integer("moe_latent_size", default=0) if experts else 0,
            n_ff_expert=config.integer("moe_intermediate_size") if experts else 0,
            n_ff_shared=config.integer("moe_shared_expert_intermediate_size") if experts else 0,
            n_shared=config.integer("n_shared_experts", default=1),
            weights_norm=config.boolean("norm_topk_prob", default=True),
            weights_scale=config.number("routed_scaling_factor", default=1.0),
            heads_ahead=read_heads(shapes) if experts else (),
        )
        return made

    @property
    def blocks_in_file(self) -> int:
        return len(self.kinds) + len(self.heads_ahead)

    def values(self) -> dict[str, Any]:
        sizes = {"mlp": self.n_ff, "moe": self.n_ff_expert}
        ahead = len(self.heads_ahead)
        kinds = [*(kind == "attention" for kind in self.kinds), *[True] * ahead]
        n_ff = [*(sizes.get(kind, 0) for kind in self.kinds), *[self.n_ff_expert] * ahead]
        return {"n_ff": n_ff, "n_head_kv": self.heads.per_layer(kinds), "rope.scaling.finetuned": False}

    def left_out(self) -> tuple[str, ...]:
        if not self.heads_ahead:
            return (*self.dropped, "mtp.")
        return (*self.dropped, *(f"mtp.layers.{i}." for i in range(len(HEAD_LAYERS), MOST_HEAD_LAYERS)))

    def notes(self) -> Iterator[str]:
        yield from self.ssm.notes()
        if {"mlp", "moe"} <= set(self.kinds):
            yield "llama.cpp cannot load this file: there all feed-forward parts have experts, here some have not"
        elif self.n_expert and self.mlp_bias:
            yield "llama.cpp cannot load this file: there shared experts have no biases"

    def canonical(self, name: str) -> str:
        # transformers 5's names in memory
        return "backbone." + name.removeprefix("model.") if name.startswith("model.") else name

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows("backbone.embeddings.weight", "backbone.norm_f.weight")
        for i, kind in enumerate(self.kinds):
            hf, blk = f"backbone.layers.{i}.mixer.", f"blk.{i}."
            yield row(f"backbone.layers.{i}.norm.weight", blk + "attn_norm.weight", n)
            if kind == "mamba":
                yield from self.ssm.rows(hf, blk, n)
            elif kind == "attention":
                yield from self._attention(hf, blk)
            elif kind == "mlp":
                yield from self._up_and_down(hf, blk, self.n_ff)
            else:
                yield from self._experts(hf, blk, self.expert_width(i))
        for i, head in enumerate(self.heads_ahead):
            blk = f"blk.{len(self.kinds) + i}."
            yield row("mtp.layers.0.norm.weight", blk + "attn_norm.weight", n)
            yield from self._attention("mtp.layers.0.mixer.", blk)
            yield row("mtp.layers.1.norm.weight", blk + "post_attention_norm.weight", n)
            yield from self._experts("mtp.layers.1.mixer.", blk, self.n_ff_expert)
            yield from head.rows(blk, n, self.n_vocab)

    def _attention(self, hf: str, blk: str) -> Iterator[Row]:
        # turned over without positions too: llama.cpp's files are so
        turned = interleave_rope(self.heads.d_head) if self.heads.d_head % 2 == 0 else None
        yield from self.heads.rows(hf, blk, self.n_embd, turned)

    def expert_width(self, i: int) -> int:
        """The width of an expert of layer i."""
        return self.n_ff_expert

    def _experts(self, hf: str, blk: str, n_ff: int) -> Iterator[Row]:
        n, n_in = self.n_embd, self.n_latent or self.n_embd
        yield row(hf + "gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, n)
        yield row(hf + "gate.e_score_correction_bias", blk + "exp_probs_b.bias", self.n_expert)
        names = (("down", "down_proj"), ("up", "up_proj"))
        yield from stacked_experts(hf + "experts.", blk, self.n_expert, n_in, n_ff, names)
        yield from self._up_and_down(hf + "shared_experts.", blk, self.n_ff_shared, "_shexp")
        if self.n_latent:
            yield from self._linear(hf + "fc1_latent_proj", blk + "ffn_latent_down", n_in, n)
            yield from self._linear(hf + "fc2_latent_proj", blk + "ffn_latent_up", n, n_in)

    def _up_and_down(self, hf: str, blk: str, n_ff: int, suffix: str = "") -> Iterator[Row]:
        yield from self._linear(hf + "up_proj", f"{blk}ffn_up{suffix}", n_ff, self.n_embd)
        yield from self._linear(hf + "down_proj", f"{blk}ffn_down{suffix}", self.n_embd, n_ff)

    def _linear(self, source: str, target: str, n_out: int, n_in: int) -> Iterator[Row]:
        yield row(source + ".weight", target + ".weight", n_out, n_in)
        if self.mlp_bias:
            yield row(source + ".bias", target + ".bias", n_out)


@dataclass(frozen=True)
class NemotronHMoe(NemotronH):
    """One model with experts instead of dense feed-forward layers, or beside some."""

    arch = "nemotron_h_moe"
    hparams = NemotronHHparams
    order = (
        f"{SIZES} eps .attention.layer_norm_epsilon=eps n_expert n_expert_used {GROUPS} .general.file_type .vocab_size "
        f".rope.dimension_count=heads/d_head {SSM} .rope.scaling.finetuned {HEAD_SIZE} n_ff_expert n_ff_shared "
        ".expert_shared_count=n_shared weights_norm weights_scale n_latent? n_ahead?"
    )


@dataclass(frozen=True)
class NemotronHPuzzle(NemotronHMoe):
    """One model of Nemotron 3 Puzzle: experts have a width and a number per token of their own in every layer.
    arXiv:2411.19146"""

    architectures = ("NemotronHPuzzleForCausalLM",)
    conditional: ClassVar[Mapping[str, str]] = {
        key: NemotronHMoe.conditional[key]
        for key in NemotronHMoe.conditional
        if key not in ("moe_intermediate_size", "num_experts_per_tok")
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        **NemotronHMoe.without_effect,
        **dict.fromkeys(
            ("layers_block_type", "hybrid_override_pattern", "moe_intermediate_size", "num_experts_per_tok"),
            "block_configs says it layer by layer",
        ),
        "mtp_block_configs": "only heads that guess tokens ahead, which are left out",
    }

    blocks: tuple[tuple[int, int], ...]  # per layer, width of an expert and experts of a token; 0, 0: no experts

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        kinds, blocks = _read_blocks(config)
        if "moe" not in kinds:
            raise config.wrong("block_configs", "a layer with experts")
        widest, most = (max(each) for each in zip(*blocks, strict=True))
        of_all = {"layers_block_type": kinds, "moe_intermediate_size": widest, "num_experts_per_tok": most}
        model = super().read(Config(of_all, config.where, config.looked, config.prefixes).over(config), {})
        same = {**vars(model), "n_vocab": vocabulary_rows(config, shapes, "backbone.embeddings.weight")}
        return cls(**same, blocks=tuple(blocks))

    def values(self) -> dict[str, Any]:
        widths, used = (list(each) for each in zip(*self.blocks, strict=True))
        n_ff = [self.n_ff if kind == "mlp" else width for kind, width in zip(self.kinds, widths, strict=True)]
        return {**super().values(), "n_ff": n_ff, "n_ff_expert": widths, "n_expert_used": used}

    def expert_width(self, i: int) -> int:
        return self.blocks[i][0]

    def canonical(self, name: str) -> str:
        # of the first checkpoints
        return super().canonical(name.replace(".e_score_correction.bias", ".e_score_correction_bias"))


def _read_blocks(config: Config) -> tuple[list[str], list[tuple[int, int]]]:
    """Kinds of layers, and for each the width of its experts and the number for a token."""
    found = config.get("block_configs")
    if not isinstance(found, list) or not 0 < len(found) <= MAX_LAYERS or not all(type(x) is dict for x in found):
        raise config.wrong("block_configs", "an object for every layer")
    kinds, blocks = [], []
    for i, each in enumerate(found):
        block = Config(each, f"{config.where}: block_configs[{i}]")
        kinds.append(block.string("block_type"))
        if kinds[-1] not in KINDS:
            raise block.wrong("block_type", "mamba, attention, moe or mlp")
        block.expects("n_routed_experts", config.get("n_routed_experts"))
        experts = KINDS[kinds[-1]] == "moe"
        width, used = (block.integer(key) if experts else 0 for key in ("moe_intermediate_size", "num_experts_per_tok"))
        blocks.append((width, used))
        block.refuse_unread(())
    return kinds, blocks


def read_heads(shapes: Shapes) -> tuple[Head, ...]:
    """The checkpoint's first head, whatever its config says, if its layers are named as in published checkpoints."""
    return (HEAD,) if all(name in shapes for name in (HEAD.join, *HEAD_LAYERS)) else ()
