"""A head that guesses tokens ahead, in float64: from a checkpoint's own names and its config.

The head's block is the layer of a model like its own, whose embedding of token t is what the head makes of the state of
token t and of the embedding of token t + 1; a model's states behind its last norm are the logits of one whose output
matrix changes nothing.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from reference.families import F64, Reference, rms

Tensors = dict[str, NDArray]
EMBEDDING, OUTPUT, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


class ReferenceHead:
    """Of a config and tensors by name."""

    def __init__(self, config: dict[str, Any], tensors: Tensors) -> None:
        self.c, self.t, self.n = config, tensors, config["hidden_size"]
        own = f"model.layers.{config['num_hidden_layers']}."
        of_mtp = "mtp.fc.weight" in tensors
        self.p = "mtp.layers.0." if of_mtp else own
        self.plus = 1.0 if of_mtp else 0.0  # of norms
        self.join, self.token_norm, self.state_norm, self.norm = (
            ("mtp.fc", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm")
            if of_mtp
            else (own + "eh_proj", own + "enorm", own + "hnorm", own + "shared_head.norm")
        )
        if own + "final_layernorm.weight" in tensors:
            self.norm = own + "final_layernorm"
        self.main = EMBEDDING if EMBEDDING in tensors else "model.word_embeddings.weight"
        self.embedding = tensors.get(own + "embed_tokens.weight", tensors[self.main])
        self.output = tensors.get(own + "shared_head.head.weight", tensors.get(OUTPUT, tensors[self.main]))

    def states(self, ids: list[int]) -> F64:
        """Of the model, f64 [tok, n_embd]."""
        return Reference(self.c, {**self.t, OUTPUT: np.eye(self.n)}).logits(ids)

    def foretold(self, ids: list[int], guessed: list[int]) -> F64:
        """Logits of the token behind ids (all but the first: the head reads pairs), and behind each of `guessed` that
        follows: f64 [1 + len(guessed), vocabulary]."""
        states, rows = self.states(ids[:-1]), []
        for i in range(len(guessed) + 1):
            own = self._own_states(states, [*ids[1:], *guessed[:i]])
            states = np.concatenate([states, own[-1:]])
            rows.append(own[-1] @ self.output.T.astype(np.float64))
        return np.stack(rows)

    def _own_states(self, states: F64, ids: list[int]) -> F64:
        """The head's, of these states and of the tokens behind them."""
        eps, t = self.c["rms_norm_eps"], self.t
        token = rms(self.embedding[ids].astype(np.float64), t[self.token_norm + ".weight"] + self.plus, eps)
        state = rms(states, t[self.state_norm + ".weight"] + self.plus, eps)
        x = np.concatenate([token, state], axis=1) @ t[self.join + ".weight"].T.astype(np.float64)
        block = {f"model.layers.0.{name.removeprefix(self.p)}": v for name, v in t.items() if name.startswith(self.p)}
        own = {self.main: x, NORM: t[self.norm + ".weight"], OUTPUT: np.eye(self.n)}
        settings = {**self.c, "num_hidden_layers": 1, "layer_types": ["full_attention"], "full_attention_interval": 1,
                    "layer_group_size": 1}  # fmt: skip
        return Reference(settings, {**block, **own}).logits(list(range(len(ids))))
