"""Special tokens that depend on the adjacent text. tests/property/test_added_tokens.py compares with `tokenizers`."""

from collections.abc import Callable
from typing import Any

import pytest
from made_vocabularies import CONTROL, SP_A, gpt2, spm
from reference.tokenizer_files import FakeGGUF

from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.infer.text.tokenizer.special import SpecialMatcher, Surroundings
from hybrid.quant.ggml.errors import TokenizerError

LSTRIP, RSTRIP, WORD = (f"hybrid.tokenizer.{name}_token_ids" for name in ("lstrip", "rstrip", "single_word"))
MASK, END = 1, 2


def split(text: str, **near: set[int]) -> list[str | int]:
    surroundings = Surroundings(**{name: frozenset(ids) for name, ids in near.items()})
    return list(SpecialMatcher([("<m>", MASK), ("<e>", END)], surroundings).split(text))


def test_white_space_beside_a_token() -> None:
    text = "a \u3000\n<m> \t<e>  b\x1c<m>"
    assert split(text) == ["a \u3000\n", MASK, " \t", END, "  b\x1c", MASK]
    assert split(text, before={MASK}) == ["a", MASK, " \t", END, "  b\x1c", MASK]
    assert split(text, before={END}, after={END}) == ["a \u3000\n", MASK, END, "b\x1c", MASK]
    assert split(text, after={MASK}, before={END}) == ["a \u3000\n", MASK, END, "  b\x1c", MASK]
    assert split("  <m>  ", before={MASK}, after={MASK}) == [MASK]


@pytest.mark.parametrize("text", ["a<m>", "<m>_", "1<m>", "<m>\u0301", "<m>\u203f", "\u24b6<m>"])
def test_a_token_inside_a_word_is_text(text: str) -> None:
    assert split(text, words={MASK}) == [text]
    assert MASK in split(text, words={END})


@pytest.mark.parametrize("text", ["<m>", "-<m> a", "²<m>", "<e><m><e>"])
def test_a_token_that_is_a_word(text: str) -> None:
    assert MASK in split(text, words={MASK})


@pytest.mark.parametrize("make", [gpt2, spm])
def test_every_kind_reads_the_keys(make: Callable[..., FakeGGUF]) -> None:
    """The keys count for control tokens and for tokens that are found in any text."""
    gguf = make()
    user, note = (gguf.metadata["tokenizer.ggml.tokens"].index(text) for text in ("<|user|>", "<note>"))
    text = "a <note> \t<|user|> \n<note>a"
    plain = load_tokenizer(make()).encode(text, add_special=False, parse_special=True)
    gguf.metadata |= {LSTRIP: [note], RSTRIP: [user]}
    a = plain[0]
    ids = load_tokenizer(gguf).encode(text, add_special=False, parse_special=True)
    assert ids[:2] == [a, note] and ids[-3:-1] == [user, note] and len(ids) < len(plain)
    gguf.metadata[WORD] = [note]
    ids = load_tokenizer(gguf).encode("a<note>", add_special=False)
    assert note not in ids and load_tokenizer(gguf).decode(ids) == "a<note>"
    assert note in load_tokenizer(gguf).encode("a <note>", add_special=False)
    gguf.metadata[RSTRIP] = [10**6]
    with pytest.raises(TokenizerError, match=f"{RSTRIP} has 1000000, but the vocabulary has"):
        load_tokenizer(gguf)


@pytest.mark.parametrize(
    ("make", "metadata", "strips"),
    [
        (spm, {"general.name": "Phi-3 mini"}, "after"),
        (spm, {"general.name": "phi3"}, "after"),
        (spm, {"general.name": "phi3", LSTRIP: []}, ""),
        (spm, {"general.name": "Phi 3"}, ""),
        (gpt2, {"tokenizer.ggml.pre": "jina-v2-code"}, "before"),
        (gpt2, {"general.architecture": "jina-bert-v3"}, "before"),
        (gpt2, {"general.name": "Modern-BERT base"}, "before"),
    ],
)
def test_what_llama_cpp_concludes_from_names(
    make: Callable[..., FakeGGUF], metadata: dict[str, Any], strips: str
) -> None:
    """For files without our keys, which llama.cpp's converter does not write."""
    gguf = make()
    tokens = gguf.metadata["tokenizer.ggml.tokens"]
    at = tokens.index("<|user|>")
    tokens[at] = {"before": "[MASK]" if "general.name" in metadata else "<mask>"}.get(strips, "<|user|>")
    assert gguf.metadata["tokenizer.ggml.token_type"][at] == CONTROL
    gguf.metadata |= metadata
    near = load_tokenizer(gguf).vocabulary.near
    assert (at in near.before, at in near.after) == (strips == "before", strips == "after")
    assert make is gpt2 or not near.after & {0, 1}, "not <unk> and <s>"


def test_phi_3_as_it_is_asked() -> None:
    tokenizer = load_tokenizer(spm())
    assert len(tokenizer.encode("<|user|>\na", add_special=False, parse_special=True)) == 4
    gguf = spm()
    gguf.metadata["general.name"] = "Phi3"
    assert load_tokenizer(gguf).encode("<|user|>\na", add_special=False, parse_special=True) == [267, SP_A]
