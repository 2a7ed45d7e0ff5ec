"""A tokenizer for llguidance, made once per vocabulary: it takes half a second for 152 000 tokens."""

import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from hybrid.quant.ggml.token_types import TokenType

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer

_MADE: "WeakKeyDictionary[Tokenizer, Any]" = WeakKeyDictionary()
_LOCK = threading.Lock()


def guide_of(tokenizer: "Tokenizer") -> Any:
    """llguidance's LLTokenizer for a tokenizer."""
    import llguidance

    with _LOCK:
        guide = _MADE.get(tokenizer)
        if guide is None:
            ends = sorted(tokenizer.eog) or None
            guide = _MADE[tokenizer] = llguidance.LLTokenizer(_Words(tokenizer), eos_token=ends)  # type: ignore[arg-type]
        return guide


def special_tokens(tokenizer: "Tokenizer") -> list[int]:
    """The ids that are not text: control and unknown tokens, and rows without a token."""
    unknown = set(tokenizer.vocabulary.of_type(TokenType.UNKNOWN))
    return [i for i in range(tokenizer.n_vocab) if tokenizer.is_control(i) or i in unknown or not tokenizer.piece(i)]


class _Words:
    """The tokens' bytes. Special tokens begin with a byte that UTF-8 never has: grammars allow them only by name."""

    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: "Tokenizer") -> None:
        ids = range(tokenizer.n_vocab)
        self._encode = tokenizer.encode
        pieces = [tokenizer.piece(i) for i in ids]
        self.special_token_ids = special_tokens(tokenizer)
        special = set(self.special_token_ids)
        self.tokens = [b"\xff" + (pieces[i] or b"[%d]" % i) if i in special else pieces[i] for i in ids]
        # without a token that ends a text, an answer ends when nothing can follow
        self.eos_token_id = next(iter(sorted(tokenizer.eog)), tokenizer.eos if tokenizer.eos is not None else 0)
        self.bos_token_id = tokenizer.bos

    def __call__(self, text: str | bytes) -> list[int]:
        given = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return self._encode(given, add_special=False, continues=True)
