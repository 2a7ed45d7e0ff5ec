"""Prompts whose answer goes between two texts, in llama-server's form:

    REPOSITORY myproject  FILE name  text ...  FILE filename  PREFIX text-before prompt  SUFFIX text-after  MIDDLE

Long texts are cut where they are farthest from the gap: other files at the beginning of the first one, the text
before the gap at its beginning, the text after it at its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hybrid.quant.ggml.errors import UsageError

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer

# tokens of both texts, llama-server's default of --batch-size, three quarters of them before the gap; with other files
# at most half of a small context
MOST_BESIDE = 2048
USUAL_ANSWER = 128  # tokens of an answer without a limit
REPOSITORY, FILE = "myproject\n", "filename\n"  # llama-server's names
SNIPPET = "\n\n--- snippet ---\n\n"  # between other files, if the vocabulary has no token for that

Given = str | Sequence[int | str]  # a text, or tokens and texts


@dataclass(frozen=True)
class OtherFile:
    """A file, or a part of one, that the model should know."""

    text: str
    name: str = "tmp"


def check_fill(tokenizer: "Tokenizer") -> None:
    """UsageError: the model cannot fill in."""
    if missing := tokenizer.vocabulary.fill.missing:
        tokens = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        raise UsageError(
            f"this model fills in no gaps: its vocabulary has no token for {tokens} (tokenizer.ggml.fim_*_token_id)."
        )


def gap_prompt(
    tokenizer: "Tokenizer", before: Sequence[int], after: Sequence[int], *, suffix_first: bool = False
) -> list[int]:
    """The tokens around a gap."""
    fill = tokenizer.vocabulary.fill
    assert fill.prefix is not None and fill.suffix is not None and fill.middle is not None
    parts = [[fill.prefix, *before], [fill.suffix, *after]]
    bos = [tokenizer.bos] if tokenizer.add_bos and tokenizer.bos is not None else []
    first, second = parts[::-1] if suffix_first else parts
    return [*bos, *first, *second, fill.middle]


def infill_prompt(
    tokenizer: "Tokenizer",
    before: Given,
    after: Given,
    n_ctx: int,
    *,
    prompt: str = "",
    others: Sequence[OtherFile] = (),
    n_predict: int | None = None,
    suffix_first: bool = False,
) -> list[int]:
    """The tokens of a prompt. prompt: the beginning of the line with the gap; n_predict: tokens of the answer.
    UsageError: the model cannot fill in."""
    check_fill(tokenizer)
    answer = min(USUAL_ANSWER if n_predict is None or n_predict < 0 else n_predict, n_ctx // 4)
    line = tokenizer.encode(prompt, add_special=False, parse_special=True)
    room = n_ctx - 2 * answer
    beside = min(MOST_BESIDE, room // 2 if others else room)
    quarter = beside // 4
    earlier, later = mixed_ids(tokenizer, before), mixed_ids(tokenizer, after)
    earlier = earlier[max(0, len(earlier) - 3 * quarter) :]
    later = later[: max(0, quarter - 2 - len(line))]
    extra = _other_files(tokenizer, others)
    around = gap_prompt(tokenizer, [*earlier, *line], later, suffix_first=suffix_first)
    return [*extra[max(0, len(extra) - (room - beside)) :], *around]


def mixed_ids(tokenizer: "Tokenizer", given: Given) -> list[int]:
    """The tokens of a text, in which control tokens are text; or of tokens and texts."""
    parts = [given] if isinstance(given, str) else given
    ids: list[int] = []
    for part in parts:
        ids += [part] if isinstance(part, int) else tokenizer.encode(part, add_special=False)
    return ids


def _other_files(tokenizer: "Tokenizer", others: Sequence[OtherFile]) -> list[int]:
    fill = tokenizer.vocabulary.fill

    def encoded(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False)

    ids = [] if fill.repository is None else [fill.repository, *encoded(REPOSITORY)]
    for other in others:
        ids += encoded(SNIPPET) if fill.file is None else [fill.file, *encoded(f"{other.name}\n")]
        ids += encoded(other.text)
    return ids if fill.file is None else [*ids, fill.file, *encoded(FILE)]
