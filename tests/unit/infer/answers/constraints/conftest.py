"""A tokenizer with words and bytes, for constraints."""

import numpy as np
import pytest
from reference.tokenizer_files import FakeGGUF

from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Kind llama: bytes, some words of several characters, and three control tokens."""
    words = [
        '"',
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '{"',
        '":',
        '",',
        "true",
        "false",
        "null",
        "ab",
        "abc",
        "name",
        " ",
        "  ",
    ]
    words += [chr(i) for i in range(0x21, 0x7F) if chr(i) not in words]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *(w.replace(" ", "\u2581") for w in words)]
    types = [2, 3, 3, *[6] * 256, *[1] * len(words)]
    scores = np.array([0.0] * 259 + [-float(i) for i in range(len(words))], np.float32)
    values = {"model": "llama", "tokens": tokens, "token_type": types, "scores": scores, "add_space_prefix": False}
    return load_tokenizer(FakeGGUF({f"tokenizer.ggml.{key}": value for key, value in values.items()}))
