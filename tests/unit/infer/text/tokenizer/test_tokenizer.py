"""Tokenizers over small made-up vocabularies: special tokens, flags, bytes, damaged metadata."""

import time
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_vocabularies import (
    AB,
    BYTE,
    CONTROL,
    NORMAL,
    SP,
    SP_A,
    SP_AB,
    UNKNOWN,
    UNUSED,
    USER,
    A,
    B,
    C,
    alphabet,
    gpt2,
    spm,
)
from reference.tokenizer_files import FakeGGUF

from hybrid.infer.text.tokenizer import Tokenizer, assumptions, load_tokenizer
from hybrid.infer.text.tokenizer.special import SpecialMatcher
from hybrid.quant.ggml.errors import TokenizerError, UnsupportedError


@pytest.fixture(scope="module")
def llama() -> Tokenizer:
    return load_tokenizer(spm())


@pytest.fixture(scope="module")
def bytes_bpe() -> Tokenizer:
    return load_tokenizer(gpt2())


def test_score_driven_merges_and_flags(llama: Tokenizer) -> None:
    assert llama.encode("ab") == [1, SP_AB], "first ab (-4), then ▁ab (-5); ▁a (-6) comes too late"
    assert llama.encode("cab", add_special=False) == [SP, C, AB]
    assert llama.encode("") == [1]
    assert (llama.kind, llama.n_vocab, llama.bos, llama.eos, llama.add_bos, llama.add_eos) == (
        "llama",
        270,
        1,
        2,
        True,
        False,
    )
    both = load_tokenizer(spm(add_eos_token=True, add_bos_token=False))
    assert both.encode("c") == [SP, C, 2]


def test_bytes_stand_in_for_what_has_no_token(llama: Tokenizer) -> None:
    ids = llama.encode("é", add_special=False)
    assert ids == [SP, 3 + 0xC3, 3 + 0xA9]
    assert llama.decode(ids) == "é"
    assert llama.piece(3 + 0xC3) == b"\xc3"


def test_the_leading_space_goes_at_the_beginning_only(llama: Tokenizer) -> None:
    assert llama.decode([SP_A, SP_A]) == "a a"
    assert llama.decode([1, SP_A]) == "<s>a"
    assert llama.decode([1, SP_A], skip_special=True) == "a"
    stream = llama.stream()
    assert stream.push(SP_A) == " a", "a stream goes on in a text: its first space counts"
    assert llama.decode([SP, SP_A]) == " a", "one space is the tokenizer's, the second the text's"
    assert load_tokenizer(spm(add_space_prefix=False)).decode([SP_A]) == " a"
    assert load_tokenizer(spm(remove_extra_whitespaces=True)).decode([SP, SP, SP_A]) == "a"
    assert llama.decode([0, SP_A]) == " \u2047  a"


def test_text_that_goes_on(llama: Tokenizer, bytes_bpe: Tokenizer) -> None:
    assert llama.encode("ab", continues=True) == [AB]
    assert llama.encode(" ab", continues=True) == [SP_AB]
    stripping = load_tokenizer(spm(remove_extra_whitespaces=True))
    assert (stripping.encode(" ab", continues=True), stripping.encode("ab", continues=True)) == ([SP_AB], [AB])
    assert bytes_bpe.encode(" ab", continues=True) == [257]
    assert load_tokenizer(gpt2(add_space_prefix=True)).encode("ab", continues=True) == [256]


def test_special_tokens_in_text(llama: Tokenizer) -> None:
    text = "<|user|>a<|user|> a<note>a"
    plain = llama.encode(text, add_special=False)
    assert 267 not in plain
    assert plain.count(268) == 1, "user-defined tokens are always found"
    parsed = llama.encode(text, add_special=False, parse_special=True)
    assert parsed == [267, SP_A, 267, SP_A, 268, A], "a space before a word, none before a space, none after <note>"
    assert llama.encode("</s>", add_special=False, parse_special=True) == [2]


def test_special_tokens_in_text_byte_level(bytes_bpe: Tokenizer) -> None:
    text = "ab<|user|>  ab<note>"
    assert bytes_bpe.encode(text, parse_special=True) == [256, 258, 261, 256, 260]
    plain = bytes_bpe.encode(text)
    assert 258 not in plain
    assert plain[-1] == 260
    for ids in (plain, bytes_bpe.encode(text, parse_special=True)):
        assert bytes_bpe.decode(ids) == text
    assert bytes_bpe.decode([256, 258, 261], skip_special=True) == "ab  "


def test_end_of_generation() -> None:
    tok = load_tokenizer(gpt2(eos_token_id=3, bos_token_id=4))
    assert (tok.eos, tok.eot, tok.eog) == (3, 259, {3, 259})
    assert tok.is_eog(259)
    assert not tok.is_eog(258)
    assert tok.is_control(3), "a token that ends the text is no text"
    normal = gpt2()
    normal.metadata["tokenizer.ggml.token_type"][259] = NORMAL
    assert load_tokenizer(normal).is_eog(259), "converters leave <|im_end|> NORMAL"
    tokens = spm().metadata["tokenizer.ggml.tokens"]
    tokens[A] = "</s>"
    tokens[2] = "<end>"
    assert load_tokenizer(spm(tokens=tokens)).eog == {2}, "a NORMAL </s> is HTML"


@pytest.mark.parametrize("make", [gpt2, spm])
def test_what_ends_an_answer_is_no_text_whatever_its_type(make: Callable[..., FakeGGUF]) -> None:
    """Gemma 4's <|tool_response> and Phi-3's </s> are USER_DEFINED in llama.cpp's files, but control tokens to
    llama.cpp."""
    gguf = make()
    tokens, types = gguf.metadata["tokenizer.ggml.tokens"], gguf.metadata["tokenizer.ggml.token_type"]
    i = tokens.index("<note>")
    tokens[i] = "<|tool_response>"
    assert types[i] == USER
    tok = load_tokenizer(gguf)
    assert tok.is_eog(i)
    assert i not in tok.encode("a<|tool_response>b")
    assert i in tok.encode("a<|tool_response>b", parse_special=True)


@pytest.mark.parametrize(
    ("texts", "ending"),
    [
        (["<|return|>", "<|call|>", "<|end|>"], ["<|return|>", "<|call|>"]),
        (["<|flush|>", "<|calls|>", "<|end|>"], ["<|flush|>", "<|calls|>"]),
        (["<|flush|>", "<|return|>", "<|end|>"], ["<|flush|>", "<|return|>", "<|end|>"]),
        (["<|tool_response>", "<turn|>", "</s>"], ["<|tool_response>", "<turn|>"]),
        (["</s>", "<turn|>"], ["</s>", "<turn|>"]),
        (["[e~["], ["[e~["]),
    ],
)
def test_which_tokens_end_an_answer(texts: list[str], ending: list[str]) -> None:
    gguf = gpt2()
    n = len(gguf.metadata["tokenizer.ggml.tokens"])
    gguf.metadata["tokenizer.ggml.tokens"] += texts
    gguf.metadata["tokenizer.ggml.token_type"] += [CONTROL] * len(texts)
    eog = load_tokenizer(gguf).eog - load_tokenizer(gpt2()).eog
    assert eog == {n + texts.index(text) for text in ending}


def test_defaults_of_the_kinds() -> None:
    assert not load_tokenizer(gpt2(bos_token_id=0)).add_bos
    assert load_tokenizer(gpt2(bos_token_id=0, pre="llama-bpe")).add_bos
    assert not load_tokenizer(gpt2(bos_token_id=0, pre="llama-bpe", add_bos_token=False)).add_bos
    assert not load_tokenizer(gpt2(pre="llama-bpe")).add_bos, "no BOS is named"
    unigram = load_tokenizer(spm(model="t5", unknown_token_id=0))
    assert (unigram.bos, unigram.eos, unigram.add_bos, unigram.add_eos) == (None, 1, False, True)
    assert load_tokenizer(spm(bos_token_id=0xFFFFFFFF)).bos is None


def test_ignore_merges_takes_a_whole_piece() -> None:
    assert load_tokenizer(gpt2(pre="llama-bpe", merges=[], ignore_merges=True)).encode("ab") == [256]
    assert load_tokenizer(gpt2(merges=[])).encode("ab") == [ord("a"), ord("b")]


def test_our_own_keys() -> None:
    gguf = gpt2()
    decomposed = "e\u0301"
    plain = load_tokenizer(gguf).encode(decomposed)
    gguf.metadata["hybrid.tokenizer.normalizer"] = "NFC"
    assert load_tokenizer(gguf).encode(decomposed) == load_tokenizer(gguf).encode("é") != plain
    for form, text in (("NFD", "é"), ("NFKC", "ﬁ"), ("NFKD", "ﬁé")):
        gguf.metadata["hybrid.tokenizer.normalizer"] = form
        assert load_tokenizer(gguf).encode(text) == load_tokenizer(gpt2()).encode(unicodedata.normalize(form, text))
    gguf.metadata["hybrid.tokenizer.normalizer"] = "none"
    assert load_tokenizer(gguf).encode(decomposed) == plain
    gguf.metadata["hybrid.tokenizer.normalizer"] = "Lowercase"
    with pytest.raises(UnsupportedError, match=r"normalizer = Lowercase is not supported, expected NFC, NFD, NFKC, N"):
        load_tokenizer(gguf)
    split = gpt2()
    split.metadata["hybrid.tokenizer.split"] = ["a"]
    assert load_tokenizer(split).encode("ab") == [ord("a"), ord("b")]
    split.metadata["hybrid.tokenizer.split"] = ["(a"]
    with pytest.raises(TokenizerError, match=r"hybrid\.tokenizer\.split: the expression '\(a' .* is not valid"):
        load_tokenizer(split)


def test_an_expression_that_backtracks_is_refused_when_the_file_is_loaded() -> None:
    gguf = gpt2()
    gguf.metadata["hybrid.tokenizer.split"] = [r"(\w+)+$"]
    with pytest.raises(TokenizerError, match=r"the expression '\(\\\\w\+\)\+\$' that splits text fails on a text of"):
        load_tokenizer(gguf)


def test_an_expression_that_backtracks_on_one_text_is_an_error() -> None:
    """A panic of the regex library is no Exception and would end a server. Other texts are encoded as before."""
    gguf = gpt2()
    gguf.metadata["hybrid.tokenizer.split"] = [r"((xyz)+)+$"]  # in no trial text
    tok = load_tokenizer(gguf)
    with pytest.raises(TokenizerError, match=r"splitting by '.*xyz.*' fails on a text of 121 characters .*retry-limit"):
        tok.encode("xyz" * 40 + " ")
    assert tok.encode("xy z") == list(b"xy z")


@pytest.mark.parametrize("name", ["mpt", "olmo", "qwen2", "qwen35"])
def test_no_normalization_unless_the_file_says_so(name: str) -> None:
    """Like llama.cpp, which never normalizes before BPE; the tokenizers of these names all normalize to NFC."""
    decomposed = "re\u0301sume\u0301"
    tok = load_tokenizer(gpt2(pre=name))
    assert tok.decode(tok.encode(decomposed)) == decomposed
    file = gpt2(pre=name)
    file.metadata["hybrid.tokenizer.normalizer"] = "NFC"
    tok = load_tokenizer(file)
    assert tok.decode(tok.encode(decomposed)) == "résumé"


def test_space_prefix_of_byte_level() -> None:
    tok = load_tokenizer(gpt2(add_space_prefix=True))
    assert tok.encode("ab") == tok.encode(" ab") == [257]


MERGES = ["▁ a", "a b"]


def gemma4(**changes: Any) -> FakeGGUF:
    """The vocabulary of `spm` as kind gemma4, with newlines: \\n is 270, two of them 271, four 272."""
    tokens = [*spm().metadata["tokenizer.ggml.tokens"], "\n", "\n\n", "\n\n\n\n"]
    types = [*spm().metadata["tokenizer.ggml.token_type"], NORMAL, NORMAL, NORMAL]
    keys = {"model": "gemma4", "tokens": tokens, "token_type": types, "merges": [*MERGES, "\n \n"], "scores": None}
    return spm(**(keys | {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0} | changes))


def test_characters_with_byte_fallback() -> None:
    """BPE without a byte alphabet; U+2581 stands for spaces."""
    tok = load_tokenizer(spm(model="gpt2", pre="sarvam-moe", merges=MERGES, scores=None))
    assert tok.encode(" ab") == [SP_A, B]
    assert tok.decode(tok.encode(" aé")) == " aé"
    tok = load_tokenizer(gemma4(pre="no such"))  # the kind implies its pre-tokenizer
    assert tok.encode(" ab", add_special=False) == [SP_A, B]
    assert tok.encode("é", add_special=False) == [3 + 0xC3, 3 + 0xA9]
    assert tok.decode([SP_A, 3 + 0xC3, 3 + 0xA9, 1, 271]) == " aé<s>\n\n"
    assert not tok.drops_leading_space


def test_runs_of_newlines_of_gemma4() -> None:
    """Merges reach two; a run that is a token is taken whole, other runs go by the merges."""
    tok = load_tokenizer(gemma4())
    runs = {n: tok.encode("a" + "\n" * n + "b", add_special=False)[1:-1] for n in range(1, 6)}
    assert runs == {1: [270], 2: [271], 3: [271, 270], 4: [272], 5: [271, 271, 270]}
    assert tok.encode("\n\n\n\n", add_special=False) == [272]
    by_merges = load_tokenizer(gemma4(model="gpt2", pre="sarvam-moe"))
    assert by_merges.encode("\n\n\n\n", add_special=False) == [271, 271]


def test_gemma4_begins_with_bos_whatever_the_file_says() -> None:
    """As in llama.cpp: the first files of this kind say false, and their models babble without BOS."""
    assert load_tokenizer(gemma4(add_bos_token=False)).encode("a") == [1, A]
    assert load_tokenizer(gemma4(model="gpt2", pre="granite-embed-multi-311m", add_bos_token=False)).add_bos
    assert not load_tokenizer(gemma4(model="gpt2", pre="sarvam-moe")).add_bos
    assert not load_tokenizer(gemma4(bos_token_id=None)).add_bos


def test_characters_without_token_and_bytes_are_unknown() -> None:
    tokens = gemma4().metadata["tokenizer.ggml.tokens"]
    tokens[3 + 0xA9] = "gone"
    assert load_tokenizer(gemma4(tokens=tokens)).encode("aééb", add_special=False) == [A, 0, B]


TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)


@settings(max_examples=150)
@given(TEXTS)
def test_decode_encode_is_the_text(llama: Tokenizer, bytes_bpe: Tokenizer, text: str) -> None:
    assert bytes_bpe.decode(bytes_bpe.encode(text)) == text
    # sentencepiece spells a space U+2581, so that character comes back as one
    assert llama.decode(llama.encode(text, add_special=False)) == text.replace("\u2581", " ")


@settings(max_examples=150)
@given(st.lists(st.integers(0, 261), max_size=12), st.booleans(), st.booleans())
def test_stream_is_decode(llama: Tokenizer, bytes_bpe: Tokenizer, ids: list[int], skip: bool, start: bool) -> None:
    """Any ids, so mostly broken UTF-8; text that was given out is never taken back."""
    for tok in (llama, bytes_bpe):
        stream = tok.stream(skip_special=skip, at_start=True)
        text = "".join([stream.push(token) for token in ids]) + stream.flush()
        assert text == tok.decode(ids, skip_special=skip)
        if not start and not skip and not tok.drops_leading_space:
            assert text == b"".join(map(tok.piece, ids)).decode("utf-8", "replace")


def test_stream_holds_back_unfinished_characters(bytes_bpe: Tokenizer) -> None:
    stream = bytes_bpe.stream()
    assert [stream.push(byte) for byte in "x€".encode()] == ["x", "", "", "€"]
    assert stream.push(0xE2) == ""
    assert stream.push(ord("a")) == "\ufffda"
    assert stream.push(0xE2) == ""
    assert stream.flush() == "\ufffd"


@pytest.mark.parametrize(
    "text", ["\x00", "a\x00b", "\ud800", "\udfff\ud800a", "\ud83d\ude00", "a" * 100_000, " " * 100_000]
)
def test_hostile_texts(llama: Tokenizer, bytes_bpe: Tokenizer, text: str) -> None:
    expected = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    for tok in (llama, bytes_bpe):
        assert tok.decode(tok.encode(text, add_special=False)) == expected


def test_padding_and_ids_outside(llama: Tokenizer) -> None:
    assert llama.piece(269) == b""
    assert llama.decode([A, 269, B]) == "ab"
    for token in (-1, 270):
        with pytest.raises(TokenizerError, match=f"token {token} is outside the vocabulary of 270 tokens"):
            llama.decode([token])
        assert not llama.is_eog(token)


def test_what_sentencepiece_refuses_is_mended() -> None:
    """Texts must be unique and not empty, with one UNKNOWN: rules that converters break."""
    tokens = spm().metadata["tokenizer.ggml.tokens"]
    types = spm().metadata["tokenizer.ggml.token_type"]
    tokens += ["ab", "", "", "<unk>"]
    types += [NORMAL, NORMAL, UNUSED, UNKNOWN]
    scores = np.zeros(len(tokens), np.float32)
    scores[259:267] = -np.arange(8)
    tok = load_tokenizer(spm(tokens=tokens, token_type=types, scores=scores))
    assert tok.encode("ab") == load_tokenizer(spm()).encode("ab")
    control = spm().metadata["tokenizer.ggml.token_type"]
    control[0] = CONTROL  # as llama.cpp's converter writes it from a tokenizer.json
    assert load_tokenizer(spm(token_type=control)).encode("ab") == load_tokenizer(spm()).encode("ab")


def test_user_defined_with_spaces() -> None:
    tokens = spm().metadata["tokenizer.ggml.tokens"]
    tokens[268] = "   "
    tok = load_tokenizer(spm(tokens=tokens))
    assert tok.encode("a   b", add_special=False) == [SP_A, 268, B]
    assert tok.piece(268) == b"   "


@pytest.mark.parametrize("make", [gpt2, gemma4])
def test_merges_that_name_no_token_are_passed_over(make: Callable[..., FakeGGUF]) -> None:
    merges = ["x y", "a b", "nonsense", "", " ", "b ", "  ", "a \n", "\0 \0"]
    tok = load_tokenizer(make(merges=merges))
    assert tok.encode("ab", add_special=False) == [tok.vocabulary.tokens.index("ab")]


def test_tokens_twice() -> None:
    """The first of equal texts counts, in text and in merges."""
    tokens = gemma4().metadata["tokenizer.ggml.tokens"]
    tokens[262] = "ab"
    tok = load_tokenizer(gemma4(tokens=tokens))
    assert tok.encode("ab", add_special=False) == [262]
    assert tok.decode([262, AB]) == "abab"


def test_matcher_is_leftmost_longest() -> None:
    matcher = SpecialMatcher([("a", 1), ("ab", 2), ("abcd", 3), ("bc", 4), ("<x>", 5), ("", 6), ("ab", 7)])
    assert list(matcher.split("abcdabca<x")) == [3, 2, "c", 1, "<x"]
    assert list(matcher.split("zzbcz<x>")) == ["zz", 4, "z", 5]
    assert list(matcher.split("")) == []
    assert list(SpecialMatcher([]).split("a")) == ["a"]
    assert matcher.find("ab") == 2
    assert matcher.find("b") is None


def test_many_special_tokens_are_found_quickly() -> None:
    matcher = SpecialMatcher((f"<unused{i}>", i) for i in range(6000))
    begin = time.process_time()
    parts = list(matcher.split("<unused5999> < <unused" * 5000))
    assert parts[:2] == [5999, " < <unused<unused5999> < <unused"[:10]]
    assert time.process_time() - begin < 2


BAD: list[tuple[FakeGGUF, str]] = [
    (spm(model=None), r"fake\.gguf has no tokenizer \(no tokenizer\.ggml\.model\)"),
    (spm(model=3), r"tokenizer\.ggml\.model is int, expected a string"),
    (spm(tokens=None), r"tokenizer\.ggml\.tokens is missing or empty"),
    (spm(tokens=[]), r"tokenizer\.ggml\.tokens is missing or empty"),
    (spm(tokens=[1, 2]), r"tokenizer\.ggml\.tokens is not an array of strings"),
    (spm(tokens="abc"), r"tokenizer\.ggml\.tokens is not an array of strings"),
    (spm(scores=None), r"tokenizer\.ggml\.scores is missing"),
    (spm(scores=np.zeros(3, np.float32)), r"tokenizer\.ggml\.scores has 3 entries for 270 tokens"),
    (spm(scores=np.full(270, np.nan, np.float32)), r"tokenizer\.ggml\.scores holds NaN or infinity"),
    (spm(scores=["x"] * 270), r"tokenizer\.ggml\.scores is not an array of numbers"),
    (spm(token_type=[1]), r"tokenizer\.ggml\.token_type has 1 entries for 270 tokens"),
    (spm(bos_token_id=270), r"tokenizer\.ggml\.bos_token_id is 270, but the vocabulary has 270 tokens"),
    (spm(bos_token_id="a"), r"tokenizer\.ggml\.bos_token_id is a, expected a token id"),
    (spm(add_bos_token=1), r"tokenizer\.ggml\.add_bos_token is 1, expected true or false"),
    (spm(token_type=[NORMAL] * 270, unknown_token_id=0xFFFFFFFF), r"no token of type UNKNOWN"),
    (spm(token_type=[UNKNOWN, *[BYTE] * 269]), r"token 1 is of type BYTE but spelled <s>"),
    (spm(token_type=[UNKNOWN, CONTROL, CONTROL, *[BYTE] * 255, *[NORMAL] * 12]), r"255 of 256 bytes have a BYTE token"),
    (gpt2(merges=None), r"tokenizer\.ggml\.merges is missing"),
    (gemma4(merges=None), r"tokenizer\.ggml\.merges is missing"),
    (gemma4(merges="a b"), r"tokenizer\.ggml\.merges is not an array of strings"),
    (gemma4(merges=[1, 2]), r"tokenizer\.ggml\.merges is not an array of strings"),
    (gemma4(scores=["x"] * 273), r"tokenizer\.ggml\.scores is not an array of numbers"),
    (gemma4(scores=np.zeros(3, np.float32)), r"tokenizer\.ggml\.scores has 3 entries for 273 tokens"),
    (gemma4(token_type=[1] * 272), r"tokenizer\.ggml\.token_type has 272 entries for 273 tokens"),
    (gemma4(bos_token_id=273), r"tokenizer\.ggml\.bos_token_id is 273, but the vocabulary has 273 tokens"),
    (
        gemma4(tokens=["a"], token_type=None, bos_token_id=None, eos_token_id=None, unknown_token_id=None),
        r"0 of 256 bytes have a token <0x00> to <0xFF> and there is no tokenizer\.ggml\.unknown_token_id",
    ),
    (gpt2(pre="nonesuch"), r"tokenizer\.ggml\.pre = nonesuch is not a pre-tokenizer this version knows"),
    (spm(precompiled_charsmap=np.frombuffer(b"\xff" * 16, np.uint8)), r"sentencepiece refuses the vocabulary"),
]


@pytest.mark.parametrize(("gguf", "message"), BAD, ids=[message[-40:] for _, message in BAD])
def test_damaged_metadata(gguf: FakeGGUF, message: str) -> None:
    with pytest.raises(TokenizerError, match=message) as error:
        load_tokenizer(gguf)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["hybriddna", "no\nsuch"])
def test_unsupported_kinds(kind: str) -> None:
    with pytest.raises(UnsupportedError, match=r"tokenizer kind .* is not supported, expected llama, t5, gpt2"):
        load_tokenizer(spm(model=kind))


@pytest.mark.parametrize("name", ["afmoe"])
def test_pre_tokenizers_that_are_code(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"pre-tokenizer {name} is not supported"):
        load_tokenizer(gpt2(pre=name))


@pytest.mark.soak
def test_loading_is_quick() -> None:
    """A vocabulary of 65 000 tokens; the goal is 0.5 s of processor time, the margin is for slow machines."""
    words = [f"w{i}" for i in range(65_000)]
    n = 270 + len(words)
    tokens = spm().metadata["tokenizer.ggml.tokens"] + words
    types = spm().metadata["tokenizer.ggml.token_type"] + [NORMAL] * len(words)
    gguf = spm(tokens=tokens, token_type=types, scores=np.zeros(n, np.float32))
    load_tokenizer(spm()), load_tokenizer(gpt2())  # the libraries are imported
    begin = time.process_time()
    load_tokenizer(gguf)
    spent = time.process_time() - begin
    merges = [(a, b) for a in alphabet().values() for b in alphabet().values()][:65_000]
    big = [*gpt2().metadata["tokenizer.ggml.tokens"], *(a + b for a, b in merges if a + b != "ab")]
    gguf = gpt2(tokens=big, token_type=None, merges=[f"{a} {b}" for a, b in merges])
    begin = time.process_time()
    load_tokenizer(gguf)
    assert max(spent, time.process_time() - begin) < 1.5


def test_what_a_file_does_not_say_is_said() -> None:
    assert assumptions(gpt2()) == assumptions(spm()) == []
    (line,) = assumptions(gpt2(pre=None))
    assert "has no tokenizer.ggml.pre: text is split by the rule 'default'" in line
    assert load_tokenizer(gpt2(pre=None)).encode("12345ab") == load_tokenizer(gpt2(pre="default")).encode("12345ab")
    assert assumptions(spm(pre=None)) == [], "this kind does not split text"
    split = gpt2(pre=None)
    split.metadata["hybrid.tokenizer.split"] = ["a"]
    assert assumptions(split) == []
    (line,) = assumptions(spm(token_type=None))
    assert "has no tokenizer.ggml.token_type: all tokens are taken for ordinary text (NORMAL)" in line
    untyped = load_tokenizer(gpt2(token_type=None))
    assert set(untyped.vocabulary.types.tolist()) == {NORMAL} and len(assumptions(gpt2(pre=None, token_type=None))) == 2
