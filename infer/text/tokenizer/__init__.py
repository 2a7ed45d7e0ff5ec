"""Tokenizers from GGUF metadata alone.

tok = load_tokenizer(gguf)
ids = tok.encode("Hello", add_special=True, parse_special=False)
tok.decode(ids)
"""

from hybrid.quant.ggml.errors import UnsupportedError, shown
from hybrid.quant.ggml.token_types import TokenType

from .base import StreamDecoder, Tokenizer
from .vocabulary import DEFAULTS, MetadataFile, Vocabulary, assumptions, read_vocabulary

__all__ = [
    "MetadataFile",
    "StreamDecoder",
    "TokenType",
    "Tokenizer",
    "Vocabulary",
    "assumptions",
    "load_tokenizer",
    "read_vocabulary",
]


def load_tokenizer(gguf: MetadataFile) -> Tokenizer:
    """The tokenizer of an open GGUF file (or anything with `.path` and `.metadata`).

    Raises TokenizerError if the vocabulary is missing or contradicts itself, UnsupportedError for an unknown kind.
    """
    vocabulary = read_vocabulary(gguf)
    if vocabulary.model not in DEFAULTS:
        raise UnsupportedError(
            f"{vocabulary.source}: tokenizer kind {shown(vocabulary.model)} is not supported, "
            f"expected {', '.join(DEFAULTS)}."
        )
    if vocabulary.model in ("gpt2", "gemma4"):
        from .bpe import BPETokenizer

        return BPETokenizer(vocabulary)
    if vocabulary.model == "bert":
        from .wordpiece import WordPieceTokenizer

        return WordPieceTokenizer(vocabulary)
    if vocabulary.model == "rwkv":
        from .rwkv import RwkvTokenizer

        return RwkvTokenizer(vocabulary)
    if vocabulary.model == "plamo2":
        from .plamo2 import Plamo2Tokenizer

        return Plamo2Tokenizer(vocabulary)
    from .sentencepiece_model import SentencePieceTokenizer

    return SentencePieceTokenizer(vocabulary)
