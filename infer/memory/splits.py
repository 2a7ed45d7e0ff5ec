"""How the tokens of several sequences are divided into ubatches of at most n tokens (llama.cpp PR #13979).

A plan is a list of ubatches, each a list of (sequence, first token, token after the last). The results do not depend on
the plan, to the bit. The kernels walk sequence by sequence, so `split_simple`, which fills every ubatch, is used; the
others are there for code that needs their shapes.
"""

from collections.abc import Callable, Iterator, Sequence

from .picture_tokens import Ids, outside, runs

Stretch = tuple[int, int, int]  # (sequence, first token, token after the last)
Plan = Iterator[list[Stretch]]


def split_simple(lengths: Sequence[int], n: int) -> Plan:
    """Full ubatches: sequence after sequence, split wherever an ubatch ends."""
    pieces: list[Stretch] = []
    room = n
    for i, length in enumerate(lengths):
        begin = 0
        while begin < length:
            end = min(length, begin + room)
            pieces.append((i, begin, end))
            room -= end - begin
            begin = end
            if not room:
                yield pieces
                pieces, room = [], n
    if pieces:
        yield pieces


def split_equal(lengths: Sequence[int], n: int) -> Plan:
    """The same number of tokens from every sequence that has any left.

    16, 7, 1 and 1 tokens make 4 x 1, 2 x 6 and 1 x 9.
    """
    begun = [0] * len(lengths)
    while left := [i for i, length in enumerate(lengths) if begun[i] < length][:n]:
        step = min(n // len(left), min(lengths[i] - begun[i] for i in left))
        yield [(i, begun[i], begun[i] + step) for i in left]
        for i in left:
            begun[i] += step


def split_seq(lengths: Sequence[int], n: int) -> Plan:
    """One sequence at a time."""
    for i, length in enumerate(lengths):
        for begin in range(0, length, n):
            yield [(i, begin, min(length, begin + n))]


def split_whole(texts: Sequence[Ids], n: int) -> Plan:
    """`split_simple` that splits no picture: one that is longer than n gets a longer ubatch."""
    pieces: list[Stretch] = []
    room = n = max([n, *(end - begin for ids in texts for begin, end in runs(ids))])
    for i, ids in enumerate(texts):
        begin = 0
        while begin < len(ids):
            end = outside(ids, min(len(ids), begin + room))
            if end > begin:
                pieces.append((i, begin, end))
            room -= end - begin
            if end < len(ids):
                yield pieces
                pieces, room = [], n
            begin = end
    if pieces:
        yield pieces


SPLITS: dict[str, Callable[[Sequence[int], int], Plan]] = {
    "simple": split_simple,
    "equal": split_equal,
    "seq": split_seq,
}
