"""RWKV's World tokenizer: the longest token that fits, over bytes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.tokenizer_files import FakeGGUF, world_vocabulary

from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.errors import TokenizerError

WORLD = world_vocabulary()
N = len(WORLD) + 3
NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5


def world(**changes: Any) -> FakeGGUF:
    tokens = ["<s>", *(repr(token)[2:-1] for token in WORLD), f"[PAD{N - 2}]", f"[PAD{N - 1}]"]
    metadata = {
        "model": "rwkv",
        "tokens": tokens,
        "token_type": [CONTROL, *[NORMAL] * len(WORLD), UNUSED, UNUSED],
        "bos_token_id": 0,
        "eos_token_id": 0,
        "eot_token_id": 1 + WORLD.index(b"\n\n"),
    }
    merged = {key: value for key, value in (metadata | changes).items() if value is not None}
    return FakeGGUF({f"tokenizer.ggml.{key}": value for key, value in merged.items()})


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(world())


def longest_first(data: bytes) -> list[int]:
    """Encode slowly: try the longest token first."""
    ids, by_length = [], sorted(enumerate(WORLD, 1), key=lambda item: -len(item[1]))
    while data:
        token, text = next((i, text) for i, text in by_length if data.startswith(text))
        ids.append(token)
        data = data[len(text) :]
    return ids


ALPHABET = st.sampled_from(
    [*"etao n'\"\\\n\t\r", "the", "日", "本", "語", "é", "🎉", "\x00", "\u3000", "<s>", "[PAD439]", "ÿ"]
)


@settings(max_examples=150)
@given(st.lists(ALPHABET, max_size=30).map("".join) | st.text(max_size=20))
def test_the_longest_token_from_left_to_right(text: str) -> None:
    tokenizer = load_tokenizer(world())
    ids = tokenizer.encode(text)
    valid = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert ids == longest_first(valid.encode())
    assert tokenizer.decode(ids) == valid


def test_pieces_are_the_bytes(tokenizer: Tokenizer) -> None:
    assert [tokenizer.piece(i) for i in range(1, len(WORLD) + 1)] == WORLD
    assert tokenizer.piece(0) == b"<s>"
    assert tokenizer.piece(N - 1) == b"", "padding"
    assert (tokenizer.kind, tokenizer.n_vocab, tokenizer.bos, tokenizer.eos, tokenizer.add_bos) == (
        "rwkv",
        N,
        0,
        0,
        False,
    )


def test_special_tokens_and_the_end_of_a_turn(tokenizer: Tokenizer) -> None:
    end = 1 + WORLD.index(b"\n\n")
    assert tokenizer.is_eog(end)
    assert tokenizer.is_eog(0)
    assert tokenizer.is_control(0)
    assert not tokenizer.is_control(end), "a blank line is text"
    assert tokenizer.decode([0, end, 0], skip_special=True) == "\n\n"
    assert tokenizer.encode("<s>", parse_special=True) == [0]
    assert 0 not in tokenizer.encode("<s>")
    # the token's name in the file is a backslash and a letter, which ends nothing
    assert end not in tokenizer.encode(r"\n\n", parse_special=True)
    assert tokenizer.encode("a\n\nb", parse_special=True) == [98, end, 99]


def test_bytes_come_one_by_one(tokenizer: Tokenizer) -> None:
    stream = tokenizer.stream()
    ids = [1 + WORLD.index(part) for part in (b"\xe6\x97", b"\xa5\xe6")]
    assert [stream.push(token) for token in ids] == ["", "日"]
    assert stream.flush() == "\ufffd"


def test_an_unknown_token_stands_for_bytes_without_one() -> None:
    tokens, types = ["<unk>", "a", "ab", r"\\"], [UNKNOWN, NORMAL, NORMAL, NORMAL]
    metadata = {"tokens": tokens, "token_type": types, "bos_token_id": None, "eos_token_id": None, "eot_token_id": None}
    tokenizer = load_tokenizer(world(**metadata, unknown_token_id=0))
    assert tokenizer.encode("abcé\\a") == [2, 0, 0, 0, 3, 1]
    with pytest.raises(TokenizerError, match="no token stands for the byte 0x00, and there is no unknown token"):
        load_tokenizer(world(**metadata))


@pytest.mark.parametrize("wrong", ["\\", "a\\q", r"\x4", r"\xg0", "\\\n"])
def test_a_wrong_escape_is_named(wrong: str) -> None:
    tokens = world().metadata["tokenizer.ggml.tokens"]
    with pytest.raises(TokenizerError, match=r"token 300 is spelled .* begins no escape. Convert the model again"):
        load_tokenizer(world(tokens=[*tokens[:300], wrong, *tokens[301:]]))
