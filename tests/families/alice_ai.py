"""AliceAI. Its classes are not in transformers: the twin is written from vLLM's (pull request 57963)."""

from typing import Any

import numpy as np
from family_rows import FamilyRows
from reference.experts import mixture, softmax
from reference.kimi import kda, rms
from reference.recurrent import F64, sigmoid

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "AliceAIForCausalLM"


def alice_ai(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c, partial = model.c, model.t["model.embed_tokens.weight"][ids]
    sources: list[F64] = []  # the embedding, and the sums of completed blocks of layers
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        begins = i % c.get("block_attn_res_block_size", 4) == 0
        h = mixed(model, [*sources, partial], p + "attn_res") if i else partial
        if begins:
            sources.append(partial)
        y = mixer(model, model.norm(h, p + "input_layernorm", 1.0), p)
        partial = y if begins else partial + y
        h = mixed(model, [*sources, partial], p + "mlp_res")
        partial = partial + experts(model, model.norm(h, p + "post_attention_layernorm", 1.0), p + "mlp.")
    h = mixed(model, [*sources, partial], "model.attnres_final.res")
    return model.head(model.norm(h, "model.norm", 1.0), "model.embed_tokens.weight")


def mixed(model: Any, rows: list[F64], name: str) -> F64:
    """The sources [tok, n], added with softmax weights from their normalized values."""
    query = model.t[name + "_norm_weight"] * model.t[name + "_proj.weight"].reshape(-1)
    scores = np.stack([rms(row, query, model.eps).sum(1) for row in rows], axis=1)
    return (softmax(scores)[:, :, None] * np.stack(rows, axis=1)).sum(1)


def mixer(model: Any, h: F64, p: str) -> F64:
    if p + "linear_attn.o_norm.weight" in model.t:
        model.t[p + "linear_attn.A_log"] = model.t[p + "linear_attn.a_log_bias"]
        return kda(model, h, p + "linear_attn.")
    n, d, a = len(h), model.c["head_dim"], p + "self_attn."
    q, k, v = (model.linear(h, f"{a}{part}_proj").reshape(n, -1, d) for part in "qkv")
    q, gate = q[:, ::2], q[:, 1::2]
    q, k = model.norm(q, a + "q_norm", 1.0), model.norm(k, a + "k_norm", 1.0)
    y = model.attend(q, k, v, d, int(d * model.c["partial_rotary_factor"]))
    return model.linear(y * sigmoid(gate.reshape(n, -1)), a + "o_proj")


def experts(model: Any, h: F64, m: str) -> F64:
    y = mixture(
        h, sigmoid(model.linear(h, m + "gate")), model.t[m + "gate.e_score_correction_bias"],
        model.c["num_experts_per_tok"], lambda one, e: model.gated(one, f"{m}experts.{e}."),
        model.c.get("norm_topk_prob", True),
    )  # fmt: skip
    return y + sigmoid(model.linear(h, m + "shared_expert_gate")) * model.gated(h, m + "shared_expert.")


_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 40,
    "linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_key_head_dim": 24, "linear_value_head_dim": 24,
    "linear_conv_kernel_dim": 3, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 96, "rms_norm_eps": 1e-6, "rope_theta": 2e4,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "alice-ai": {**_SIZES, "num_hidden_layers": 5, "partial_rotary_factor": 0.4, "block_attn_res_block_size": 2},
        "alice-ai-blocks": {
            **_SIZES, "num_hidden_layers": 4, "block_attn_res_block_size": 1, "norm_topk_prob": False,
            "layer_types": ["full_attention", "linear_attention", "full_attention", "linear_attention"],
            "linear_num_key_heads": 5, "linear_num_value_heads": 5, "linear_key_head_dim": 7,
            "linear_value_head_dim": 7, "partial_rotary_factor": 0.25, "tie_word_embeddings": True,
        },
    },
    twins={NAME: alice_ai},
    published={
        NAME: {
            "vocab_size": 129024, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48,
            "num_attention_heads": 16, "num_key_value_heads": 2, "hidden_act": "silu", "initializer_range": 0.02,
            "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "use_cache": True, "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
            "rope_theta": 1e6, "partial_rotary_factor": 0.25, "attention_bias": False, "attention_dropout": 0.0,
            "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
            "linear_num_key_heads": 32, "linear_num_value_heads": 32, "decoder_sparse_step": 1,
            "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts_per_tok": 10,
            "num_experts": 512, "norm_topk_prob": True, "output_router_logits": False, "router_aux_loss_coef": 0.001,
            "mlp_only_layers": [], "layer_types": None, "full_attention_interval": 4, "block_attn_res_block_size": 4,
            "router_score_function": "sigmoid", "router_bias_correction": True, "mtp_num_hidden_layers": 1,
            "kda_allow_negative_eigenvalues": False, "number_of_conv_states": 3,
        },
    },
    errors=(
        ("alice-ai", {"router_score_function": "softmax"}, UnsupportedError, 'router_score_function = "softmax"'),
        ("alice-ai", {"router_bias_correction": False}, UnsupportedError, "router_bias_correction = false"),
        ("alice-ai", {"kda_allow_negative_eigenvalues": True}, UnsupportedError, "negative_eigenvalues = true"),
        ("alice-ai", {"linear_value_head_dim": 12}, UnsupportedError, "linear_value_head_dim = 12"),
        ("alice-ai", {"decoder_sparse_step": 2}, UnsupportedError, "decoder_sparse_step = 2"),
        ("alice-ai", {"num_experts": 0}, CheckpointError, "num_experts = 0"),
        ("alice-ai", {"block_attn_res_block_size": 0}, CheckpointError, "block_attn_res_block_size = 0"),
    ),
    refused=("alice-ai", "alice-ai-blocks"),
    loaded=("alice-ai",),
)  # fmt: skip
