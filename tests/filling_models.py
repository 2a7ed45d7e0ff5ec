"""Tiny models that fill gaps: their weights are random, their vocabularies have tokens of bytes and of gaps."""

from collections.abc import Callable

import gguf_bytes as b
import numpy as np
import tiny_models
from made_vocabularies import alphabet
from tiny_models import Tensor, Tiny

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
CONTEXT = 8192
QWEN = ("prefix", "suffix", "middle", "pad")  # <|fim_prefix|>, ...


def by_text() -> Tiny:
    """With Qwen's tokens: found by their texts, also those of repositories and files."""
    special = ["<|endoftext|>", *(f"<|fim_{name}|>" for name in QWEN), "<|repo_name|>", "<|file_sep|>"]
    tokens = [*alphabet().values(), "in", "Ġin", "int", *special]
    return _tiny(
        tokens,
        [NORMAL] * (len(tokens) - len(special)) + [CONTROL] * len(special),
        model="gpt2",
        pre="gpt-2",
        merges=["i n", "Ġ in", "in t"],
        eos_token_id=tokens.index("<|endoftext|>"),
        add_bos_token=False,
    )


def by_keys() -> Tiny:
    """With a BOS token, sentencepiece's leading space, and keys for three tokens; the texts of others mean nothing."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁in", "in", "t"]
    n_text = len(tokens)
    tokens += ["<before>", "<after>", "<gap>", "<|fim_prefix|>"]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (n_text - 259), *[CONTROL] * 4]
    return _tiny(
        tokens,
        types,
        model="llama",
        scores=[-float(at) for at in range(len(tokens))],
        bos_token_id=1,
        eos_token_id=2,
        fim_pre_token_id=n_text,
        suffix_token_id=n_text + 1,
        fim_mid_token_id=n_text + 2,
    )


def _tiny(tokens: list[str], types: list[int], **keys: object) -> Tiny:
    tiny = tiny_models.llama()
    tiny.set(".context_length", CONTEXT)
    tiny.drop("tokenizer.ggml.scores")
    tiny.drop("tokenizer.ggml.bos_token_id")
    random = np.random.default_rng(7)
    for name in ("token_embd.weight", "output.weight"):
        if name in tiny.tensors:
            shape = (len(tokens), tiny.tensors[name].values.shape[1])
            tiny.tensors[name] = Tensor(0.1 * random.standard_normal(shape).astype(np.float32))
    for key, value in {"tokens": tokens, **keys}.items():
        tiny.set(f"tokenizer.ggml.{key}", value)
    tiny.set("tokenizer.ggml.token_type", types, b.I32)
    return tiny


MODELS: dict[str, Callable[[], Tiny]] = {"by_text": by_text, "by_keys": by_keys}
