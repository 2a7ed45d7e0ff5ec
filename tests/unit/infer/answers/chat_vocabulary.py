"""A small vocabulary of words, bytes and tags; tags are spelled, tokens of their own, or control tokens."""

from collections.abc import Sequence

import numpy as np
from reference.tokenizer_files import CONTROL, NORMAL, USER_DEFINED, FakeGGUF

from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer

MARKS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<|tool_call_start|>", "<|tool_call_end|>")
_WORDS = ['{"', '":', '",', '"}', "}}", '": "', "name", "argu", "ments", "true", "null", "ab", "city", "tool", "think"]
_WORDS += ["para", "meter", "func", "tion", "=", "\n", "\n\n", " ", "  ", "call", "_", "1", "23", "(", ")", "[", "]"]


def chat_tokenizer(kind: int = NORMAL, marks: Sequence[str] = MARKS, n_vocab: int = 0) -> Tokenizer:
    """kind: token type of the tags; NORMAL: tags are spelled. n_vocab: smallest number of tokens."""
    words = list(dict.fromkeys([*_WORDS, *(chr(i) for i in range(0x21, 0x7F))]))
    words += [f"word{i}" for i in range(n_vocab - len(words) - 261 - (0 if kind == NORMAL else len(marks)))]
    special = ["<|im_start|>", "<|pad|>", *(marks if kind == CONTROL else ())]
    own = list(marks if kind == USER_DEFINED else ())
    tokens = ["<unk>", "<s>", "</s>", *special, *own, *(f"<0x{i:02X}>" for i in range(256))]
    tokens += [word.replace(" ", "\u2581") for word in words]
    types = [
        2,
        CONTROL,
        CONTROL,
        *[CONTROL] * len(special),
        *[USER_DEFINED] * len(own),
        *[6] * 256,
        *[NORMAL] * len(words),
    ]
    scores = np.array([0.0] * (len(tokens) - len(words)) + [-float(i) for i in range(len(words))], np.float32)
    values = {"model": "llama", "tokens": tokens, "token_type": types, "scores": scores, "add_space_prefix": False}
    values |= {"eos_token_id": 2, "bos_token_id": 1}
    return load_tokenizer(FakeGGUF({f"tokenizer.ggml.{key}": value for key, value in values.items()}))


__all__ = ["CONTROL", "MARKS", "NORMAL", "USER_DEFINED", "chat_tokenizer"]
