"""xLSTM: the mLSTM and a gated feed-forward part on every layer. arXiv:2503.13427

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.xlstm import XlstmHparams

from ..checkpoint import Config
from .blocks import MAX_LAYERS
from .family import Family, Row, Shapes, row, vocabulary_rows
from .unused_fields import NO_POSITIONS

# Matrices of a layer: the checkpoint's names and GGUF's.
PARTS = {"q": "q", "k": "k", "v": "v", "ogate_preact": "ogate", "igate_preact": "igate", "fgate_preact": "fgate"}
FEED_FORWARD = {"proj_up_gate": "gate", "proj_up": "up"}


@dataclass(frozen=True)
class Xlstm(Family):
    """One model, with every matrix stored separately (weight_mode single)."""

    arch = "xlstm"
    architectures = ("xLSTMForCausalLM",)
    hparams = XlstmHparams
    order = (
        "n_layer n_ctx_train n_embd n_ff .attention.head_count eps n_head d_k d_v gate_cap mlstm_eps logit_cap=cap "
        ".general.file_type .vocab_size"
    )
    in_llama_cpp = False
    tokenizer_hint = "EleutherAI/gpt-neox-20b"
    without_effect: ClassVar[Mapping[str, str]] = NO_POSITIONS | dict.fromkeys(
        (
            "autocast_kernel_dtype",
            "chunkwise_kernel",
            "sequence_kernel",
            "step_kernel",
            "mode",
            "return_last_states",
            "inference_state_dtype",
            "max_inference_chunksize",
            "norm_reduction_force_float32",
        ),
        "only how transformers computes: kernels, pieces and precision; here sums and states are f32",
    )

    n_vocab: int
    tied: bool
    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    d_k: int
    d_v: int
    eps: float
    mlstm_eps: float
    gate_cap: float
    cap: float

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("use_bias", False)
        config.expects("weight_mode", "single")
        config.expects("add_out_norm", True)
        n_embd = config.integer("hidden_size", "embedding_dim")
        n_head = config.integer("num_heads", default=8)
        n_k = int(n_embd * config.number("qk_dim_factor", default=0.5))
        n_v = int(n_embd * config.number("v_dim_factor", default=1.0))
        if not n_k or not n_v or n_k % n_head or n_v % n_head:
            named = "num_heads" if "num_heads" in config else "hidden_size"
            raise config.wrong(named, f"heads that {n_k} keys and {n_v} values can be shared out to")
        multiple = config.integer("ffn_round_up_to_multiple_of", default=64)
        n_ff = n_embd * config.number("ffn_proj_factor", default=2.667)
        return cls(
            n_vocab=vocabulary_rows(config, shapes, "backbone.embeddings.weight"),
            tied=config.boolean("tie_word_embeddings", default=False),
            n_layer=config.integer("num_hidden_layers", "num_blocks", maximum=MAX_LAYERS),
            n_embd=n_embd,
            n_ff=int((n_ff + multiple - 1) // multiple * multiple),  # in floating point, as in transformers
            n_head=n_head,
            d_k=n_k // n_head,
            d_v=n_v // n_head,
            eps=config.number("norm_eps", default=1e-6),
            mlstm_eps=config.number("eps", default=1e-6),
            gate_cap=config.number("gate_soft_cap", default=15.0),
            cap=config.number("output_logit_soft_cap", default=30.0),
        )

    def values(self) -> dict[str, Any]:
        return {"attention.head_count": 0}

    def rows(self) -> Iterator[Row]:
        n, n_k, n_v = self.n_embd, self.n_head * self.d_k, self.n_head * self.d_v
        sizes = {"q": n_k, "k": n_k, "v": n_v, "ogate": n_v, "igate": self.n_head, "fgate": self.n_head}
        yield from self.outer_rows("backbone.embeddings.weight", "backbone.out_norm.weight")
        for i in range(self.n_layer):
            hf, blk = f"backbone.blocks.{i}.", f"blk.{i}."
            yield row(hf + "norm_mlstm.weight", blk + "attn_norm.weight", n)
            for source, target in PARTS.items():
                yield row(f"{hf}mlstm_layer.{source}.weight", f"{blk}mlstm_{target}.weight", sizes[target], n)
            for gate in ("igate", "fgate"):
                yield row(f"{hf}mlstm_layer.{gate}_preact.bias", f"{blk}mlstm_{gate}.bias", self.n_head)
            yield row(hf + "mlstm_layer.multihead_norm.weight", blk + "mlstm_norm.weight", n_v)
            yield row(hf + "mlstm_layer.out_proj.weight", blk + "mlstm_out.weight", n, n_v)
            yield row(hf + "norm_ffn.weight", blk + "ffn_norm.weight", n)
            for source, target in FEED_FORWARD.items():
                yield row(f"{hf}ffn.{source}.weight", f"{blk}ffn_{target}.weight", self.n_ff, n)
            yield row(hf + "ffn.proj_down.weight", blk + "ffn_down.weight", n, self.n_ff)
