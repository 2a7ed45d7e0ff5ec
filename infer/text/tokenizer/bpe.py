"""Kinds `gpt2` and `gemma4`: BPE by merges through the `tokenizers` library, after splitting by the pre-tokenizer that
`tokenizer.ggml.pre` names (gemma4: the one of that name)."""

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np

from hybrid.quant.ggml import pretokenizers, split_trial
from hybrid.quant.ggml.errors import TokenizerError, UnsupportedError, shown
from hybrid.quant.ggml.token_types import SPACE, TokenType

from .base import Place, Tokenizer, backend_ids
from .vocabulary import BYTE_TOKEN, Vocabulary

# llama.cpp splits these by special code, not by the regular expressions of the table.
_BY_CODE = frozenset({"afmoe"})

SHORT = 200  # characters of a text whose parts are few enough to list
FEW = 8  # small backends, which together take about as long as the whole one

_NEWLINES = re.compile(r"(\n+)")


_BYTE_OF = {letter: byte for byte, letter in enumerate(pretokenizers.byte_letters())}


class BPETokenizer(Tokenizer):
    """Byte-level BPE (GPT-2 and everything after), or BPE over characters with byte fallback (Gemma 4)."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        name = vocabulary.pre
        if name in _BY_CODE:
            raise UnsupportedError(
                f"{vocabulary.source}: pre-tokenizer {shown(name)} is not supported: regular expressions cannot "
                "express its splitting."
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
        if rule.always_bos or vocabulary.add_bos is None:
            self.add_bos = (rule.always_bos or rule.add_bos) and self.bos is not None
        self._n_small = 0
        self._small: tuple[Any, set[str]] = None, set()  # see `_small_backend`, and the parts of texts that it serves
        # raises for a vocabulary or expressions that `tokenizers` refuses, before the first text
        self._steps if rule.byte_level else self._backend  # noqa: B018

    def _encode_text(self, text: str, after: Place) -> list[int]:
        if self.vocabulary.add_space_prefix and after != "text" and not text.startswith(" "):
            text = " " + text
        if not self._whole_newlines or "\n" not in text:
            return self._plain_ids(text)
        ids: list[int] = []
        for part in filter(None, _NEWLINES.split(text)):
            token = self._whole_newlines.get(part)
            ids += self._plain_ids(part) if token is None else [token]
        return ids

    def _can_be_cut(self, before: str, after: str, over: bytes) -> bool:
        """Whether the rule of the table begins a new piece there; tests check that it then always does. False with a
        file's own expressions, which can be anything."""
        pieces = self._steps[1].pre_tokenize_str
        apart = len(pieces(before)) + len(pieces(after))
        return not self.vocabulary.split and len(pieces(before + after)) == apart

    def _plain_ids(self, text: str) -> list[int]:
        small = None if "_backend" in self.__dict__ else self._small_backend(text)
        return backend_ids(small or self._backend, text, self._splitting)

    @cached_property
    def _splitting(self) -> str:
        """Subject of an error message."""
        return f"{self.vocabulary.source}: splitting by {' and '.join(repr(shown(each)) for each in self._split)}"

    @property
    def _split(self) -> Sequence[str]:
        """Expressions whose matches are isolated, one after the other."""
        return self.vocabulary.split or self._rule.split

    @cached_property
    def _whole_newlines(self) -> dict[str, int]:
        """Runs of newlines that are a token, but not by merges, for rules that take such runs whole."""
        if not self._rule.whole_newlines:
            return {}
        runs: dict[str, int] = {}
        for token, text in enumerate(self.vocabulary.tokens):
            if _NEWLINES.fullmatch(text):
                runs.setdefault(text, token)
        return {run: i for run, i in runs.items() if self._plain_ids(run) != [i]}

    def _piece(self, token: int) -> bytes:
        text = self.vocabulary.tokens[token]
        kind = self.vocabulary.type_of(token)
        if kind not in (TokenType.NORMAL, TokenType.BYTE) or token in self.vocabulary.control_ends:
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

    @property
    def _form(self) -> str | None:
        """The Unicode normalization form that is applied to text first. None if the file does not state one: llama.cpp
        does not normalize text before BPE, whatever the pre-tokenizer."""
        stated = (self.vocabulary.normalizer or "none").upper()
        if stated not in (*pretokenizers.FORMS, "NONE"):
            raise UnsupportedError(
                f"{self.vocabulary.source}: hybrid.tokenizer.normalizer = {shown(self.vocabulary.normalizer)} is not "
                f"supported, expected {', '.join(pretokenizers.FORMS)} or none."
            )
        return None if stated == "NONE" else stated

    def _normalized(self, text: str) -> str:
        from tokenizers import normalizers

        return str(getattr(normalizers, self._form)().normalize_str(text)) if self._form else text

    @cached_property
    def _spelling(self) -> dict[str, Any]:
        """Options of models.BPE for characters without a token: spelled in bytes, or the unknown token. Empty for
        byte-level vocabularies, which have a token for each byte."""
        if self._rule.byte_level:
            return {}
        tokens, unk = set(self.vocabulary.tokens), self.vocabulary.unk
        known = sum(f"<0x{byte:02X}>" in tokens for byte in range(256))
        if known < 256 and unk is None:
            raise TokenizerError(
                f"{self.vocabulary.source}: {known} of 256 bytes have a token <0x00> to <0xFF> and there is no "
                "tokenizer.ggml.unknown_token_id, so that text would be lost. Convert the model again."
            )
        spelling: dict[str, Any] = {"byte_fallback": True}
        return spelling if unk is None else spelling | {"unk_token": self.vocabulary.tokens[unk], "fuse_unk": True}

    @cached_property
    def _steps(self) -> tuple[Any, Any]:
        """What `tokenizers` does with a text before the merges: its normalizer, or None, and its pre-tokenizer."""
        from tokenizers import Regex, normalizers, pre_tokenizers

        rule = self._rule
        steps: list[Any] = [getattr(normalizers, self._form)()] if self._form else []
        if rule.escape_whitespaces:
            steps.append(normalizers.Replace(" ", SPACE))
        split_trial.check(self.vocabulary.split or (), f"{self.vocabulary.source}: hybrid.tokenizer.split")
        splits: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self._split]
        if rule.byte_level:
            splits.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return normalizers.Sequence(steps) if steps else None, pre_tokenizers.Sequence(splits)

    @cached_property
    def _ids(self) -> dict[str, int]:
        """The ids of the tokens that merges can make, the first of equal texts."""
        tokens = self.vocabulary.tokens
        ids = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
        if self._rule.ignore_merges:  # a piece that is a token is taken whole; but text must not become a control token
            ordinary = np.isin(self.vocabulary.types, (TokenType.NORMAL, TokenType.BYTE))
            for token in np.flatnonzero(~ordinary).tolist():
                if ids.get(tokens[token]) == token:
                    del ids[tokens[token]]
        return ids

    def _assembled(self, ids: dict[str, int], merges: list[tuple[str, str]]) -> Any:
        """tokenizers.Tokenizer with these tokens and merges. Merges of other tokens are left out."""
        from tokenizers import Tokenizer as Backend
        from tokenizers import models

        options: dict[str, Any] = {"ignore_merges": self._rule.ignore_merges, **self._spelling}
        try:
            model = models.BPE(ids, merges, **options)
        except Exception:  # `tokenizers` raises plain Exception if a merge names an unknown token
            known = [(a, b) for a, b in merges if a in ids and b in ids and a + b in ids]
            try:
                model = models.BPE(ids, known, **options)
            except Exception as error:
                raise TokenizerError(f"{self.vocabulary.source}: the merges do not fit: {shown(error)}") from None
        backend = Backend(model)
        normalizer, backend.pre_tokenizer = self._steps
        if normalizer is not None:
            backend.normalizer = normalizer
        return backend

    @cached_property
    def _backend(self) -> Any:
        """tokenizers.Tokenizer for plain text; our matcher finds special tokens."""
        return self._assembled(self._ids, list(map(_pair, self.vocabulary.merges or ())))

    @cached_property
    def _merged(self) -> list[str]:
        """The results of the merges; empty if the file's merges have more than one space, or none."""
        merges = "\0".join(self.vocabulary.merges or ())
        results = merges.replace(" ", "").split("\0")
        return results if merges.count(" ") == len(results) == len(self.vocabulary.merges or ()) else []

    def _small_backend(self, text: str) -> Any:
        """Like `_backend`, but only with the tokens and merges that this short text can have; None: take `_backend`.

        `tokenizers` takes 25 ms for a vocabulary of 49 152 tokens and 0.26 s for 152 000, most of a start; a look at
        each merge takes 2 and 6 ms. Merges apply within a piece, so their results are parts of pieces; they keep their
        order, and so their rank.
        """
        if len(text) > SHORT or self._n_small == FEW or not self._rule.byte_level or self.vocabulary.split:
            return None
        normalizer, splitting = self._steps
        normal = text if normalizer is None else normalizer.normalize_str(text)
        pieces = {piece for piece, _ in splitting.pre_tokenize_str(normal)}
        parts = {piece[i:j] for piece in pieces for i in range(len(piece)) for j in range(i + 1, len(piece) + 1)}
        backend, known = self._small
        if not parts <= known and self._merged:
            self._n_small += 1
            parts |= known
            ids = {part: self._ids[part] for part in parts if part in self._ids}
            found = compress(self.vocabulary.merges or (), map(parts.__contains__, self._merged))
            backend = self._assembled(ids, list(map(_pair, found)))
            self._small = backend, parts  # at once: several threads may encode
        return backend


def _pair(merge: str) -> tuple[str, str]:
    i = merge.find(" ", 1)
    return merge[:i], merge[i + 1 :]
