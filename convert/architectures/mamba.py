"""Mamba: selective state space layers only, no attention, no feed-forward part. arXiv:2312.00752

Also Falcon-Mamba (RMS norms without weights on dt, B and C) and the original checkpoints of state-spaces, whose config
names no architecture and has the layer's sizes in `ssm_cfg`.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.mamba import MambaHparams

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP, Transform
from .blocks import MAX_LAYERS, SILU, conv1d, no_ssm_biases, twice_as_wide
from .family import Family, Keyed, Row, Shapes, row, vocabulary_rows
from .unused_fields import NO_POSITIONS, STATE_SPACES, STEP_SIZES

# words of Family.order: sizes of a model without attention and feed-forward parts; of Mamba-1
MAMBA_SIZES = "n_ctx_train n_embd .feed_forward_length .attention.head_count n_layer"
SCAN = "d_conv d_inner d_state dt_rank"


@dataclass(frozen=True)
class Scan(Keyed):
    """Sizes of a Mamba-1 layer; `bias`: of the projections in and out."""

    d_conv: int
    d_inner: int
    d_state: int
    dt_rank: int
    bias: bool
    conv_bias: bool

    @classmethod
    def read(cls, config: Config, n_embd: int, *inner: str) -> Self:
        """Reads the keys of Mamba's own configs, of state-spaces' `ssm_cfg`, and of hybrids, with the prefix `mamba_`;
        `inner`: keys for d_inner. The rank of the time step may be "auto" or absent: a sixteenth of the width, rounded
        up."""
        expanded = config.integer("mamba_expand", "expand", default=2) * n_embd
        rank, automatic = ("mamba_dt_rank", "time_step_rank", "dt_rank"), -(-n_embd // 16)
        return cls(
            d_conv=config.integer("mamba_d_conv", "conv_kernel", "d_conv", default=4, minimum=2),
            d_inner=config.integer(*inner, default=expanded) if inner else expanded,
            d_state=config.integer("mamba_d_state", "state_size", "d_state", default=16),
            dt_rank=automatic if config.get(*rank) == "auto" else config.integer(*rank, default=automatic),
            bias=config.boolean("mamba_proj_bias", "use_bias", "bias", default=False),
            conv_bias=config.boolean("mamba_conv_bias", "use_conv_bias", "conv_bias", default=True),
        )

    def rows(self, hf: str, blk: str, n_embd: int) -> Iterator[Row]:
        """in_proj contains [x | z], x_proj [dt | B | C], by rows."""
        d_inner, d_state, dt_rank = self.d_inner, self.d_state, self.dt_rank
        yield row(hf + "in_proj.weight", blk + "ssm_in.weight", 2 * d_inner, n_embd)
        yield from conv1d(hf, blk, d_inner, self.d_conv, bias=self.conv_bias)
        yield row(hf + "x_proj.weight", blk + "ssm_x.weight", dt_rank + 2 * d_state, d_inner)
        yield row(hf + "dt_proj.weight", blk + "ssm_dt.weight", d_inner, dt_rank)
        yield row(hf + "dt_proj.bias", blk + "ssm_dt.bias", d_inner)
        yield row(hf + "A_log", blk + "ssm_a", d_inner, d_state, transform=NEGATIVE_EXP)
        yield row(hf + "D", blk + "ssm_d", d_inner)
        yield row(hf + "out_proj.weight", blk + "ssm_out.weight", n_embd, d_inner)
        yield from self.biases(hf, blk, n_embd)

    def biases(self, hf: str, blk: str, n_embd: int, into: Transform | None = None) -> Iterator[Row]:
        """The biases of the projections; `into` is applied to the rows of in_proj."""
        if self.bias:
            yield row(hf + "in_proj.bias", blk + "ssm_in.bias", 2 * self.d_inner, transform=into)
            yield row(hf + "out_proj.bias", blk + "ssm_out.bias", n_embd)

    def notes(self, n_embd: int) -> Iterator[str]:
        """Notes on what llama.cpp cannot load."""
        yield from twice_as_wide(self.d_inner, n_embd)
        yield from no_ssm_biases(self.bias)


@dataclass(frozen=True)
class StateSpaces(Family):
    """A model with state space layers of one kind only: the part that Mamba and Mamba-2 share."""

    pre: ClassVar[tuple[str, ...]] = ("mpt",)
    tokenizer_hint: ClassVar[str] = "the GPT-NeoX tokenizer (EleutherAI/gpt-neox-20b)"
    widths: ClassVar[tuple[str, ...]] = ("hidden_size", "d_model")  # spellings
    layer: ClassVar[tuple[str, ...]]  # its names in state-spaces' configs
    multiple: ClassVar[int]  # the vocabulary's size is a multiple of it

    n_vocab: int
    tied: bool
    n_layer: int
    n_embd: int
    eps: float

    @classmethod
    def sizes(cls, config: Config, shapes: Shapes, *, tied: bool) -> tuple[Config, dict[str, Any]]:
        """The config including `ssm_cfg`, and the shared fields. tied: default."""
        config.expects("hidden_act", *SILU)
        config.expects("rms_norm", True)
        config.expects("attn_layer_idx", [])
        config.expects("d_intermediate", 0)
        ssm = config.section("ssm_cfg")
        ssm.expects("layer", *cls.layer)
        merged = config.over(ssm)
        n_embd = merged.integer(*cls.widths)
        multiple = config.integer("pad_vocab_size_multiple", default=cls.multiple, maximum=1 << 16)
        return merged, {
            "n_vocab": vocabulary_rows(config, shapes, "backbone.embeddings.weight", multiple),
            "tied": config.boolean("tie_word_embeddings", "tie_embeddings", default=tied),
            "n_layer": merged.integer("num_hidden_layers", "n_layer", "n_layers", maximum=MAX_LAYERS),
            "n_embd": n_embd,
            "eps": merged.number("layer_norm_epsilon", "rms_norm_eps", default=1e-5),
        }

    def values(self) -> dict[str, Any]:
        return {"feed_forward_length": 0, "attention.head_count": 0}

    def canonical(self, name: str) -> str:
        return "backbone.embeddings.weight" if name == "backbone.embedding.weight" else name  # state-spaces

    @abstractmethod
    def mixer(self, hf: str, blk: str) -> Iterator[Row]:
        """The tensors of one layer."""

    def rows(self) -> Iterator[Row]:
        yield from self.outer_rows("backbone.embeddings.weight", "backbone.norm_f.weight")
        for i in range(self.n_layer):
            hf, blk = f"backbone.layers.{i}.", f"blk.{i}."
            yield row(hf + "norm.weight", blk + "attn_norm.weight", self.n_embd)
            yield from self.mixer(hf + "mixer.", blk)


@dataclass(frozen=True)
class Mamba(StateSpaces):
    """One model of Mamba or Falcon-Mamba."""

    arch = "mamba"
    architectures = ("MambaForCausalLM", "MambaLMHeadModel", "FalconMambaForCausalLM")
    hparams = MambaHparams
    order = f"{MAMBA_SIZES} {SCAN} eps dt_b_c_rms dt_b_c_eps=norm_eps .general.file_type"
    layer, multiple = ("Mamba1", "Mamba"), 8
    conditional: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("expand", "d_inner"), "where intermediate_size is absent"),
        "pad_vocab_size_multiple": "where the vocabulary is not such a multiple",
    }
    without_effect: ClassVar[Mapping[str, str]] = {**NO_POSITIONS, **STEP_SIZES, **STATE_SPACES}

    scan: Scan
    norm_eps: float | None  # of the norms on dt, B and C (Falcon-Mamba); None: no such norms

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        merged, sizes = cls.sizes(config, shapes, tied=True)
        is_falcon = config.get("model_type") == "falcon_mamba" or "FalconMamba" in str(config.get("architectures"))
        return cls(
            **sizes,
            scan=Scan.read(merged, sizes["n_embd"], "intermediate_size", "d_inner"),
            norm_eps=merged.number("mixer_rms_eps", default=1e-6) if is_falcon else None,
        )

    def values(self) -> dict[str, Any]:
        # transformers has another epsilon for these norms than for the layers' own
        return {**super().values(), "dt_b_c_rms": self.norm_eps is not None}

    def notes(self) -> Iterator[str]:
        yield from self.scan.notes(self.n_embd)

    def mixer(self, hf: str, blk: str) -> Iterator[Row]:
        return self.scan.rows(hf, blk, self.n_embd)
