"""DeepSeek-V3.2."""

from typing import Any

import numpy as np
from family_rows import FamilyRows
from reference.attention import rope
from reference.deepseek import feed_forward, turns
from reference.experts import softmax
from reference.kimi import LATENT_EPS, rms, turned, up_projection
from reference.recurrent import F64

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "DeepseekV32ForCausalLM"


def deepseek32(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    x = model.t["model.embed_tokens.weight"][ids]
    for i in range(model.c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        x = x + attend(model, model.norm(x, p + "input_layernorm"), p + "self_attn.")
        x = x + feed_forward(model, model.norm(x, p + "post_attention_layernorm"), p + "mlp.")
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight")


def attend(model: Any, x: F64, p: str) -> F64:
    c, n, n_head = model.c, len(x), model.c["num_attention_heads"]
    rank, d = c["kv_lora_rank"], c["qk_nope_head_dim"]
    frequencies, growth = turns(c)
    low = rms(model.linear(x, p + "q_a_proj"), model.t[p + "q_a_layernorm.weight"], LATENT_EPS)
    q = model.linear(low, p + "q_b_proj").reshape(n, n_head, -1)
    both = model.linear(x, p + "kv_a_proj_with_mqa")
    latent = rms(both[:, :rank], model.t[p + "kv_a_layernorm.weight"], LATENT_EPS)
    made = (latent @ up_projection(model, p, n_head).T).reshape(n, n_head, -1)
    scores = np.einsum("thd,shd->hts", q[:, :, :d], made[:, :, :d])
    shared = turned(both[:, None, rank:], frequencies)[:, 0]
    scores = scores + np.einsum("thd,sd->hts", turned(q[:, :, d:], frequencies), shared)
    seen = chosen(model, x, low, p + "indexer.")
    weights = softmax(np.where(seen, scores * growth * q.shape[2] ** -0.5, -np.inf))
    y = np.einsum("hts,shd->thd", weights, made[:, :, d:])
    return model.linear(y.reshape(n, -1), p + "o_proj")


def chosen(model: Any, x: F64, low: F64, p: str) -> F64:
    """Bool [tok, tok]: the tokens that each token sees."""
    c, n, d = model.c, len(x), model.c["index_head_dim"]
    n_rot, (frequencies, _) = c["qk_rope_head_dim"], turns(c)
    factors = model.theta ** (-np.arange(0, n_rot, 2) / n_rot) / frequencies
    k = model.linear(x, p + "wk")
    k = (k - k.mean(1, keepdims=True)) / np.sqrt(k.var(1, keepdims=True) + 1e-6)
    k = (k * model.t[p + "k_norm.weight"] + model.t[p + "k_norm.bias"])[:, None]
    q = model.linear(low, p + "wq_b").reshape(n, -1, d)
    q, k = (rope(part, np.arange(n), n_rot, model.theta, 1.0, factors, neox=True) for part in (q, k))
    scores = np.einsum("th,ths->ts", model.linear(x, p + "weights_proj"), np.maximum(q @ k[:, 0].T, 0))
    seen = np.zeros((n, n), bool)
    for t in range(n):
        seen[t, np.argsort(-scores[t, : t + 1], kind="stable")[: c["index_topk"]]] = True
    return seen


_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "kv_lora_rank": 36,
    "qk_nope_head_dim": 20, "qk_rope_head_dim": 12, "v_head_dim": 28, "num_attention_heads": 3,
    "num_key_value_heads": 3, "first_k_dense_replace": 1, "n_routed_experts": 12, "num_experts_per_tok": 3,
    "moe_intermediate_size": 64, "n_shared_experts": 2, "routed_scaling_factor": 1.7, "rope_theta": 2e4,
    "q_lora_rank": 40, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "n_group": 4, "topk_group": 2,
    "index_n_heads": 13, "index_head_dim": 18, "index_topk": 9,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "deepseek-v32": _SIZES,
        "deepseek-v32-yarn": {
            **_SIZES, "n_group": 1, "topk_group": 1, "index_n_heads": 21, "index_head_dim": 64, "index_topk": 17,
            "rms_norm_eps": 1e-6, "norm_topk_prob": False, "rope_scaling": {
                "type": "yarn", "factor": 8.0, "original_max_position_embeddings": 24, "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
        },
    },
    twins={NAME: deepseek32},
    model_types={NAME: "deepseek_v32"},
    errors=(
        ("deepseek-v32", {"q_lora_rank": None}, CheckpointError, "q_lora_rank = null"),
        ("deepseek-v32", {"index_head_dim": 8}, CheckpointError, "index_head_dim = 8"),
        ("deepseek-v32", {"index_topk": 0}, CheckpointError, "index_topk = 0"),
        ("deepseek-v32", {"topk_method": "greedy"}, UnsupportedError, 'topk_method = "greedy"'),
    ),
    converted={"deepseek-v32": {"model_type": "deepseek_v32", "scoring_func": "sigmoid"}},
    refused=("deepseek-v32",),  # it turns index vectors of 64 values or a multiple of them
)  # fmt: skip
