"""Kind plamo2: ids by the definition and llama.cpp's, and back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.plamo2_vocabulary import ALPHABET, CONTROL, TEXTS, ids, rows
from reference.tokenizer_files import FakeGGUF

from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.errors import TokenizerError

GOLDEN = Path(__file__).parents[4] / "golden" / "interop" / "plamo2_ids.json"
TYPES = {"NORMAL": 1, "UNKNOWN": 2, "CONTROL": 3, "BYTE": 6}


def tokenizer(**change: Any) -> Tokenizer:
    table = rows()
    keys = {
        "model": "plamo2",
        "pre": "default",
        "tokens": [row[0] for row in table],
        "scores": np.asarray([row[1] for row in table], np.float32),
        "token_type": np.asarray([3 if row[0] in CONTROL[1:] else TYPES[str(row[2])] for row in table], np.int32),
        "eot_token_id": 4,
        **change,
    }
    return load_tokenizer(FakeGGUF({f"tokenizer.ggml.{key}": x for key, x in keys.items() if x is not None}))


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_the_definition(text: str) -> None:
    got = tokenizer().encode(text)
    assert got == ids(text)
    assert tokenizer().decode(got) == text


def test_ids_of_random_texts() -> None:
    rng, tok = np.random.default_rng(3), tokenizer()
    letters = [*ALPHABET, "z", "\u3042", "\U0001f680"]
    for n in rng.integers(1, 60, 100):
        text = "".join(letters[i] for i in rng.integers(0, len(letters), n))
        assert tok.encode(text) == ids(text), text
        assert tok.decode(tok.encode(text)) == text


@pytest.mark.parametrize("entry", json.loads(GOLDEN.read_text()), ids=lambda entry: ascii(entry["text"]))
def test_ids_of_llama_cpp(entry: dict[str, Any]) -> None:
    assert tokenizer().encode(entry["text"]) == entry["ids"]


def test_control_tokens_are_text_unless_they_are_parsed() -> None:
    tok = tokenizer()
    assert tok.encode("<|plamo:op|>a", parse_special=True)[0] == 4
    plain = tok.encode("<|plamo:op|>")
    assert 4 not in plain
    assert tok.decode(plain) == "<|plamo:op|>"
    assert tok.is_eog(4) and tok.is_eog(2) and tok.is_control(4)
    assert (tok.bos, tok.eos, tok.add_bos) == (1, 2, False)


def test_a_byte_order_mark_stays() -> None:
    assert tokenizer().decode(tokenizer().encode("\ufeffa")) == "\ufeffa"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": None}, "scores is missing"),
        ({"token_type": None}, "no token is of type BYTE, expected one for every byte"),
        ({"token_type": np.asarray([1] * 7 + [6] * 254 + [1] * (len(rows()) - 261))}, "254 of 256 bytes"),
    ],
)
def test_errors(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer(**change)
