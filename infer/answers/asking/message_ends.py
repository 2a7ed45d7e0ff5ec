"""Finds where the messages of a conversation end in its tokens: people return there, to edit one or to ask again."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import TemplateError

from ...faults import SidePath
from ...text.encode import rendered_ids
from .radix_tree import common_length

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer
    from .ledger import Encoded

ENDS = SidePath("where messages end")
FIRST_TOKEN = 256  # characters, enough to see a text's first token


def message_ends(
    tokenizer: "Tokenizer",
    render: Callable[[Sequence[Any]], str],
    messages: Sequence[Any],
    text: str,
    encoded: "Encoded",
    most: int,
    *,
    whole: bool = False,
) -> list[int]:
    """Positions in `encoded`, the tokens of `text`, at which messages end; none within its known tokens.

    render  writes messages as text, without the prompt for an answer; TemplateError: it does not accept them
    most    messages at the end that are located; the first one always is
    whole   also locate the end of the last message: after it, the prompt for an answer may differ from the text of a
            later prompt that has the answer
    """
    parts = sorted({0, 1, *range(max(0, len(messages) - most), len(messages) + whole)})
    return ENDS.run(lambda: _ends(tokenizer, render, [messages[:n] for n in parts], text, encoded), list)


def _ends(
    tokenizer: "Tokenizer",
    render: Callable[[Sequence[Any]], str],
    beginnings: Sequence[Sequence[Any]],
    text: str,
    encoded: "Encoded",
) -> list[int]:
    """See `message_ends`. beginnings: prefixes of the conversation."""
    found = set()
    for beginning in beginnings:
        try:
            found.add(common_length(render(beginning), text))
        except TemplateError:
            continue  # not every template accepts every prefix of a conversation
    ids, at, n_ids = encoded.ids, encoded.at, len(encoded.known)
    ends = set()
    for end in sorted(end for end in found if end > at):
        more = rendered_ids(tokenizer, text[:end], at)
        same = common_length(more, ids[n_ids : n_ids + len(more)])
        ends.add(n_ids + same)
        # A token ends there. The next part can be encoded from there if it begins with the same token as in the whole
        # text: sentencepiece writes a space after control tokens.
        if same == len(more) and rendered_ids(tokenizer, text[: end + FIRST_TOKEN], end)[:1] == ids[n_ids + same :][:1]:
            at, n_ids = end, n_ids + same
    return sorted(ends - {0})
