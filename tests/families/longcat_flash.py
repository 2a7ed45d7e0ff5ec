"""LongCat-Flash."""

from copy import copy
from typing import Any

import numpy as np
from family_rows import FamilyRows
from reference.deepseek import turns
from reference.experts import choose, softmax
from reference.kimi import latent_attention
from reference.recurrent import F64

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "LongcatFlashForCausalLM"
SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "ffn_hidden_size": 160, "num_layers": 2, "num_attention_heads": 3,
    "q_lora_rank": 40, "kv_lora_rank": 36, "qk_nope_head_dim": 20, "qk_rope_head_dim": 12, "head_dim": 12,
    "v_head_dim": 28,
    "n_routed_experts": 5, "zero_expert_num": 3, "moe_topk": 4, "expert_ffn_hidden_size": 64,
    "routed_scaling_factor": 1.7,
}  # fmt: skip


def longcat_flash(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c, n = model.c, model.c["hidden_size"]
    x = model.t["model.embed_tokens.weight"][ids]
    if "emb_split_num" in c:
        x = _with_ngrams(model, x, ids)
    frequencies, growth = turns(c)
    latents = {name: w for name, w in model.t.items() if ".q_a_layernorm" in name or ".kv_a_layernorm" in name}
    grown = copy(model)
    grown.t = {**model.t, **{name: w * np.sqrt(n / len(w)) for name, w in latents.items()}}
    for i in range(c["num_layers"]):
        p, shortcut = f"model.layers.{i}.", np.zeros_like(x)
        for j in range(2):
            h = model.norm(x, f"{p}input_layernorm.{j}")
            x = x + latent_attention(grown, h, f"{p}self_attn.{j}.", frequencies, growth)
            h = model.norm(x, f"{p}post_attention_layernorm.{j}")
            shortcut = _experts(model, h, p + "mlp.") if j == 0 else shortcut
            x = x + model.gated(h, f"{p}mlps.{j}.")
        x = x + shortcut
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight")


def _with_ngrams(model: Any, x: F64, ids: list[int]) -> F64:
    """The embeddings with those of n-grams, which begin after the last end token before."""
    c, j = model.c, 0
    total = x.copy()
    for n in range(2, c["emb_neighbor_num"] + 1):
        for _ in range(c["emb_split_num"]):
            p, size = "model.ngram_embeddings.", int(c["ngram_vocab_size_ratio"] * c["vocab_size"]) + 2 * j + 1
            for t in range(len(ids)):
                number, power = 0, 1
                for i in range(n):
                    if t < i or (i > 0 and ids[t - i] == c["eos_token_id"]):
                        break
                    number, power = number + ids[t - i] * power, power * c["vocab_size"]
                total[t] += model.t[f"{p}post_projs.{j}.weight"] @ model.t[f"{p}embedders.{j}.weight"][number % size]
            j += 1
    return total / (1 + j)


def _experts(model: Any, x: F64, m: str) -> F64:
    c, y = model.c, np.zeros_like(x)
    scores = softmax(model.linear(x, m + "router.classifier"))
    for t, row in enumerate(x):
        for e in choose(scores[t] + model.t[m + "router.e_score_correction_bias"], c["moe_topk"]):
            computed = e < c["n_routed_experts"]
            result = model.gated(row[None], f"{m}experts.{e}.")[0] if computed else row
            y[t] += c["routed_scaling_factor"] * scores[t, e] * result
    return y


ROWS = FamilyRows(
    configs={
        "longcat-flash": SIZES,
        "longcat-flash-yarn": {
            **SIZES, "zero_expert_num": 0, "moe_topk": 2, "tie_word_embeddings": True, "rope_theta": 3e4,
            "rope_scaling": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
        },
    },
    repeated=("longcat-flash-yarn",),
    twins={NAME: longcat_flash},
    defaults={NAME: {"rms_norm_eps": 1e-5, "rope_theta": 1e7}},
    model_types={NAME: "longcat_flash"},
    errors=(
        ("longcat-flash", {"q_lora_rank": None}, CheckpointError, "q_lora_rank = null"),
        ("longcat-flash", {"qk_rope_head_dim": 11}, CheckpointError, "qk_rope_head_dim = 11 .*a positive even number"),
        ("longcat-flash", {"mla_scale_q_lora": False}, UnsupportedError, "mla_scale_q_lora = false"),
        ("longcat-flash", {"zero_expert_type": "copy"}, UnsupportedError, 'zero_expert_type = "copy"'),
        ("longcat-flash", {"num_hidden_layers": 3}, UnsupportedError, "num_hidden_layers = 3 is not supported, only 4"),
        ("longcat-flash", {"num_key_value_heads": 1}, CheckpointError, "num_key_value_heads = 1.*expected 3"),
    ),
    notes=(("longcat-flash", {}, "no such architecture"),),
    refused=("longcat-flash", "longcat-flash-yarn"),
    sizes={"longcat-flash-560b": 560.7},
    loaded=("longcat-flash",),
)  # fmt: skip
