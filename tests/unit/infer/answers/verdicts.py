"""Whether a text may be an answer of a form."""

from hybrid.infer.answers.constraints import Constraint
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import HybridError


def accepts(constraint: Constraint, tokenizer: Tokenizer, text: str) -> bool:
    """Whether the whole of a text may be an answer."""
    state = constraint.copy()
    try:
        for token in tokenizer.encode(text, add_special=False, continues=True):
            state.accept(token)
    except HybridError:
        return False
    return state.may_end
