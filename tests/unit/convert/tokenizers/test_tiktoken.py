"""tiktoken files: the resulting tokens, merges and special tokens, and refused files. tests/golden/test_tokenizers.py
encodes whole texts."""

import base64
import json
import random
import re
from pathlib import Path

import pytest
from reference import tiktoken_ranks
from reference.tokenizer_files import FakeGGUF

from hybrid.convert.checkpoint import Config
from hybrid.convert.tokenizers import Vocabulary, read_vocabulary
from hybrid.convert.tokenizers.tiktoken import merges
from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.quant.ggml.errors import HybridError, Remedy, TokenizerError
from hybrid.quant.ggml.pretokenizers import byte_letters
from hybrid.quant.ggml.token_types import TokenType

BYTES = [bytes([byte]) for byte in range(256)]
WORDS = [b"ab", b"abc", b" a", b"\xe6\x9c", b"\xe6\x9c\x88"]


def lines(tokens):
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))


@pytest.fixture
def folder(tmp_path):
    """Writes a file of ranks and other JSON files; returns the folder."""

    def write(tokens=(*BYTES, *WORDS), name="tiktoken.model", **files):
        (tmp_path / name).write_bytes(tokens if isinstance(tokens, bytes) else lines(tokens))
        for other, content in files.items():
            (tmp_path / f"{other}.json").write_text(json.dumps(content))
        return tmp_path

    return write


def read(folder: Path, n: int = 300, **config) -> Vocabulary:
    return read_vocabulary(folder, Config(config, "config.json"), n)


def special(**tokens):
    """tokenizer_config.json with special tokens; `_` before the name of a token that is text."""
    decoder = {str(i): {"content": text.strip("_"), "special": text[0] != "_"} for text, i in tokens.items()}
    return {
        "added_tokens_decoder": decoder,
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
    }


def test_kimi(folder):
    config = special(**{"[BOS]": 261, "[EOS]": 262, "_<think>": 265}) | {"bos_token": "[BOS]", "eos_token": "[EOS]"}
    vocab = read(folder(tokenizer_config=config), 600, eos_token_id=265)
    assert (vocab.model, vocab.pre) == ("gpt2", "kimi-k2")
    assert vocab.tokens[:2] == ["Ā", "ā"]
    assert vocab.tokens[256:267] == [
        "ab",
        "abc",
        "Ġa",
        "æľ",
        "æľĪ",
        "[BOS]",
        "[EOS]",
        "<|reserved_token_263|>",
        "<|reserved_token_264|>",
        "<think>",
        "<|reserved_token_266|>",
    ]
    assert vocab.merges == ["a b", "ab c", "Ġ a", "æ ľ", "æľ Ī"]
    assert vocab.types[260:267] == [1, 3, 3, 3, 3, TokenType.USER_DEFINED, 3]
    assert vocab.tokens[261 + 255 :][:2] == ["<|reserved_token_516|>", "[PAD517]"]
    assert vocab.ids == {"bos": 261, "eos": 262}
    assert ("hybrid.tokenizer.normalizer", "none") in [pair[:2] for pair in vocab.more]


def test_no_more_special_tokens_than_the_model_has(folder):
    vocab = read(folder(), 263)
    assert vocab.tokens[260:] == ["æľĪ", "<|reserved_token_261|>", "<|reserved_token_262|>"]
    assert not vocab.notes


def test_hunyuan(folder):
    """Its special tokens are defined in its code, and config.json names a wrong BOS."""
    vocab = read(folder(name="hy.tiktoken", tokenizer_config={"eos_token": "<|eos|>"}), 500, bos_token_id=1)
    assert (vocab.model, vocab.pre) == ("gpt2", "hunyuan")
    assert vocab.tokens[261:267] == ["<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>", "<|extra_0|>"]
    assert (vocab.tokens[470], vocab.types[470], vocab.types[471]) == ("<|extra_204|>", TokenType.CONTROL, 5)
    assert vocab.ids == {"bos": 263, "eos": 264}
    assert ("hybrid.tokenizer.normalizer", "NFC") in [pair[:2] for pair in vocab.more]


def test_the_module_decides_what_a_file_of_any_name_is(folder):
    config = {"auto_map": {"AutoTokenizer": ["someone/else--tokenization_hy.HYTokenizer", None]}}
    assert read(folder(name="tokenizer.model", tokenizer_config=config), 500).pre == "hunyuan"


def test_tokenizer_json_comes_first(folder, tmp_path):
    (tmp_path / "tokenizer.json").write_text(
        json.dumps(
            {
                "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
                "decoder": {"type": "ByteLevel"},
            }
        )
    )
    assert read(folder(), 300).tokens[:2] == ["a", "b"]


@pytest.mark.parametrize("name", ["tokenizer.model", "cl100k_base.tiktoken"])
def test_splitting_that_is_not_known(folder, name):
    with pytest.raises(
        TokenizerError, match=rf"{name} is a file of tiktoken, .* code of the repo.*tokenizer\.json"
    ) as e:
        read(folder(name=name))
    assert e.value.remedy is Remedy.TOKENIZER
    config = {"auto_map": {"AutoTokenizer": ["tokenization_xyz.Tokenizer", None]}}
    with pytest.raises(TokenizerError, match=r"stands in tokenization_xyz\.py, which is not known here and not run"):
        read(folder(name=name, tokenizer_config=config))


BAD = [
    (b"", r"has no token for the byte 0x00"),
    (lines(BYTES[:255]), r"has no token for the byte 0xff"),
    (lines(BYTES) + b"YWI=\n", r"line 257 is YWI=, expected another token in base64.*Download it again"),
    (lines(BYTES) + b"YWI 256\n", r"line 257 is YWI 256, expected"),
    (lines(BYTES) + b"\n", r"line 257 is , expected"),
    (lines([*BYTES, b"ab", b"ab"]), r"line 258 is YWI= 257, expected another token"),
    (lines([*BYTES, b"a" * 1025]), r"line 257 .* of up to 1024 bytes"),
    (lines(BYTES) + b"YWI= 257\n", r"257 tokens, of which none or several have rank 256"),
    (lines(BYTES) + b"YWI= 255\n", r"257 tokens, of which none or several have rank 256"),
    (b"version https://git-lfs.github.com/spec/v1\n", r"line 1 is version https://git-lfs"),
]


@pytest.mark.parametrize(("content", "message"), BAD, ids=range(len(BAD)))
def test_damaged_files(folder, content, message):
    with pytest.raises(TokenizerError, match=message) as error:
        read(folder(content))
    assert "\n" not in str(error.value)


def test_any_damage_is_an_error_of_one_line(folder):
    whole, rng = lines([*BYTES, *WORDS]), random.Random(5)
    for _ in range(200):
        broken = bytearray(whole)
        broken[rng.randrange(len(whole))] = rng.randrange(256)
        try:
            read(folder(bytes(broken)))
        except HybridError as error:
            assert "\n" not in str(error)


def text(token: bytes) -> str:
    return "".join(byte_letters()[byte] for byte in token)


def trained(rng: random.Random, n: int) -> dict[bytes, int]:
    """A vocabulary as training makes it: each token joins two earlier ones."""
    tokens = [bytes([byte]) for byte in range(256)]
    letters = [*b"abcd"]
    parts = [bytes([c]) for c in letters]
    while len(tokens) < 256 + n:
        token = rng.choice(parts) + rng.choice(parts)
        if token not in tokens and len(token) < 12:
            tokens.append(token)
            parts.append(token)
    return {token: rank for rank, token in enumerate(tokens)}


@pytest.mark.parametrize("shuffled", [False, True])
def test_merges_give_what_ranks_give(shuffled):
    """Also for ranks in an order that no training makes, with parts after the whole."""
    rng, whole = random.Random(3), re.compile(r"[a-d]+")
    for _ in range(30):
        ranks = trained(rng, 40)
        if shuffled:
            tokens = list(ranks)
            words = tokens[256:]
            rng.shuffle(words)
            ranks = {token: rank for rank, token in enumerate(tokens[:256] + words)}
        tokens = sorted(ranks, key=ranks.get)
        metadata = {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "kimi-k2",
            "tokenizer.ggml.tokens": [text(token) for token in tokens],
            "tokenizer.ggml.merges": [f"{text(a)} {text(b)}" for a, b in merges({t: ranks[t] for t in tokens})],
        }
        tokenizer = load_tokenizer(FakeGGUF(metadata))
        for _ in range(30):
            word = "".join(rng.choices("abcd", k=rng.randrange(1, 25)))
            assert tokenizer.encode(word) == tiktoken_ranks.encode(ranks, word, whole), word
