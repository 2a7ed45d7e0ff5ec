"""Where the messages of a conversation end in its tokens: people come back there, to edit one or to ask again."""

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
FIRST_TOKEN = 256  # characters that are enough to see a text's first token


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
    """Positions in `encoded`, that is `text`, the rendering of `messages`; none of what it has known before.

    render  messages as text, without the prompt for an answer; TemplateError where it does not take them
    most    messages at the end that are looked at; the first one is in any case
    whole   the last message's own end, too: what the prompt for an answer writes behind it may be written otherwise
            when the answer comes back
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
    """See `message_ends`. beginnings: of the conversation."""
    found = set()
    for beginning in beginnings:
        try:
            found.add(common_length(render(beginning), text))
        except TemplateError:
            continue  # not every template takes every beginning of a conversation
    ids, at, n_ids = encoded.ids, encoded.at, len(encoded.known)
    ends = set()
    for end in sorted(end for end in found if end > at):
        more = rendered_ids(tokenizer, text[:end], at)
        same = common_length(more, ids[n_ids : n_ids + len(more)])
        ends.add(n_ids + same)
        # a token ends there; the next part can begin there if it does so with the token that it has in the whole text,
        # where sentencepiece writes a space behind control tokens
        if same == len(more) and rendered_ids(tokenizer, text[: end + FIRST_TOKEN], end)[:1] == ids[n_ids + same :][:1]:
            at, n_ids = end, n_ids + same
    return sorted(ends - {0})
