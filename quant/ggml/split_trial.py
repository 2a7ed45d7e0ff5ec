"""Tries a file's regular expressions that split text before its merges are applied.

The engine behind `tokenizers` backtracks: an expression such as `(a+)+$` takes exponential time on a run of one letter.
The engine gives up after ten million steps, and `tokenizers` panics. So expressions that are not in our table are tried
on texts that make such expressions fail, at conversion and when a model is loaded.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence

from .errors import TokenizerError, shown

MOST_EXPRESSIONS = 32  # a name of our table has at most 6
LONGEST = 1 << 16  # characters, of all of them
SECONDS = 0.5  # of the processor, for one text; expressions of our table take 0.01
SECONDS_IN_ALL = 10.0  # for one expression; one of our table takes 0.1
LENGTHS = (16, 32, 64, 128, 256, 512)  # characters, ascending: a slow expression is found on a short text first

# one or two of each class that expressions tell apart: cases, digits, whitespace, punctuation, scripts, marks, NUL
_CHARACTERS = "aA1 \n\r\t!.-'_一あяاก\u0301\u00a0\u2581\U0001f600\0"
_ENDS = ("", "a", "!", " ", "\n")  # after a run, so that an expression which wants the end of the text fails late
_OWN = 40  # characters of the expression itself that make runs, also
_WRITTEN = (
    200  # characters of the expression that end a text: the engine skips a text without a letter that must be there
)
_PAIRED = 9  # characters of which all pairs alternate


def check(expressions: Sequence[str], source: str) -> None:
    """TokenizerError: an expression is invalid or too slow. source: the file, for the message."""
    length = sum(map(len, expressions))
    if len(expressions) > MOST_EXPRESSIONS or length > LONGEST:
        raise TokenizerError(
            f"{source}: its {len(expressions)} expressions that split text have {length} characters, expected at most "
            f"{MOST_EXPRESSIONS} with {LONGEST} together. Use another tokenizer."
        )
    for expression in expressions:
        why = _fault(expression)
        if why:
            raise TokenizerError(
                f"{source}: the expression {shown(expression)!r} that splits text {why}. Use another tokenizer."
            )


def is_panic(error: BaseException) -> bool:
    """Whether the error is a panic of a Rust library, which is not an Exception in Python."""
    return type(error).__name__ == "PanicException"


def _fault(expression: str) -> str:
    """The fault of an expression, or ""."""
    from tokenizers import Regex, pre_tokenizers  # 80 ms, for few files

    try:
        split = pre_tokenizers.Split(Regex(expression), "isolated")
    except Exception as error:  # `tokenizers` raises plain Exception
        return f"is not valid: {shown(error)}"
    begin = time.thread_time()
    with _without_stderr():
        for text in (text for length in LENGTHS for text in _texts(expression, length)):
            before = time.thread_time()
            try:
                split.pre_tokenize_str(text)
            except BaseException as error:
                if not is_panic(error):
                    raise
                return f"fails on a text of {len(text)} characters ({shown(error)})"
            if time.thread_time() - before > SECONDS:
                return f"takes more than {SECONDS} s for a text of {len(text)} characters"
            if time.thread_time() - begin > SECONDS_IN_ALL:
                return f"takes more than {SECONDS_IN_ALL:g} s for texts of up to {len(text)} characters"
    return ""


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """While open, output of a panic is dropped; the error reports it."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # stderr may be closed
            kept = os.dup(2)
            stack.callback(os.close, kept)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            stack.callback(os.close, nowhere)
            stack.callback(os.dup2, kept, 2)
            os.dup2(nowhere, 2)
        yield


def _texts(expression: str, length: int) -> Iterator[str]:
    """Runs of one character, and of two alternating ones, of about `length` characters."""
    own = [c for c in dict.fromkeys(expression) if c.isalnum()][:_OWN]
    characters = list(dict.fromkeys([*_CHARACTERS, *own]))
    for character in characters:
        for end in (*_ENDS, "\0" + expression[:_WRITTEN]):
            yield character * length + end
    paired = characters[:_PAIRED]
    yield from ((a + b) * (length // 2) for a in paired for b in paired if a != b)
