"""Kind `bert`: WordPiece (Schuster & Nakajima 2012, as in arXiv:1810.04805) through the `tokenizers` library.

GGUF spells the vocabulary with phantom spaces (llama.cpp PR #5423): a token that begins a word has U+2581 in front, one
that continues a word has no `##`, special tokens are unchanged.
"""

from functools import cached_property
from typing import Any

from hybrid.quant.ggml.errors import TokenizerError
from hybrid.quant.ggml.token_types import SPACE, TokenType

from .base import Place, Tokenizer, backend_ids
from .vocabulary import Vocabulary

_CONTINUED = "##"
_MAX_LETTERS = 100  # longer words are unknown
_CLOSE = frozenset(".?!,")  # decoded without a space before them


class WordPieceTokenizer(Tokenizer):
    """Text is cleaned, split at spaces, punctuation and Chinese characters, and perhaps lowercased and stripped of
    accents. Then each word is split into the longest tokens, from left to right, or is unknown as a whole. `encode`
    puts [CLS] before a text and [SEP] after it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self.eos = vocabulary.sep
        self.add_bos, self.add_eos, self.add_sep = self.bos is not None, self.eos is not None, False
        if vocabulary.unk is None:
            raise TokenizerError(
                f"{vocabulary.source}: no tokenizer.ggml.unknown_token_id, the token for unknown words. "
                "Convert the model again."
            )
        self._backend  # noqa: B018  raises for a vocabulary that `tokenizers` refuses, before the first text

    @property
    def drops_leading_space(self) -> str:
        return "one"

    def _encode_text(self, text: str, after: Place) -> list[int]:
        return backend_ids(self._backend, text, f"{self.vocabulary.source}: its tokenizer")

    def _piece(self, token: int) -> bytes:
        text = self.vocabulary.tokens[token]
        if text.startswith(SPACE) and self.vocabulary.type_of(token) == TokenType.NORMAL:
            word = text[1:]
            return (word if word in _CLOSE else " " + word).encode()
        if token == self.vocabulary.unk or self.vocabulary.type_of(token) != TokenType.NORMAL:
            return (" " + text).encode()
        return text.encode()

    @cached_property
    def _backend(self) -> Any:
        """tokenizers.Tokenizer for plain text; our matcher finds special tokens."""
        from tokenizers import Tokenizer as Backend  # 80 ms, not needed to inspect a file
        from tokenizers import models, normalizers, pre_tokenizers

        source = self.vocabulary
        assert source.unk is not None
        vocab: dict[str, int] = {}
        for token, (text, kind) in enumerate(zip(source.tokens, source.types.tolist(), strict=True)):
            if kind in (TokenType.NORMAL, TokenType.UNUSED) and token != source.unk:
                text = text.removeprefix(SPACE) if text.startswith(SPACE) else _CONTINUED + text
                vocab.setdefault(text, token)
        # a name that no word equals, because it has a space
        unknown = " unknown"
        vocab[unknown] = source.unk
        backend = Backend(
            models.WordPiece(
                vocab, unk_token=unknown, continuing_subword_prefix=_CONTINUED, max_input_chars_per_word=_MAX_LETTERS
            )
        )
        backend.normalizer = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=True, strip_accents=source.strip_accents, lowercase=source.lowercase
        )
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return backend
