"""Kind `rwkv`, of RWKV's World models: from left to right the longest token that matches the bytes. Peng et al. 2024,
arXiv:2404.05892, appendix H"""

import re

from hybrid.quant.ggml.errors import TokenizerError, shown
from hybrid.quant.ggml.token_types import TokenType

from .base import Place, Tokenizer
from .vocabulary import Vocabulary

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|([tnr\\'\"]))")
_NAMED = {"t": b"\t", "n": b"\n", "r": b"\r", "\\": b"\\", "'": b"'", '"': b'"'}


class RwkvTokenizer(Tokenizer):
    """Tokens are spelled as Python prints bytes: printable ASCII, and \\n, \\t, \\r, \\\\, \\', \\" and \\xff."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        normal = vocabulary.of_type(TokenType.NORMAL)
        self._escaped = frozenset(normal)
        # of equal tokens the last is used, as in llama.cpp
        self._ids = {self._piece(token): token for token in normal}
        self._ids.pop(b"", None)
        lengths: dict[bytes, set[int]] = {}
        for piece in self._ids:
            lengths.setdefault(piece[:2], set()).add(len(piece))
        self._lengths = {start: sorted(inside, reverse=True) for start, inside in lengths.items()}
        absent = next((byte for byte in range(256) if bytes([byte]) not in self._ids), None)
        if absent is not None and vocabulary.unk is None:
            raise TokenizerError(
                f"{vocabulary.source}: no token stands for the byte 0x{absent:02x}, and there is no unknown token. "
                "Convert the model again."
            )

    def _encode_text(self, text: str, after: Place) -> list[int]:
        data, find = text.encode(), self._ids.get
        ids: list[int] = []
        at = 0
        while at < len(data):
            for length in (*self._lengths.get(data[at : at + 2], ()), 1):
                piece = data[at : at + length]
                token = find(piece)
                if token is not None:
                    break
            else:
                token = self.vocabulary.unk
                assert token is not None  # otherwise there is a token for every byte
            ids.append(token)
            at += len(piece)
        return ids

    def _piece(self, token: int) -> bytes:
        text = self.vocabulary.tokens[token]
        if "\\" not in text or token not in self._escaped:
            return text.encode()
        parts: list[bytes] = []
        done = 0
        while (at := text.find("\\", done)) >= 0:
            escape = _ESCAPE.match(text, at)
            if escape is None:
                raise TokenizerError(
                    f"{self.vocabulary.source}: token {token} is spelled {shown(text)}, which has a backslash that "
                    "begins no escape. Convert the model again."
                )
            parts += [text[done:at].encode(), bytes.fromhex(escape[1]) if escape[1] else _NAMED[escape[2]]]
            done = escape.end()
        return b"".join([*parts, text[done:].encode()])
