"""Mamba: selective state space layers only, no attention, no feed-forward part. arXiv:2312.00752

Also Falcon-Mamba (RMS norms without weights on dt, B and C) and the original checkpoints of state-spaces, whose
config has no architecture's name and keeps the layer's sizes in `ssm_cfg`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from hybrid.quant.ggml.types import FileType

from ..checkpoint import Config
from .blocks import MAX_LAYERS, mamba_size_keys, twice_as_wide
from .family import Family, Row, Shapes, row, vocabulary_rows
from .jamba import mamba1, rank


@dataclass(frozen=True)
class Mamba(Family):
    arch = "mamba"
    architectures = ("MambaForCausalLM", "MambaLMHeadModel", "FalconMambaForCausalLM")
    pre = ("mpt",)
    tokenizer_hint = "the GPT-NeoX tokenizer (EleutherAI/gpt-neox-20b)"

    n_vocab: int
    tied: bool
    n_layer: int
    n_embd: int
    d_conv: int
    d_inner: int
    d_state: int
    dt_rank: int
    eps: float
    norm_eps: float | None  # of the norms on dt, B and C (Falcon-Mamba); None: there are none

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", "silu")
        config.expects("use_bias", False)
        config.expects("use_conv_bias", True)
        config.expects("rms_norm", True)
        ssm = config.section("ssm_cfg")
        ssm.expects("layer", "Mamba1", "Mamba")
        ssm.expects("bias", False)
        ssm.expects("conv_bias", True)
        merged = Config({**ssm.data, **config.data}, config.where)
        n_embd = merged.integer("hidden_size", "d_model")
        expand = merged.integer("expand", default=2)
        d_inner = merged.integer("intermediate_size", "d_inner", default=expand * n_embd)
        multiple = config.integer("pad_vocab_size_multiple", default=8, maximum=1 << 16)
        is_falcon = config.get("model_type") == "falcon_mamba"
        return cls(
            n_vocab=vocabulary_rows(config, shapes, "backbone.embeddings.weight", multiple),
            tied=config.boolean("tie_word_embeddings", "tie_embeddings", default=True),
            n_layer=merged.integer("num_hidden_layers", "n_layer", "n_layers", maximum=MAX_LAYERS),
            n_embd=n_embd,
            d_conv=merged.integer("conv_kernel", "d_conv", default=4),
            d_inner=d_inner,
            d_state=merged.integer("state_size", "d_state", default=16),
            dt_rank=rank(merged, n_embd, "time_step_rank", "dt_rank"),
            eps=merged.number("layer_norm_epsilon", "rms_norm_eps", default=1e-5),
            norm_eps=merged.number("mixer_rms_eps", default=1e-6) if is_falcon else None,
        )

    def keys(self, file_type: FileType) -> Iterator[tuple[str, Any]]:
        yield from mamba_size_keys(self.n_layer, self.n_embd)
        yield "ssm.conv_kernel", self.d_conv
        yield "ssm.inner_size", self.d_inner
        yield "ssm.state_size", self.d_state
        yield "ssm.time_step_rank", self.dt_rank
        yield "attention.layer_norm_rms_epsilon", self.eps
        yield "ssm.dt_b_c_rms", self.norm_eps is not None
        if self.norm_eps is not None:
            # Not a key of llama.cpp, which takes the layers' epsilon here; transformers has another for these norms.
            yield "ssm.dt_b_c_rms_epsilon", self.norm_eps
        yield "general.file_type", int(file_type)

    def notes(self) -> Iterator[str]:
        yield from twice_as_wide(self.d_inner, self.n_embd)

    def canonical(self, name: str) -> str:
        return "backbone.embeddings.weight" if name == "backbone.embedding.weight" else name  # state-spaces

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows("backbone.embeddings.weight", "backbone.norm_f.weight")
        for i in range(self.n_layer):
            hf, blk = f"backbone.layers.{i}.", f"blk.{i}."
            yield row(hf + "norm.weight", blk + "attn_norm.weight", n)
            yield from mamba1(hf + "mixer.", blk, n, self.d_inner, self.d_state, self.dt_rank, self.d_conv)
