"""Whole models in float64, from a checkpoint's own names and its config: slow and obvious. The results of `convert` and
`infer` for the same checkpoint have to agree with them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from families import merged
from numpy.typing import NDArray
from reference.attention import attention, rope
from reference.deepseek import deepseek
from reference.deepseek4 import deepseek4
from reference.experts import mixture, softmax
from reference.gemma3n import gemma3n
from reference.gemma4 import gemma4
from reference.glm5_next import glm5_next
from reference.gpt_oss import gpt_oss
from reference.kimi import kimi_linear, ling
from reference.kimi_k3 import kimi_k3
from reference.lfm3 import lfm3
from reference.llama4 import llama4
from reference.mamba import bamba, jamba, mamba, mamba2
from reference.minimax import minimax
from reference.nemotron_h import nemotron_h
from reference.olmo_hybrid import olmo_hybrid
from reference.phi4flash import phi4flash
from reference.plain import SWITCHES, plain
from reference.plamo2 import plamo2
from reference.qwen4_exp import qwen4_exp
from reference.recurrent import (
    conv1d,
    conv1d_gated,
    delta_rule,
    gated_norm,
    l2_norm,
    rg_lru,
    sigmoid,
    silu,
)
from reference.rope_scaling import scaling
from reference.rwkv import arwkv7, rwkv6, rwkv6_qwen2, rwkv7
from reference.ungated import falcon, gptneox
from reference.xlstm import xlstm
from reference.zamba import zamba
from reference.zaya import zaya

F64 = NDArray[np.float64]


def rms(x: F64, weight: F64 | float, eps: float) -> F64:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def gelu(x: F64) -> F64:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


DEFAULTS: dict[str, dict[str, Any]] = merged("defaults")


class Reference:
    """`c` is the config, `t` the tensors by name; linear layers have weights [out, in]."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, NDArray]) -> None:
        config = DEFAULTS.get(config["architectures"][0], {}) | config
        self.c = config
        self.t = {name: np.asarray(x, np.float64) for name, x in tensors.items()}
        self.eps = config.get("rms_norm_eps") or config.get("layer_norm_epsilon") or config.get("norm_eps")
        rope_of = config.get("rope_parameters") or {}
        rope_of = rope_of.get("full_attention", rope_of)
        usual = 2e6 if config["architectures"] == ["SmolLM3ForCausalLM"] else 10000.0
        self.theta = rope_of.get("rope_theta") or config.get("rope_theta", usual)
        self.part = rope_of.get("partial_rotary_factor") or config.get("partial_rotary_factor", 1.0)

    def linear(self, x: F64, name: str) -> F64:
        y = x @ self.t[name + ".weight"].T
        return y + self.t[name + ".bias"] if name + ".bias" in self.t else y

    def norm(self, x: F64, name: str, plus: float = 0.0) -> F64:
        return rms(x, self.t[name + ".weight"] + plus, self.eps)

    def gated(self, x: F64, p: str, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj") -> F64:
        return self.linear(silu(self.linear(x, p + gate)) * self.linear(x, p + up), p + down)

    def attend(self, q: F64, k: F64, v: F64, d: int, n_rot: int, scale: float = 0.0, window: int = 0) -> F64:
        pos = np.arange(len(q))
        q, k, v = (x.reshape(len(x), -1, d) for x in (q, k, v))
        if n_rot:
            factors, magnitude = scaling(self.c, n_rot, self.theta, len(q))
            q, k = (rope(x, pos, n_rot, self.theta, 1.0, factors, True, magnitude) for x in (q, k))
        settings = self.c.get("rope_parameters") or {}
        if "llama_4_scaling_beta" in settings:  # Ministral 3
            steps = np.floor(pos / settings["original_max_position_embeddings"])
            q = q * (1 + settings["llama_4_scaling_beta"] * np.log(1 + steps))[:, None, None]
        return attention(q, k, v, pos, scale or d**-0.5, window).reshape(len(q), -1)

    def local(self, i: int) -> bool:
        """Whether layer i has the window."""
        c = self.c
        kind, n = c["architectures"][0], c.get("sliding_window_pattern", 6)
        if "layer_types" in c and kind != "Qwen3MoeForCausalLM":
            return c["layer_types"][i] == "sliding_attention"
        if kind.startswith("Gemma"):
            return i % 2 == 0 if kind == "Gemma2ForCausalLM" else (i + 1) % n != 0
        if kind == "SmolLM3ForCausalLM":
            return not self.turned(i)
        return i >= c.get("max_window_layers", 0)

    def turned(self, i: int) -> bool:
        """Whether layer i has RoPE."""
        c = self.c
        if c["architectures"] != ["SmolLM3ForCausalLM"]:
            return True
        if c.get("no_rope_layers") is not None:
            return c["no_rope_layers"][i] == 1
        return (i + 1) % c.get("no_rope_layer_interval", 4) != 0

    def window(self, i: int) -> int:
        """The number of tokens that a token sees in layer i; 0: all."""
        c, kind = self.c, self.c["architectures"][0]
        if kind == "LlamaForCausalLM":
            return 0
        if kind.startswith(("Qwen", "SmolLM3")) and not c.get("use_sliding_window"):
            return 0
        return c.get("sliding_window") or 0 if self.local(i) else 0

    def mamba2(self, rows: F64, p: str, n_head: int, n_group: int, d_state: int, normed: bool) -> F64:
        return mamba2(self, rows, p, n_head, n_group, d_state, normed)

    def logits(self, ids: list[int]) -> F64:
        """f64 [tok, vocabulary]"""
        return MODELS[self.c["architectures"][0]](self, ids)

    def head(self, x: F64, embedding: str) -> F64:
        return x @ self.t["lm_head.weight" if "lm_head.weight" in self.t else embedding].T

    def falcon_h1(self, ids: list[int]) -> F64:
        c = dict.fromkeys(MULTIPLIERS, 1.0) | {"mlp_multipliers": [1, 1], "ssm_multipliers": [1] * 5} | self.c
        x = self.t["model.embed_tokens.weight"][ids] * c["embedding_multiplier"]
        d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        n_head, groups = c["mamba_n_heads"], c["mamba_n_groups"] * c["mamba_d_state"]
        sizes = (c["mamba_d_ssm"], c["mamba_d_ssm"], groups, groups, n_head)
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            h = self.norm(x, p + "input_layernorm")
            q, k, v = (self.linear(h * c["attention_in_multiplier"], f"{p}self_attn.{part}_proj") for part in "qkv")
            heads = self.attend(q, k * c["key_multiplier"], v, d, d)
            x = x + self.linear(heads, p + "self_attn.o_proj") * c["attention_out_multiplier"]
            rows = self.linear(h * c["ssm_in_multiplier"], p + "mamba.in_proj") * np.repeat(c["ssm_multipliers"], sizes)
            y = self.mamba2(
                rows, p + "mamba.", n_head, c["mamba_n_groups"], c["mamba_d_state"], c.get("mamba_rms_norm", False)
            )
            x = x + self.linear(y, p + "mamba.out_proj") * c["ssm_out_multiplier"]
            h, m = self.norm(x, p + "pre_ff_layernorm"), p + "feed_forward."
            y = self.linear(h, m + "up_proj") * silu(self.linear(h, m + "gate_proj") * c["mlp_multipliers"][0])
            x = x + self.linear(y, m + "down_proj") * c["mlp_multipliers"][1]
        x = self.norm(x, "model.final_layernorm")
        return self.head(x, "model.embed_tokens.weight") * c["lm_head_multiplier"]

    def lfm2(self, ids: list[int]) -> F64:
        c, x = self.c, self.t["model.embed_tokens.weight"][ids]
        d = c["hidden_size"] // c["num_attention_heads"]
        for i, kind in enumerate(c["layer_types"]):
            p = f"model.layers.{i}."
            h = self.norm(x, p + "operator_norm")
            if kind == "conv":
                before, after, inner = np.split(self.linear(h, p + "conv.in_proj"), 3, axis=1)
                taps = self.t[p + "conv.conv.weight"][:, 0].T
                bias = self.t.get(p + "conv.conv.bias", np.float64(0))
                y, _ = conv1d_gated(inner, before, after, taps, bias, np.zeros((len(taps) - 1, len(taps.T))))
                x = x + self.linear(y, p + "conv.out_proj")
            else:
                q, k, v = (self.linear(h, f"{p}self_attn.{part}_proj").reshape(len(h), -1, d) for part in "qkv")
                q, k = self.norm(q, p + "self_attn.q_layernorm"), self.norm(k, p + "self_attn.k_layernorm")
                x = x + self.linear(self.attend(q, k, v, d, d), p + "self_attn.out_proj")
            h, m = self.norm(x, p + "ffn_norm"), p + "feed_forward."
            if m + "gate.weight" in self.t:
                scores, bias = sigmoid(self.linear(h, m + "gate")), self.t.get(m + "expert_bias", 0.0)
                x = x + c.get("routed_scaling_factor", 1.0) * mixture(
                    h,
                    scores,
                    bias,
                    c["num_experts_per_tok"],
                    lambda one, e, m=m: self.gated(one, f"{m}experts.{e}.", "w1", "w3", "w2"),
                    c.get("norm_topk_prob", True),
                )
            else:
                x = x + self.gated(h, m, "w1", "w3", "w2")
        return self.head(self.norm(x, "model.embedding_norm"), "model.embed_tokens.weight")

    def delta_net(self, h: F64, p: str, act: str = "silu") -> F64:
        c, n_tok = self.c, len(h)
        n_k, n_v, d_k, d_v = (c[f"linear_{name}"] for name in NAMES)
        share = n_v // n_k
        if p + "in_proj_qkv.weight" in self.t:
            mixed, z = self.linear(h, p + "in_proj_qkv"), self.linear(h, p + "in_proj_z")
            b, a = self.linear(h, p + "in_proj_b"), self.linear(h, p + "in_proj_a")
        else:
            pieces = sorted((k for k in self.t if k.startswith(p + "in_proj_qkvz")), key=_number)
            rows = (h @ np.concatenate([self.t[k] for k in pieces]).T).reshape(n_tok, n_k, -1)
            q, k, v, z = np.split(rows, [d_k, 2 * d_k, 2 * d_k + share * d_v], axis=2)
            mixed = np.concatenate([part.reshape(n_tok, -1) for part in (q, k, v)], axis=1)
            b, a = np.split(self.linear(h, p + "in_proj_ba").reshape(n_tok, n_k, -1), 2, axis=2)
        taps = self.t[p + "conv1d.weight"][:, 0].T
        mixed, _ = conv1d(mixed, taps, np.float64(0), np.zeros((len(taps) - 1, mixed.shape[1])))
        q, k, v = np.split(silu(mixed), [n_k * d_k, 2 * n_k * d_k], axis=1)
        q, k = (np.repeat(l2_norm(part.reshape(n_tok, n_k, d_k), 1e-6), share, axis=1) for part in (q, k))
        steps = np.logaddexp(0.0, a.reshape(n_tok, n_v) + self.t[p + "dt_bias"])
        gate = np.exp(-np.exp(self.t[p + "A_log"]) * steps)[:, :, None]
        v, state = v.reshape(n_tok, n_v, d_v), np.zeros((n_v, d_k, d_v))
        y, _ = delta_rule(q * d_k**-0.5, k, v, gate, sigmoid(b.reshape(n_tok, n_v)), state)
        y = gated_norm(y, z.reshape(n_tok, n_v, d_v), self.t[p + "norm.weight"], self.eps, norm_first=True, act=act)
        return self.linear(y.reshape(n_tok, -1), p + "out_proj")

    def qwen3_next(self, ids: list[int]) -> F64:
        c, x = self.c, self.t["model.embed_tokens.weight"][ids]
        d = c["head_dim"]
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            h = self.norm(x, p + "input_layernorm", 1.0)
            if p + "self_attn.q_proj.weight" in self.t:
                q, k, v = (self.linear(h, f"{p}self_attn.{part}_proj").reshape(len(h), -1, d) for part in "qkv")
                q, gate = q[:, ::2], q[:, 1::2]
                q, k = self.norm(q, p + "self_attn.q_norm", 1.0), self.norm(k, p + "self_attn.k_norm", 1.0)
                n_rot = int(d * (self.part if self.part != 1.0 else 0.25))
                y = self.attend(q, k, v, d, n_rot) * sigmoid(gate.reshape(len(h), -1))
                x = x + self.linear(y, p + "self_attn.o_proj")
            else:
                x = x + self.delta_net(h, p + "linear_attn.")
            h, m = self.norm(x, p + "post_attention_layernorm", 1.0), p + "mlp."
            if m + "gate.weight" not in self.t:
                x = x + self.gated(h, m)
                continue
            y = mixture(
                h,
                softmax(self.linear(h, m + "gate")),
                0.0,
                c["num_experts_per_tok"],
                lambda one, e, m=m: self.gated(one, f"{m}experts.{e}."),
                c.get("norm_topk_prob", True),
            )
            x = x + y + sigmoid(self.linear(h, m + "shared_expert_gate")) * self.gated(h, m + "shared_expert.")
        return self.head(self.norm(x, "model.norm", 1.0), "model.embed_tokens.weight")

    def gemma(self, ids: list[int]) -> F64:
        """Gemma 2, which caps scores and logits, and Gemma 3, which normalizes queries and keys."""
        c, d = self.c, self.c["head_dim"]
        x = self.t["model.embed_tokens.weight"][ids] * c["hidden_size"] ** 0.5
        three = c["architectures"] == ["Gemma3ForCausalLM"]
        usual = (0.0, 0.0) if three else (50.0, 30.0)
        cap = c.get("attn_logit_softcapping", usual[0]) or 0.0
        last_cap = c.get("final_logit_softcapping", usual[1]) or 0.0
        rope_of = (c.get("rope_parameters") or {}).get("full_attention", {})
        theta = rope_of.get("rope_theta") or c.get("rope_theta", 1e6 if three else 1e4)
        factors, magnitude = scaling(c, d, theta, len(ids))
        for i in range(c["num_hidden_layers"]):
            p, pos = f"model.layers.{i}.", np.arange(len(ids))
            h = self.norm(x, p + "input_layernorm", 1.0)
            q, k, v = (self.linear(h, f"{p}self_attn.{part}_proj").reshape(len(h), -1, d) for part in "qkv")
            if three:
                q, k = (self.norm(part, f"{p}self_attn.{n}_norm", 1.0) for part, n in ((q, "q"), (k, "k")))
            if three and self.local(i):
                near = (c.get("rope_parameters") or {}).get("sliding_attention", {})
                base = near.get("rope_theta", c.get("rope_local_base_freq", 1e4))
                q, k = (rope(part, pos, d, base, neox=True) for part in (q, k))
            else:
                q, k = (rope(part, pos, d, theta, 1.0, factors, True, magnitude) for part in (q, k))
            y = attention(q, k, v, pos, c["query_pre_attn_scalar"] ** -0.5, self.window(i), cap).reshape(len(h), -1)
            x = x + self.norm(self.linear(y, p + "self_attn.o_proj"), p + "post_attention_layernorm", 1.0)
            h, m = self.norm(x, p + "pre_feedforward_layernorm", 1.0), p + "mlp."
            y = self.linear(gelu(self.linear(h, m + "gate_proj")) * self.linear(h, m + "up_proj"), m + "down_proj")
            x = x + self.norm(y, p + "post_feedforward_layernorm", 1.0)
        y = self.head(self.norm(x, "model.norm", 1.0), "model.embed_tokens.weight")
        return last_cap * np.tanh(y / last_cap) if last_cap else y

    def recurrent_gemma(self, ids: list[int]) -> F64:
        c, x = self.c, self.t["model.embed_tokens.weight"][ids]
        bits = np.float32(c["hidden_size"] ** 0.5).view(np.uint32)  # rounded to BF16
        x = x * np.float64(np.uint32(bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).view(np.float32))
        d, kinds = c["head_dim"], c["block_types"]
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}.temporal_block."
            h = self.norm(x, f"model.layers.{i}.temporal_pre_norm", 1.0)
            if kinds[i % len(kinds)] == "attention":
                q, k, v = (self.linear(h, f"{p}{part}_proj") for part in "qkv")
                y = self.attend(q, k, v, d, d // 2, window=c["attention_window_size"])
                x = x + self.linear(y, p + "o_proj")
            else:
                taps, inner = self.t[p + "conv_1d.weight"][:, 0].T, self.linear(h, p + "linear_x")
                inner, _ = conv1d(inner, taps, self.t[p + "conv_1d.bias"], np.zeros((len(taps) - 1, len(taps.T))))
                r, gate = (self._blocks(inner, f"{p}rg_lru.{name}_gate_") for name in ("recurrent", "input"))
                rate = -8 * np.logaddexp(0, self.t[p + "rg_lru.recurrent_param"])
                zero = np.zeros(inner.shape[1])
                y, _ = rg_lru(inner, r, zero, gate, zero, rate, zero, fresh=True)
                x = x + self.linear(y * gelu(self.linear(h, p + "linear_y")), p + "linear_out")
            m = f"model.layers.{i}.mlp_block."
            h = self.norm(x, f"model.layers.{i}.channel_pre_norm", 1.0)
            x = x + self.linear(gelu(self.linear(h, m + "gate_proj")) * self.linear(h, m + "up_proj"), m + "down_proj")
        y, cap = self.head(self.norm(x, "model.final_norm", 1.0), "model.embed_tokens.weight"), c["logits_soft_cap"]
        return cap * np.tanh(y / cap)

    def _blocks(self, x: F64, p: str) -> F64:
        """Block-diagonal product: each head of x times its own matrix."""
        weight, bias = self.t[p + "weight"], self.t[p + "bias"]
        heads = x.reshape(len(x), len(weight), -1)
        return np.stack([heads[:, h] @ w + bias[h] for h, w in enumerate(weight)], axis=1).reshape(x.shape)

    def llama(self, ids: list[int]) -> F64:
        """Llama, Qwen2, Qwen3, Qwen3-MoE, Granite, Phi-3, SmolLM3."""
        c = self.c
        x = self.t["model.embed_tokens.weight"][ids] * c.get("embedding_multiplier", 1.0)
        d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        residual = c.get("residual_multiplier", 1.0)
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            post = p + "input_layernorm.weight" not in self.t  # OLMo 2
            h = x if post else self.norm(x, p + "input_layernorm")
            if p + "self_attn.qkv_proj.weight" in self.t:
                n_q, n_kv = (c[f"num_{name}_heads"] for name in ("attention", "key_value"))
                q, k, v = np.split(self.linear(h, p + "self_attn.qkv_proj"), [n_q * d, (n_q + n_kv) * d], axis=1)
            else:
                q, k, v = (self.linear(h, f"{p}self_attn.{part}_proj").reshape(len(h), -1, d) for part in "qkv")
            if p + "self_attn.q_norm.weight" in self.t:
                if c["architectures"][0].startswith("Olmo"):
                    q, k = (part.reshape(len(h), -1) for part in (q, k))
                q, k = self.norm(q, p + "self_attn.q_norm"), self.norm(k, p + "self_attn.k_norm")
            if c.get("clip_qkv"):
                q, k, v = (np.clip(part, -c["clip_qkv"], c["clip_qkv"]) for part in (q, k, v))
            n_rot = int(d * self.part) if self.turned(i) else 0
            y = self.attend(q, k, v, d, n_rot, c.get("attention_multiplier", 0.0), self.window(i))
            y = self.linear(y, p + "self_attn.o_proj")
            x = x + residual * (self.norm(y, p + "post_attention_layernorm") if post else y)
            h, m = x if post else self.norm(x, p + "post_attention_layernorm"), p + "mlp."
            if m + "gate.weight" in self.t:
                y = mixture(
                    h,
                    softmax(self.linear(h, m + "gate")),
                    0.0,
                    c["num_experts_per_tok"],
                    lambda one, e, m=m: self.gated(one, f"{m}experts.{e}."),
                    c.get("norm_topk_prob", False),
                )
            elif c["architectures"][0].startswith("GraniteMoe"):
                y = self._granite_feed_forward(h, p)
            elif m + "gate_up_proj.weight" in self.t:
                gate, up = np.split(self.linear(h, m + "gate_up_proj"), 2, axis=1)
                y = self.linear(silu(gate) * up, m + "down_proj")
            else:
                y = self.gated(h, m)
            x = x + residual * (self.norm(y, p + "post_feedforward_layernorm") if post else y)
        return self.head(self.norm(x, "model.norm"), "model.embed_tokens.weight") / c.get("logits_scaling", 1.0)

    def layer_norm(self, x: F64, name: str) -> F64:
        away = x - x.mean(-1, keepdims=True)
        away = away / np.sqrt((away**2).mean(-1, keepdims=True) + self.eps)
        return away * self.t[name + ".weight"] + self.t[name + ".bias"]

    def starcoder2(self, ids: list[int]) -> F64:
        """StarCoder2, and Phi-2, whose two parts read the same rows."""
        c, x = self.c, self.t["model.embed_tokens.weight"][ids]
        self.eps = c.get("norm_epsilon") or c["layer_norm_eps"]
        d, phi = c["hidden_size"] // c["num_attention_heads"], c["architectures"] == ["PhiForCausalLM"]
        out, up, down = ("dense", "fc1", "fc2") if phi else ("o_proj", "c_fc", "c_proj")
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            h = self.layer_norm(x, p + "input_layernorm")
            q, k, v = (self.linear(h, f"{p}self_attn.{part}_proj") for part in "qkv")
            y = self.attend(q, k, v, d, int(d * self.part), window=self.window(i))
            x = x + self.linear(y, f"{p}self_attn.{out}")
            h = h if phi else self.layer_norm(x, p + "post_attention_layernorm")
            x = x + self.linear(gelu(self.linear(h, f"{p}mlp.{up}")), f"{p}mlp.{down}")
        x = self.layer_norm(x, "model.final_layernorm" if phi else "model.norm")
        return self.linear(x, "lm_head") if phi else self.head(x, "model.embed_tokens.weight")

    def gpt2(self, ids: list[int]) -> F64:
        c, self.eps = self.c, self.c["layer_norm_epsilon"]
        x = self.t["wte.weight"][ids] + self.t["wpe.weight"][: len(ids)]

        def linear(x: F64, name: str) -> F64:
            return x @ self.t[name + ".weight"] + self.t[name + ".bias"]

        for i in range(c["n_layer"]):
            p = f"h.{i}."
            q, k, v = np.split(linear(self.layer_norm(x, p + "ln_1"), p + "attn.c_attn"), 3, axis=1)
            x = x + linear(self.attend(q, k, v, c["n_embd"] // c["n_head"], 0), p + "attn.c_proj")
            x = x + linear(gelu(linear(self.layer_norm(x, p + "ln_2"), p + "mlp.c_fc")), p + "mlp.c_proj")
        return self.head(self.layer_norm(x, "ln_f"), "wte.weight")

    def openelm(self, ids: list[int]) -> F64:
        c, d = self.c, self.c["head_dim"]
        self.eps, self.theta = 1e-6, c["rope_freq_constant"]
        x = self.t["transformer.token_embeddings.weight"][ids]
        for i, (n_q, n_kv) in enumerate(zip(c["num_query_heads"], c["num_kv_heads"], strict=True)):
            p = f"transformer.layers.{i}."
            rows = self.linear(self.norm(x, p + "attn_norm"), p + "attn.qkv_proj").reshape(len(ids), -1, d)
            q, k, v = np.split(rows, [n_q, n_q + n_kv], axis=1)
            y = self.attend(self.norm(q, p + "attn.q_norm"), self.norm(k, p + "attn.k_norm"), v, d, d)
            x = x + self.linear(y, p + "attn.out_proj")
            h = self.norm(x, p + "ffn_norm")
            # proj_1's halves: here in the parts into which the converter splits it
            gate, up = (h @ self.t[f"{p}ffn.proj_1.{part}"].T for part in ("gate", "up"))
            x = x + self.linear(silu(gate) * up, p + "ffn.proj_2")
        return self.head(self.norm(x, "transformer.norm"), "transformer.token_embeddings.weight")

    def _granite_feed_forward(self, h: F64, p: str) -> F64:
        """Gate and up are one tensor in checkpoints; here they are the parts into which the converter splits it."""
        if p + "shared_mlp.output_linear.weight" in self.t:
            gate, up = (h @ self.t[f"{p}shared_mlp.input_linear.weight.{part}"].T for part in ("gate", "up"))
            return self.linear(silu(gate) * up, p + "shared_mlp.output_linear")
        m = p + "block_sparse_moe."

        def expert(one: F64, e: int) -> F64:
            gate, up = (one @ self.t[f"{m}input_linear.weight.{part}.{e}"].T for part in ("gate", "up"))
            return (silu(gate) * up) @ self.t[m + "output_linear.weight"][e].T

        scores = softmax(self.linear(h, m + "router.layer"))
        return mixture(h, scores, 0.0, self.c["num_experts_per_tok"], expert)


MULTIPLIERS = (
    "key_multiplier",
    "attention_in_multiplier",
    "attention_out_multiplier",
    "ssm_in_multiplier",
    "ssm_out_multiplier",
    "embedding_multiplier",
    "lm_head_multiplier",
)
NAMES = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")


def _number(name: str) -> int:
    last = name.rpartition(".")[2]
    return int(last) if last.isdecimal() else 0


MODELS: dict[str, Callable[[Reference, list[int]], F64]] = {
    "FalconH1ForCausalLM": Reference.falcon_h1,
    "NemotronHForCausalLM": nemotron_h,
    **dict.fromkeys(["MambaForCausalLM", "FalconMambaForCausalLM", "Mamba2ForCausalLM"], mamba),
    "JambaForCausalLM": jamba,
    **dict.fromkeys(["BambaForCausalLM", "GraniteMoeHybridForCausalLM"], bamba),
    "Lfm2ForCausalLM": Reference.lfm2,
    "Lfm2MoeForCausalLM": Reference.lfm2,
    "Lfm3ForCausalLM": lfm3,
    "Gemma4ForCausalLM": gemma4,
    "Qwen4ExpForCausalLM": qwen4_exp,
    "Gemma3nForCausalLM": gemma3n,
    "Llama4ForCausalLM": llama4,
    **dict.fromkeys(
        [
            "LlamaForCausalLM",
            "MistralForCausalLM",
            "Ministral3ForCausalLM",
            "Olmo2ForCausalLM",
            "OlmoeForCausalLM",
            "Qwen2ForCausalLM",
            "Qwen3ForCausalLM",
            "Qwen3MoeForCausalLM",
            "GraniteForCausalLM",
            "GraniteMoeForCausalLM",
            "Phi3ForCausalLM",
            "SmolLM3ForCausalLM",
        ],
        Reference.llama,
    ),
    **dict.fromkeys(SWITCHES, plain),
    "OpenELMForCausalLM": Reference.openelm,
    "Starcoder2ForCausalLM": Reference.starcoder2,
    "PhiForCausalLM": Reference.starcoder2,
    "GPTNeoXForCausalLM": gptneox,
    "FalconForCausalLM": falcon,
    "GPT2LMHeadModel": Reference.gpt2,
    "Glm5NextForConditionalGeneration": glm5_next,
    "GptOssForCausalLM": gpt_oss,
    "DeepseekV4ForCausalLM": deepseek4,
    "Gemma2ForCausalLM": Reference.gemma,
    "Gemma3ForCausalLM": Reference.gemma,
    "RecurrentGemmaForCausalLM": Reference.recurrent_gemma,
    "Rwkv6ForCausalLM": lambda model, ids: rwkv6(model.c, model.t, ids),
    "RWKV6Qwen2ForCausalLM": lambda model, ids: rwkv6_qwen2(model.c, model.t, ids),
    "RWKV7ForCausalLM": lambda model, ids: rwkv7(model.c, model.t, ids),
    "RwkvHybridForCausalLM": lambda model, ids: arwkv7(model.c, model.t, ids),
    "DeepseekV2ForCausalLM": deepseek,
    "DeepseekV3ForCausalLM": deepseek,
    "KimiK3ForConditionalGeneration": kimi_k3,
    "KimiLinearForCausalLM": kimi_linear,
    **dict.fromkeys(["MiniMaxForCausalLM", "MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM"], minimax),
    "BailingHybridForCausalLM": ling,
    "OlmoHybridForCausalLM": olmo_hybrid,
    "Phi4FlashForCausalLM": phi4flash,
    "Plamo2ForCausalLM": plamo2,
    "xLSTMForCausalLM": xlstm,
    "ZambaForCausalLM": zamba,
    "Zamba2ForCausalLM": zamba,
    "ZayaForCausalLM": zaya,
    "Qwen3NextForCausalLM": Reference.qwen3_next,
    "Qwen3_5ForCausalLM": Reference.qwen3_next,
    "Qwen3_5MoeForCausalLM": Reference.qwen3_next,
    **merged("twins"),
}
