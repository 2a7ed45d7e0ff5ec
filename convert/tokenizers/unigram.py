"""Reads a tokenizer.json with a Unigram model (kind t5), Hugging Face's form of sentencepiece's unigram models.

The ids are this file's: XLM-RoBERTa's sentencepiece.bpe.model has other ids.
"""

import binascii
import math
import re
from typing import Any

from hybrid.quant.ggml.errors import TokenizerError, UnsupportedError, shown
from hybrid.quant.ggml.token_types import TokenType
from hybrid.quant.ggml.types import ArrayOf, ValueType

from .pre import flat
from .vocabulary import Vocabulary

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_SPACES = (" {2,}", " +")


def unigram(content: dict[str, Any], source: str) -> Vocabulary:
    """The vocabulary without the added tokens."""
    model = content["model"]
    tokens, scores = _pieces(model.get("vocab"), source)
    unknown = model.get("unk_id")
    if type(unknown) is not int or not 0 <= unknown < len(tokens):
        raise TokenizerError(f"{source}: unk_id = {shown(unknown)} is not one of its tokens. Download it again.")
    is_byte = _BYTE.fullmatch if model.get("byte_fallback") is True else lambda _: None
    types = [int(TokenType.BYTE if is_byte(text) else TokenType.NORMAL) for text in tokens]
    types[unknown] = TokenType.UNKNOWN
    vocabulary = Vocabulary(
        model="t5", pre="default", source=source, tokens=tokens, types=types, scores=scores, ids={"unk": unknown}
    )
    charsmap, removes = b"", False
    for step in flat(content.get("normalizer"), "normalizers", source):
        kind = step.get("type")
        if kind == "Precompiled" and not charsmap:
            charsmap = _decoded(step.get("precompiled_charsmap"), source)
        elif kind == "Replace" and _pattern(step) in _SPACES:
            removes = True
        elif kind != "Strip":
            vocabulary.notes.append(f"the normalizer {shown(kind)} of {source} is not applied")
    prefix = False
    for step in flat(content.get("pre_tokenizer"), "pretokenizers", source):
        kind = step.get("type")
        if kind == "Metaspace":
            prefix = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "") != "never"
        elif kind == "WhitespaceSplit":
            removes = True
        else:
            raise UnsupportedError(f"{source}: Unigram after the pre-tokenizer {shown(kind)} is not supported.")
    vocabulary.more = [
        ("tokenizer.ggml.add_space_prefix", prefix, ValueType.BOOL),
        ("tokenizer.ggml.remove_extra_whitespaces", removes, ValueType.BOOL),
    ]
    if charsmap:
        vocabulary.more.append(("tokenizer.ggml.precompiled_charsmap", charsmap, ArrayOf(ValueType.UINT8)))
    return vocabulary


def _pieces(vocab: Any, source: str) -> tuple[list[str], list[float]]:
    """Texts and scores of a list of pairs."""
    scored = vocab if isinstance(vocab, list) else []
    right = all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], str) for p in scored)
    if not scored or not right:
        raise TokenizerError(f"{source}: model.vocab is not a list of tokens with scores. Download it again.")
    scores = [score for _, score in scored]
    if not all(isinstance(s, int | float) and not isinstance(s, bool) and math.isfinite(s) for s in scores):
        raise TokenizerError(f"{source}: model.vocab has scores that are not numbers. Download it again.")
    return [text for text, _ in scored], [float(s) for s in scores]


def _decoded(text: Any, source: str) -> bytes:
    try:
        return binascii.a2b_base64(text if isinstance(text, str) else "!", strict_mode=True)
    except (binascii.Error, ValueError):
        raise TokenizerError(f"{source}: its precompiled_charsmap is not base64. Download it again.") from None


def _pattern(step: dict[str, Any]) -> Any:
    pattern = step.get("pattern")
    return pattern.get("Regex") if isinstance(pattern, dict) else None
