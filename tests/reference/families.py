"""Whole models in float64, from a checkpoint's own names and its config: slow and obvious. The results of `convert` and
`infer` for the same checkpoint have to agree with them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from families import merged
from numpy.typing import NDArray
from reference.attention import attention, rope
from reference.mamba import mamba2
from reference.qwen3_next import delta_net
from reference.recurrent import silu
from reference.rope_scaling import scaling

F64 = NDArray[np.float64]


def rms(x: F64, weight: F64 | float, eps: float) -> F64:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


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

    def delta_net(self, h: F64, p: str, act: str = "silu") -> F64:
        return delta_net(self, h, p, act)

    def logits(self, ids: list[int]) -> F64:
        """f64 [tok, vocabulary]"""
        return MODELS[self.c["architectures"][0]](self, ids)

    def head(self, x: F64, embedding: str) -> F64:
        return x @ self.t["lm_head.weight" if "lm_head.weight" in self.t else embedding].T

    def layer_norm(self, x: F64, name: str) -> F64:
        away = x - x.mean(-1, keepdims=True)
        away = away / np.sqrt((away**2).mean(-1, keepdims=True) + self.eps)
        return away * self.t[name + ".weight"] + self.t[name + ".bias"]


MODELS: dict[str, Callable[[Reference, list[int]], F64]] = merged("twins")
