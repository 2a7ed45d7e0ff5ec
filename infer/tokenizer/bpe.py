"""Kind `gpt2`: BPE by merges through the `tokenizers` library, split beforehand as `tokenizer.ggml.pre` says."""

from functools import cached_property
from typing import Any

import numpy as np
from hybrid.quant.ggml import pretokenizers
from hybrid.quant.ggml.errors import TokenizerError, UnsupportedError, shown

from .base import Place, Tokenizer
from .vocabulary import BYTE_TOKEN, SPACE, TokenType, Vocabulary

# llama.cpp splits these two by code of its own; the table's regular expressions only stand for it.
_BY_CODE = frozenset({"kimi-k2", "afmoe"})

# Vocabularies of these names come from repositories whose tokenizer normalizes to NFC (GPT-NeoX, OLMo, Qwen); GGUF has
# no key for it. `hybrid.tokenizer.normalizer`, which our converter writes, goes first.
_NFC = frozenset({"mpt", "olmo", "qwen2", "qwen35"})


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()


class BPETokenizer(Tokenizer):
    """Byte-level BPE (GPT-2 and everything after), or BPE over characters with byte fallback (Gemma 4)."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        name = vocabulary.pre
        if name in _BY_CODE:
            raise UnsupportedError(
                f"{vocabulary.source}: pre-tokenizer {shown(name)} is not supported: its splitting is more than "
                "regular expressions can say."
            )
        rule = pretokenizers.by_name(name)
        if rule is None:
            raise TokenizerError(
                f"{vocabulary.source}: tokenizer.ggml.pre = {shown(name)} is not a pre-tokenizer this version knows. "
                "Convert the model again, with this version."
            )
        if vocabulary.merges is None:
            raise TokenizerError(f"{vocabulary.source}: tokenizer.ggml.merges is missing. Convert the model again.")
        self._rule = rule
        super().__init__(vocabulary)
        if vocabulary.add_bos is None:
            self.add_bos = rule.add_bos and self.bos is not None
        self._backend  # noqa: B018  what `tokenizers` refuses is refused here, not at the first text

    def _encode_text(self, text: str, after: Place) -> list[int]:
        if self.vocabulary.add_space_prefix and after != "text" and not text.startswith(" "):
            text = " " + text
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def _piece(self, token: int) -> bytes:
        text = self.vocabulary.tokens[token]
        kind = self.vocabulary.types[token]
        if kind not in (TokenType.NORMAL, TokenType.BYTE) or token in self.eog:
            return text.encode()
        if not self._rule.byte_level:
            byte = BYTE_TOKEN.fullmatch(text) if kind == TokenType.BYTE else None
            if byte:
                return bytes([int(byte[1], 16)])
            return text.replace(SPACE, " ").encode()
        try:
            return bytes([_BYTE_OF[letter] for letter in text])
        except KeyError:
            return text.encode()  # an added token that the converter left NORMAL

    @cached_property
    def _nfc(self) -> bool:
        stated = self.vocabulary.normalizer
        if stated is None:
            return self.vocabulary.pre in _NFC
        if stated.upper() not in ("NFC", "NONE", ""):
            raise UnsupportedError(
                f"{self.vocabulary.source}: hybrid.tokenizer.normalizer = {shown(stated)} is not supported, "
                "expected NFC or none."
            )
        return stated.upper() == "NFC"

    @cached_property
    def _backend(self) -> Any:
        """tokenizers.Tokenizer for plain text; special tokens are found by us."""
        from tokenizers import Regex, models, normalizers, pre_tokenizers  # 80 ms, not needed to look at a file
        from tokenizers import Tokenizer as Backend

        rule = self._rule
        tokens = self.vocabulary.tokens
        vocab = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))  # of equal texts the first id
        if rule.ignore_merges:  # a piece that is a token is taken whole; text must not spell a control token that way
            for token in np.flatnonzero(~np.isin(self.vocabulary.types, (TokenType.NORMAL, TokenType.BYTE))).tolist():
                if vocab.get(tokens[token]) == token:
                    del vocab[tokens[token]]
        merges = [(merge[:i], merge[i + 1 :]) for merge in self.vocabulary.merges or () for i in (merge.find(" ", 1),)]
        options: dict[str, Any] = {"ignore_merges": rule.ignore_merges, "byte_fallback": not rule.byte_level}
        try:
            model = models.BPE(vocab, merges, **options)
        except Exception:  # `tokenizers` raises plain Exception: a merge names a token that is not there
            known = [(a, b) for a, b in merges if a in vocab and b in vocab and a + b in vocab]
            try:
                model = models.BPE(vocab, known, **options)
            except Exception as error:
                raise TokenizerError(f"{self.vocabulary.source}: the merges do not fit: {shown(error)}") from None
        backend = Backend(model)
        steps: list[Any] = [normalizers.NFC()] if self._nfc else []
        if rule.escape_whitespaces:
            steps.append(normalizers.Replace(" ", SPACE))
        if steps:
            backend.normalizer = normalizers.Sequence(steps)
        splits: list[Any] = []
        for pattern in self.vocabulary.split or rule.split:
            try:
                splits.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
            except Exception as error:  # likewise
                raise TokenizerError(
                    f"{self.vocabulary.source}: hybrid.tokenizer.split has no valid expression: {shown(error)}"
                ) from None
        if rule.byte_level:
            splits.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        backend.pre_tokenizer = pre_tokenizers.Sequence(splits)
        return backend
