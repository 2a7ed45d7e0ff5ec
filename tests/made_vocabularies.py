"""Small made-up vocabularies of the kinds llama and gpt2, as GGUF files."""

from typing import Any

import numpy as np
from reference.tokenizer_files import FakeGGUF

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
A, B, C, AB, SP_AB, SP_A, SP = 260, 261, 262, 263, 264, 265, 259


def alphabet() -> dict[int, str]:
    """GPT-2's byte alphabet, written independently of the product."""
    good = set(range(0x21, 0x7F)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
    spelled, extra = {}, 0
    for byte in range(256):
        spelled[byte] = chr(byte) if byte in good else chr(256 + extra)
        extra += byte not in good
    return spelled


def spm(**changes: Any) -> FakeGGUF:
    """unk, <s>, </s>, 256 bytes, a few words, two special tokens, padding."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    scores = [0.0] * len(tokens)
    words = ["▁", "a", "b", "c", "ab", "▁ab", "▁a", "▁▁"]
    tokens += [*words, "<|user|>", "<note>", "[PAD269]"]
    types += [*[NORMAL] * len(words), CONTROL, USER, UNUSED]
    scores += [-float(i) for i in range(len(words))] + [0.0, 0.0, 0.0]
    metadata = {"model": "llama", "tokens": tokens, "token_type": types, "scores": np.array(scores, np.float32)}
    merged = {key: value for key, value in (metadata | changes).items() if value is not None}
    return FakeGGUF({f"tokenizer.ggml.{key}": value for key, value in merged.items()})


def gpt2(**changes: Any) -> FakeGGUF:
    spelled = alphabet()
    tokens = [*spelled.values(), "ab", "Ġab", "<|user|>", "<|im_end|>", "<note>", "  ", "[PAD262]"]
    types = [*[NORMAL] * 258, CONTROL, CONTROL, USER, USER, UNUSED]
    metadata = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": types, "merges": ["a b", "Ġ ab"]}
    merged = {key: value for key, value in (metadata | changes).items() if value is not None}
    return FakeGGUF({f"tokenizer.ggml.{key}": value for key, value in merged.items()})
