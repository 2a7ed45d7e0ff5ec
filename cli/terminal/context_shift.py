"""The note after a context shift."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel


def tokens_left_out(model: "LoadedModel", n: int) -> str:
    """The note that n tokens were dropped from a full context."""
    left = f"the context of {model.n_ctx} was full: {n} older tokens were left out"
    if not model.memory.is_recurrent:
        return left
    if not model.memory.attention.specs:
        return f"{left}; this model needs none of them, its recurrent state goes on"
    return f"{left} of the attention layers; the recurrent state goes on, it has seen them"
