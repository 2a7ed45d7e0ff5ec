"""A head that guesses tokens ahead, in float64: from a checkpoint's own names and its config.

The head's block is the layer of a model like its own. The input for token t combines the state of token t with the
embedding of token t + 1. A model's states after its last norm are the logits of a model whose output matrix is the
identity.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from reference import deepseek4, gigachat, qwen4_exp
from reference.families import F64, Reference, rms

Tensors = dict[str, NDArray]
EMBEDDINGS = "model.embed_tokens.weight", "model.word_embeddings.weight", "backbone.embeddings.weight"
OUTPUT, NORM = "lm_head.weight", "model.norm.weight"


class ReferenceHead:
    """A head, made from a config and tensors by name."""

    def __init__(self, config: dict[str, Any], tensors: Tensors) -> None:
        self.c, self.t, self.n = config, tensors, config["hidden_size"]
        self.eps = config.get("rms_norm_eps") or config.get("layer_norm_epsilon") or 1e-5
        self.plus = 1.0 if "mtp.fc.weight" in tensors else 0.0  # added to the weights of norms
        self.main = next(name for name in EMBEDDINGS if name in tensors)
        self.last = NORM  # the model's norm
        self.more: dict[str, Any] = {}  # other settings of the block's model
        own = f"model.layers.{config.get('num_hidden_layers')}."
        # name prefix of the block -> prefix in a model
        self.block = {own: "model.layers.0."}
        self.join, self.token_norm, self.state_norm = (own + part for part in ("eh_proj", "enorm", "hnorm"))
        self.norm = own + ("final_layernorm" if own + "final_layernorm.weight" in tensors else "shared_head.norm")
        if "mtp.fc.weight" in tensors:
            self.block = {"mtp.layers.0.": "model.layers.0."}
            self.join, self.norm = "mtp.fc", "mtp.norm"
            self.token_norm, self.state_norm = "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden"
        elif "mtp.layers.1.final_layernorm.weight" in tensors:  # Nemotron-H: two layers
            self.block = {f"mtp.layers.{i}.": f"backbone.layers.{i}." for i in range(2)}
            self.join, self.token_norm, self.state_norm = (f"mtp.layers.0.{p}" for p in ("eh_proj", "enorm", "hnorm"))
            self.norm, self.last = "mtp.layers.1.final_layernorm", "backbone.norm_f.weight"
            self.more = {"hybrid_override_pattern": "*E", "layers_block_type": None}
        elif "model.mtp_linear_proj.0.weight" in tensors:  # ERNIE, with the model's last norm
            self.block = {"model.mtp_block.0.": "model.layers.0."}
            self.join, self.token_norm, self.state_norm = (
                f"model.mtp_{part}.0" for part in ("linear_proj", "emb_norm", "hidden_norm")
            )
            self.norm = NORM.removesuffix(".weight")
        elif own + "self_attn.indexer.index_kpool_compress_ape" in tensors:  # GLM-5.3-Flash sees all tokens
            self.more = {"index_topk": 1 << 20}
        self.embedding = tensors.get(own + "embed_tokens.weight", tensors[self.main])
        self.output = tensors.get(own + "shared_head.head.weight", tensors.get(OUTPUT, tensors[self.main]))

    def states(self, ids: list[int]) -> F64:
        """The model's states, f64 [tok, n_embd]."""
        return Reference(self.c, {**self.t, OUTPUT: np.eye(self.n)}).logits(ids)

    def foretold(self, ids: list[int], guessed: list[int]) -> F64:
        """Logits of the token after ids (all but the first: the head reads pairs), and after each following token of
        `guessed`: f64 [1 + len(guessed), vocabulary]."""
        states, rows = self.states(ids[:-1]), []
        for i in range(len(guessed) + 1):
            own = self._own_states(states, [*ids[1:], *guessed[:i]])
            states = np.concatenate([states, own[-1:]])
            rows.append(own[-1] @ self.output.T.astype(np.float64))
        return np.stack(rows)

    def _own_states(self, states: F64, ids: list[int]) -> F64:
        """The head's states, from these states and the tokens after them."""
        t = self.t
        token = rms(self.embedding[ids].astype(np.float64), t[self.token_norm + ".weight"] + self.plus, self.eps)
        state = rms(states, t[self.state_norm + ".weight"] + self.plus, self.eps)
        x = np.concatenate([token, state], axis=1) @ t[self.join + ".weight"].T.astype(np.float64)
        block = {
            theirs + name.removeprefix(ours): values
            for ours, theirs in self.block.items()
            for name, values in t.items()
            if name.startswith(ours)
        }
        own = {self.main: x, self.last: t[self.norm + ".weight"], OUTPUT: np.eye(self.n)}
        settings = {
            **self.c,
            "num_hidden_layers": 1,
            "layer_types": ["full_attention"],
            "full_attention_interval": 1,
            "layer_group_size": 1,
            **self.more,
        }
        return Reference(settings, {**block, **own}).logits(list(range(len(ids))))


class HeadOnStreams:
    """A head whose states are residual streams, f64 [tok, stream, n]."""

    def __init__(self, config: dict[str, Any], tensors: Tensors) -> None:
        self.m = Reference(config, tensors)

    def states(self, ids: list[int]) -> F64:
        """The model's states."""
        raise NotImplementedError

    def own_states(self, states: F64, ids: list[int]) -> F64:
        """The head's states, from these states and the tokens after them."""
        raise NotImplementedError

    def logits(self, states: F64) -> F64:
        """Logits of the head's states."""
        raise NotImplementedError

    def foretold(self, ids: list[int], guessed: list[int]) -> F64:
        """Like `ReferenceHead.foretold`."""
        states, rows = self.states(ids[:-1]), []
        for i in range(len(guessed) + 1):
            own = self.own_states(states, [*ids[1:], *guessed[:i]])
            states = np.concatenate([states, own[-1:]])
            rows.append(self.logits(own[-1:])[0])
        return np.stack(rows)


class DeepSeek4Head(HeadOnStreams):
    """Every stream is normalized separately, and the embedding is added to each."""

    def states(self, ids: list[int]) -> F64:
        return deepseek4.streams(self.m, ids)

    def own_states(self, states: F64, ids: list[int]) -> F64:
        m = self.m
        token = m.linear(m.norm(m.t["embed.weight"][ids], "mtp.0.enorm"), "mtp.0.e_proj")
        x = token[:, None] + m.linear(m.norm(states, "mtp.0.hnorm"), "mtp.0.h_proj")
        return deepseek4.layer(m, x, "mtp.0.", deepseek4.WINDOW, None)

    def logits(self, states: F64) -> F64:
        return deepseek4.ended(self.m, states, "mtp.0.hc_head", "mtp.0.norm")


class Qwen4ExpHead(HeadOnStreams):
    """All streams are normalized together, and the embedding is added to each. Attention sees all tokens."""

    def states(self, ids: list[int]) -> F64:
        return qwen4_exp.streams(self.m, ids)

    def own_states(self, states: F64, ids: list[int]) -> F64:
        m = self.m
        token = m.norm(m.t["model.embed_tokens.weight"][ids], "mtp.pre_fc_norm_embedding", 1.0)
        state = m.norm(states.reshape(len(states), -1), "mtp.pre_fc_norm_hidden", 1.0).reshape(states.shape)
        x = m.linear(token, "mtp.fc_embedding")[:, None] + m.linear(state, "mtp.fc_hidden")
        whole = {**m.c, "indexer_budget": m.c["indexer_compress_ratio"] << 20}
        return qwen4_exp.layer(Reference(whole, m.t), x, "mtp.layers.0.")

    def logits(self, states: F64) -> F64:
        return qwen4_exp.ended(self.m, states, "mtp.hyper_connection_mixer.")


class GigaChatHead(HeadOnStreams):
    """Its state is the only stream."""

    def __init__(self, config: dict[str, Any], tensors: Tensors) -> None:
        super().__init__(config, tensors)
        self.p = f"model.layers.{config['num_hidden_layers']}."

    def states(self, ids: list[int]) -> F64:
        return gigachat.stream(self.m, ids)

    def own_states(self, states: F64, ids: list[int]) -> F64:
        m, p = self.m, self.p
        token = gigachat.norm(m, m.t["model.embed_tokens.weight"][ids], p + "enorm")
        x = np.concatenate([token, gigachat.norm(m, states, p + "hnorm")], axis=1)
        return gigachat.layer(m, m.linear(x, p + "eh_proj"), p)

    def logits(self, states: F64) -> F64:
        m, own = self.m, self.p + "shared_head."
        x = gigachat.norm(m, states, own + "norm" if own + "norm.weight" in m.t else "model.norm")
        return m.linear(x, own + "head") if own + "head.weight" in m.t else m.head(x, "model.embed_tokens.weight")


def reference_head(config: dict[str, Any], tensors: Tensors) -> ReferenceHead | HeadOnStreams:
    """The kind of head that the tensors show."""
    if "mtp.0.e_proj.weight" in tensors:
        return DeepSeek4Head(config, tensors)
    if f"model.layers.{config.get('num_hidden_layers')}.enorm.gate_up_projection.weight" in tensors:
        return GigaChatHead(config, tensors)
    return (Qwen4ExpHead if "mtp.fc_hidden.weight" in tensors else ReferenceHead)(config, tensors)
