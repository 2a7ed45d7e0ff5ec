"""Tokens of prompts whose answer goes between two texts (fill in the middle), by keys or by their texts, as in
llama.cpp."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# field -> keys after tokenizer.ggml., the later ones of older files; texts of tokens, where no key is there
KEYS = {
    "prefix": ("fim_pre_token_id", "prefix_token_id"),
    "suffix": ("fim_suf_token_id", "suffix_token_id"),
    "middle": ("fim_mid_token_id", "middle_token_id"),
    "pad": ("fim_pad_token_id",),
    "repository": ("fim_rep_token_id",),
    "file": ("fim_sep_token_id",),
}
# Qwen; StarCoder and Granite; DeepSeek; CodeLlama; GLM-4.5; Falcon-H1-Tiny-Coder; Kimi
TEXTS = {
    "prefix": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
               "<|code_prefix|>", "<|prefix|>"),
    "suffix": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
               "<|code_suffix|>", "<|suffix|>"),
    "middle": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
               "<|code_middle|>", "<|middle|>"),
    "pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "repository": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "file": ("<|file_sep|>",),
}  # fmt: skip


@dataclass(frozen=True)
class FillTokens:
    """Before the text before the gap, before the text after it, before the answer; padding; before the name of a
    repository and of a file. None: the vocabulary has no such token."""

    prefix: int | None = None
    suffix: int | None = None
    middle: int | None = None
    pad: int | None = None
    repository: int | None = None
    file: int | None = None

    @property
    def missing(self) -> list[str]:
        """Tokens without which nothing can be filled in."""
        return [name for name in ("prefix", "suffix", "middle") if getattr(self, name) is None]

    @property
    def ends(self) -> set[int]:
        """Tokens that end an answer."""
        return {token for token in (self.pad, self.repository, self.file) if token is not None}


def read_fill_tokens(tokens: Sequence[str], by_key: Callable[[str], int | None]) -> FillTokens:
    """The tokens of a vocabulary. by_key: the token that a key names, or None."""
    found: Mapping[str, int | None] = {name: _named(keys, by_key) for name, keys in KEYS.items()}
    wanted = {text for name, texts in TEXTS.items() if found[name] is None for text in texts}
    ids: dict[str, int] = {}
    for text in wanted.intersection(tokens):
        ids[text] = tokens.index(text)
    by_text = {name: next((ids[text] for text in texts if text in ids), None) for name, texts in TEXTS.items()}
    return FillTokens(**{name: by_text[name] if token is None else token for name, token in found.items()})


def _named(keys: Sequence[str], by_key: Callable[[str], int | None]) -> int | None:
    return next((token for key in reversed(keys) if (token := by_key(key)) is not None), None)
