"""Probabilities of sampled tokens as llama-server lists them (`completion_probabilities`): plain JSON."""

import math
from collections.abc import Iterable
from typing import Any

from ...text.tokenizer import Tokenizer
from .drawing import TextPiece

LEAST = -3.4028234663852886e38  # stands for minus infinity, which JSON does not have


def listed(tokenizer: Tokenizer, pieces: Iterable[TextPiece], sampled: bool) -> list[dict[str, Any]]:
    """The tokens whose logprobs were requested, each with id, text, bytes, and the most likely tokens at its position.

    sampled  as in `Drawing`; True: `prob` and `top_probs`, after the sampler; False: `logprob` and `top_logprobs`, of
             the model
    """

    def entry(token: int, ln_p: float) -> dict[str, Any]:
        piece = tokenizer.piece(token)
        p = {"prob": math.exp(ln_p)} if sampled else {"logprob": max(ln_p, LEAST)}
        return {"id": token, "token": piece.decode("utf-8", "ignore"), "bytes": list(piece), **p}

    top = "top_probs" if sampled else "top_logprobs"
    return [
        {**entry(piece.id, piece.logprobs.logprob), top: [entry(*pair) for pair in piece.logprobs.top]}
        for piece in pieces
        if piece.id is not None and piece.logprobs is not None
    ]
