"""Whether two models have the same tokens under the same ids, as a model and its draft must."""

from typing import TYPE_CHECKING

from hybrid.quant.ggml.errors import UsageError, shown

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer


def check_same_vocabulary(a: "Tokenizer", a_name: str, b: "Tokenizer", b_name: str) -> None:
    """Raises UsageError, which says where the draft `a` and the model `b` differ. One may have more rows than the other
    if these are padding.
    """
    said = f"{a_name} cannot guess for {b_name}"
    n = min(a.n_vocab, b.n_vocab)
    for longer, name in ((a, a_name), (b, b_name)):
        beyond = next((i for i in range(n, longer.n_vocab) if not _is_nothing(longer, i)), None)
        if beyond is not None:
            raise _refusal(
                f"{said}: they have {a.n_vocab} and {b.n_vocab} tokens, and token {beyond} of {name} is "
                f"{_named(longer, beyond)}"
            )
    same = a.kind == b.kind and a.vocabulary.tokens[:n] == b.vocabulary.tokens[:n]
    same = same and bool((a.vocabulary.types[:n] == b.vocabulary.types[:n]).all()) and a.eog == b.eog
    for i in range(0 if same else n):
        if not _alike(a, b, i):
            raise _refusal(f"{said}: token {i} is {_named(a, i)} there and {_named(b, i)} here")


def _refusal(text: str) -> UsageError:
    return UsageError(f"{text}. A draft is a smaller model of the same vocabulary, mostly of the same family.")


def _alike(a: "Tokenizer", b: "Tokenizer", i: int) -> bool:
    if _is_nothing(a, i) and _is_nothing(b, i):
        return True
    return a.piece(i) == b.piece(i) and a.is_control(i) == b.is_control(i)


def _is_nothing(tokenizer: "Tokenizer", i: int) -> bool:
    """Whether a row only pads the embedding, or is unused."""
    from hybrid.quant.ggml.token_types import TokenType

    vocabulary = tokenizer.vocabulary
    return vocabulary.is_padding(i) or vocabulary.type_of(i) == TokenType.UNUSED


def _named(tokenizer: "Tokenizer", i: int) -> str:
    if _is_nothing(tokenizer, i):
        return "padding"
    return shown(repr(tokenizer.vocabulary.tokens[i])) + (", a control token," if tokenizer.is_control(i) else "")
