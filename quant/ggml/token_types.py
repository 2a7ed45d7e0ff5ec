"""Types of tokens, as in `tokenizer.ggml.token_type`."""

from enum import IntEnum

SPACE = "\u2581"  # how sentencepiece spells a space


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`: sentencepiece's numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6
