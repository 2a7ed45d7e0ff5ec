"""AliceAI: Kimi's delta rule, gated attention on every fourth layer, experts, banked residuals. Of Yandex."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.alice_ai import AliceAIHparams
from hybrid.quant.ggml.families.experts import SIGMOID

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP
from .blocks import HEAD_SIZE
from .family import Row, Shapes, row
from .kimi_linear import delta_rows, low_rank_rows
from .qwen3next import Qwen3Next
from .rope import SCALING

# of the model's own configuration class
USUAL: Mapping[str, Any] = {
    "max_position_embeddings": 262144,
    "rope_theta": 1e6,
    "linear_num_key_heads": 32,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "block_attn_res_block_size": 4,
}
FIXED: Mapping[str, Any] = {
    "router_score_function": "sigmoid",
    "router_bias_correction": True,
    "kda_allow_negative_eigenvalues": False,
    "number_of_conv_states": 3,
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
DECAYS = "a_log_bias"


@dataclass(frozen=True)
class AliceAI(Qwen3Next):
    """One model. All layers have experts."""

    arch = "alice-ai"
    architectures: ClassVar[tuple[str, ...]] = ("AliceAIForCausalLM",)
    hparams = AliceAIHparams
    in_llama_cpp: ClassVar[bool] = False
    order = (
        f"n_layer n_ctx_train n_embd n_head n_head_kv {SCALING} freq_base eps n_expert n_expert_used {HEAD_SIZE} "
        ".general.file_type .vocab_size n_ff_expert n_ff_shared gating weights_norm? d_conv d_kda=d_k n_kda=n_k_head "
        "n_block n_rot"
    )
    pre: ClassVar[tuple[str, ...]] = ()
    dropped: ClassVar[tuple[str, ...]] = ("mtp.",)
    conditional: ClassVar[Mapping[str, str]] = {"full_attention_interval": "where layer_types is absent"}
    without_effect: ClassVar[Mapping[str, str]] = {
        "intermediate_size": "all layers have experts",
        "mtp_num_hidden_layers": "its guessing head is left out",
    }

    n_block: int = 0  # layers that share a bank
    decays: tuple[int, ...] = ()  # shape of a layer's decays in the checkpoint

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config = Config({**USUAL, **config.data}, config.where, config.looked, config.prefixes)
        for key, value in FIXED.items():
            config.expects(key, value)
        model = super().read(config, shapes)
        config.expects("linear_num_value_heads", model.n_k_head)
        config.expects("linear_value_head_dim", model.d_k)
        if not model.n_expert:
            raise config.wrong("num_experts", "1 or more")
        decays = next((shape for name, shape in shapes.items() if name.endswith(DECAYS)), (model.n_k_head,))
        n_block = config.integer("block_attn_res_block_size")
        return replace(model, n_block=n_block, decays=decays, heads_ahead=())

    def values(self) -> dict[str, Any]:
        return {"n_head_kv": self.heads.per_layer(self.attention), "gating": SIGMOID}

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        yield "llama.cpp cannot load this file: it has no such architecture"

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        yield self._scores("model.attnres_final.res", "output_res_score.weight")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "mlp.gate.e_score_correction_bias", blk + "exp_probs_b.bias", self.n_expert)
            for part, name in (("attn", "attn"), ("mlp", "ffn"))[i == 0 :]:  # the first layer reads the embedding
                yield self._scores(f"{hf}{part}_res", f"{blk}{name}_res_score.weight")

    def delta(self, hf: str, blk: str) -> Iterator[Row]:
        n, n_head, d = self.n_embd, self.n_k_head, self.d_k
        yield from delta_rows(hf, blk, n, n_head, d, self.d_conv, low_rank_rows(hf, blk, n, n_head * d, d))
        decays = hf + DECAYS
        yield row(decays, blk + "ssm_a", 1, 1, n_head, 1, transform=NEGATIVE_EXP, source_shape=self.decays)

    def _scores(self, hf: str, target: str) -> Row:
        """The product of a norm's weight and a matrix of one row, of which only the product is used."""
        return Row(target, (self.n_embd,), (hf + "_norm_weight", hf + "_proj.weight"), product=True)
