"""HyperCLOVA X."""

from typing import Any

from family_rows import FamilyRows

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "HyperCLOVAXForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 3e4,
    "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "logits_scaling": 0.3,
}  # fmt: skip


def hyperclovax(r: Any, ids: list[int]) -> Any:
    """f64 [tok, vocabulary]"""
    c, share = r.c, r.c.get("residual_multiplier", 1.0)
    d = c["hidden_size"] // c["num_attention_heads"]
    x = r.t["model.embed_tokens.weight"][ids] * c.get("embedding_multiplier", 1.0)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for n, norm in enumerate(("input_layernorm", "post_attention_layernorm"), 1):
            h = r.norm(x, p + norm)
            if n == 1:
                q, k, v = (r.linear(h, f"{p}self_attn.{part}_proj").reshape(len(h), -1, d) for part in "qkv")
                y = r.linear(r.attend(q, k, v, d, d, c.get("attention_multiplier") or 0.0), p + "self_attn.o_proj")
            else:
                y = r.gated(h, p + "mlp.")
            x = x + share * (r.norm(y, f"{p}post_norm{n}") if c.get("use_post_norm", True) else y)
    output = r.t.get("lm_head.weight", r.t["model.embed_tokens.weight"])
    return r.norm(x, "model.norm") @ output.T * c.get("logits_scaling", 1.0)


ROWS = FamilyRows(
    configs={
        "hyperclovax": {**_SIZES, "tie_word_embeddings": False},
        "hyperclovax-plain": {
            **_SIZES, "use_post_norm": False, "attention_multiplier": 0.2, "attention_bias": True,
            "tie_word_embeddings": True,
        },
    },
    repeated=("hyperclovax-plain",),
    twins={NAME: hyperclovax},
    model_types={NAME: "hyperclovax"},
    errors=(("hyperclovax", {"head_dim": 20}, UnsupportedError, "head_dim = 20"),),
    notes=(("hyperclovax-plain", {"use_post_norm": True}, "it has no norms after the parts of a layer"),),
    refused=("hyperclovax",),
)  # fmt: skip
