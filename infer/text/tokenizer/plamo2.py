"""Kind `plamo2`: pieces of characters with scores. The split with the least cost is taken, as in unigram models; other
characters become bytes. Of pfnet, PLaMo 2 (arXiv:2509.04897)"""

import math

from hybrid.quant.ggml.errors import TokenizerError
from hybrid.quant.ggml.token_types import TokenType

from .base import Place, Tokenizer
from .sentencepiece_model import byte_tokens
from .vocabulary import Vocabulary

SCALE = 1e4  # costs are scores times this, rounded to integers
UNKNOWN_COST = 10_000_000  # of a character spelled in bytes
MOST_COST = 20_000_000  # pieces of this cost are never taken
_PIECES = (TokenType.NORMAL, TokenType.USER_DEFINED)


class Plamo2Tokenizer(Tokenizer):
    """Costs are the same as in llama.cpp and the model's own code, to the last digit that a file has. There the text of
    a control token always becomes that token; here only with parse_special. A U+FEFF at the beginning is kept."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        if vocabulary.scores is None:
            raise TokenizerError(f"{vocabulary.source}: tokenizer.ggml.scores is missing. Convert the model again.")
        super().__init__(vocabulary)
        self._byte_of = byte_tokens(vocabulary)
        if not self._byte_of:
            raise TokenizerError(
                f"{vocabulary.source}: no token is of type BYTE, expected one for every byte. Convert the model again."
            )
        self._of_byte = {byte: token for token, byte in self._byte_of.items()}
        # every prefix of a piece -> (cost, id) of the piece that it is, or None
        self._starts: dict[str, tuple[int, int] | None] = {}
        for token in vocabulary.of_type(*_PIECES):
            text = vocabulary.tokens[token]
            if token in self._control or not text:
                continue
            for end in range(1, len(text)):
                self._starts.setdefault(text[:end], None)
            cost = _cost(float(vocabulary.scores[token]))
            self._starts[text] = (cost, token) if cost < MOST_COST else None  # of equal texts the last is used

    def _encode_text(self, text: str, after: Place) -> list[int]:
        n, starts = len(text), self._starts
        costs = [0] * (n + 1)  # least cost of text[i:]
        taken: list[tuple[int, int]] = [(1, -1)] * n  # number of characters, and the piece; -1: bytes
        for i in range(n - 1, -1, -1):
            least, end, best = costs[i + 1] + UNKNOWN_COST, i + 1, (1, -1)
            while end <= n and (start := text[i:end]) in starts:
                piece = starts[start]
                # at equal cost the longest piece
                if piece is not None and (cost := costs[end] + piece[0]) <= least:
                    least, best = cost, (end - i, piece[1])
                end += 1
            costs[i], taken[i] = least, best
        ids: list[int] = []
        at = 0
        while at < n:
            length, token = taken[at]
            ids.extend([token] if token >= 0 else [self._of_byte[byte] for byte in text[at].encode()])
            at += length
        return ids

    def _piece(self, token: int) -> bytes:
        byte = self._byte_of.get(token)
        return self.vocabulary.tokens[token].encode() if byte is None else bytes([byte])


def _cost(score: float) -> int:
    """The cost of a score: negated, scaled and rounded, halves away from 0, as in llama.cpp."""
    return -int(math.copysign(math.floor(abs(score) * SCALE + 0.5), score))
