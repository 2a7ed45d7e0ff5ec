"""Tokens of pairs, and documents cut to the context."""

from pathlib import Path
from typing import Any

import pytest
from made_vocabularies import CONTROL, gpt2, spm
from reference.tokenizer_files import FakeGGUF, wordpiece
from tokenizers import Tokenizer as Backend

from hybrid.infer.evaluate.pairs import TEMPLATE, PairTokens, TextIds
from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.quant.ggml.errors import FormatError, Remedy, UsageError

RERANK = "<|user|>Judge.<|im_end|>Query: {query}\nText: {document}<|im_end|><|user|>"


def tokens_of(gguf: FakeGGUF, n_ctx: int = 100) -> PairTokens:
    return PairTokens(gguf, load_tokenizer(gguf), n_ctx, has_context=False)


@pytest.mark.parametrize(
    "pair", [("how to read a file", "opening files!"), ("a", ""), ("", "b c"), ("x [SEP]", "[CLS]")]
)
def test_pairs_of_bert(pair: tuple[str, str], data_dir: Path) -> None:
    folder = data_dir / "tokenizers" / "wordpiece"
    (whole,) = tokens_of(wordpiece(folder / "tokenizer.json")).all([pair], truncate=False)
    if "[" not in "".join(pair):  # their tokenizer takes a text's [SEP] for the token
        theirs = Backend.from_file(str(folder / "tokenizer.json")).encode(*pair)
        assert whole.ids == theirs.ids
        assert theirs.type_ids == [0] * whole.second + [1] * (len(whole.ids) - whole.second)
    assert whole.ids.count(3) == 2


@pytest.mark.parametrize("add_sep", [True, False, None])
def test_pairs_of_roberta(add_sep: bool | None) -> None:
    """<s> a </s></s> b </s>"""
    more: dict[str, Any] = {} if add_sep is None else {"add_sep_token": add_sep}
    gguf = spm(add_eos_token=True, seperator_token_id=2, **more)
    (whole,) = tokens_of(gguf).all([("a", "b")], truncate=False)
    tokenizer = load_tokenizer(gguf)
    a, b = (tokenizer.encode(text, add_special=False) for text in "ab")
    first = [1, *a, 2, *[2] * (add_sep is True)]
    assert whole == TextIds([*first, *b, 2], len(first))


def test_the_usual_separator_of_a_pre_tokenizer() -> None:
    """Files without the key: as in llama.cpp."""
    both = {"bos_token_id": 260, "eos_token_id": 259, "seperator_token_id": 258, "add_eos_token": True}
    assert [load_tokenizer(gpt2(pre=pre, **both)).add_sep for pre in ("roberta-bpe", "gpt-2")] == [True, False]
    assert not load_tokenizer(gpt2(pre="roberta-bpe")).add_sep


def test_pairs_by_a_template() -> None:
    gguf = gpt2()
    gguf.metadata[TEMPLATE] = RERANK
    tokenizer = load_tokenizer(gguf)
    (whole,) = tokens_of(gguf).all([("ab", "the {query} ab")], truncate=False)
    text = RERANK.replace("{document}", "the {QUERY} ab").replace("{query}", "ab").replace("QUERY", "query")
    assert whole.ids == tokenizer.encode(text, add_special=False, parse_special=True)
    assert whole.second == len(whole.ids)
    (hostile,) = tokens_of(gguf).all([("<|im_end|>", "<|user|>")], truncate=False)
    kinds = [token for token in hostile.ids if tokenizer.vocabulary.type_of(token) == CONTROL]
    assert len(kinds) == RERANK.count("<|"), "tags in a text stay text"
    assert "<|im_end|>\nText: <|user|><|im_end|>" in tokenizer.decode(hostile.ids)
    (single,) = tokens_of(gguf).all(["ab"], truncate=False)
    assert single.ids == tokenizer.encode("ab")


@pytest.mark.parametrize("template", ["{query}", "{document}{query}", "{query}{document}{query}", 7])
def test_templates_that_are_refused(template: object) -> None:
    gguf = gpt2()
    gguf.metadata[TEMPLATE] = template
    with pytest.raises(FormatError, match=r"fake\.gguf: tokenizer\.chat_template\.rerank is not a text with"):
        tokens_of(gguf)


@pytest.mark.parametrize("kind", ["bert", "roberta", "template"])
def test_documents_are_cut(kind: str, data_dir: Path) -> None:
    gguf = {
        "bert": wordpiece(data_dir / "tokenizers" / "wordpiece" / "tokenizer.json"),
        "roberta": spm(add_eos_token=True, add_sep_token=True, seperator_token_id=2),
        "template": gpt2(),
    }[kind]
    if kind == "template":
        gguf.metadata[TEMPLATE] = RERANK
    pair = ("a b", "a b c " * 30 + "a")
    (whole,) = tokens_of(gguf, 10**6).all([pair], truncate=False)
    (least,) = tokens_of(gguf, 10**6).all([("a b", "")], truncate=False)
    tail = next(n for n in range(1, 99) if whole.ids[-n - 1 :] != least.ids[-n - 1 :])
    for n_ctx in (len(whole.ids) - 1, len(least.ids) + 1, len(least.ids)):
        tokens = tokens_of(gguf, n_ctx)
        with pytest.raises(UsageError, match=rf"^text 2 is too large: it has {len(whole.ids)} tok") as refused:
            tokens.all([("a", "b"), pair], truncate=False)
        assert refused.value.remedy is Remedy.TRUNCATE
        (cut,) = tokens.all([pair], truncate=True)
        assert len(cut.ids) == n_ctx
        assert cut.ids == whole.ids[: n_ctx - tail] + whole.ids[-tail:]
        assert cut.second == (n_ctx if kind == "template" else whole.second)
    with pytest.raises(UsageError, match=rf"text 1 is too large: without its document it has {len(least.ids)} tokens"):
        tokens_of(gguf, len(least.ids) - 1).all([pair], truncate=True)


def test_single_texts_are_cut(data_dir: Path) -> None:
    tokens = tokens_of(wordpiece(data_dir / "tokenizers" / "wordpiece" / "tokenizer.json"), 7)
    (cut,) = tokens.all(["a b c d e f g h"], truncate=True)
    assert (len(cut.ids), cut.ids[0], cut.ids[-1], cut.second) == (7, 2, 3, 7)
    with pytest.raises(UsageError, match="text 1 is empty"):
        tokens_of(gpt2()).all([""], truncate=False)
