"""Lists and ranges are parsed like llama-bench's."""

import pytest

from hybrid.infer.bench.params import parse_ints, parse_pair
from hybrid.quant.ggml.errors import UsageError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("512", [512]),
        ("0", [0]),
        ("128,256, 512", [128, 256, 512]),
        ("1-4", [1, 2, 3, 4]),
        ("7-7", [7]),
        ("128-512+128", [128, 256, 384, 512]),
        ("128-500+128", [128, 256, 384]),
        ("1-16*2", [1, 2, 4, 8, 16]),
        ("3-30*3", [3, 9, 27]),
        ("9,1,4-8+2,1", [9, 1, 4, 6, 8, 1]),
    ],
)
def test_values(text: str, values: list[int]) -> None:
    assert parse_ints(text, "-p") == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a number"),
        ("a", "'a' is not a number"),
        ("1,,2", "'' is not a number"),
        ("-3", "'-3' is not a number"),
        ("1.5", "'1.5' is not a number"),
        ("1-", "'1-' is not a number"),
        ("1-4/2", "'1-4/2' is not a number"),
        ("1234567890", "'1234567890' is not a number"),
        ("٣", "'٣' is not a number"),
        ("4-1", "the range '4-1' ends before it starts"),
        ("1-4+0", "the range '1-4+0' never reaches 4"),
        ("1-4*1", "the range '1-4*1' never reaches 4"),
        ("0-8*2", "the range '0-8*2' never reaches 8"),
        ("1-100000", "more than 1000 values"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_ints(text, "-p")
    assert str(caught.value).startswith(f"-p {text}: ")
    assert message in str(caught.value)


def test_minimum() -> None:
    assert parse_ints("1,2", "-t", minimum=1) == [1, 2]
    with pytest.raises(UsageError, match="-t 2,0: 0 is less than 1"):
        parse_ints("2,0", "-t", minimum=1)


def test_pair() -> None:
    assert parse_pair("512,128", "-pg") == (512, 128)
    assert parse_pair("0, 16", "-pg") == (0, 16)
    for text in ["512", "512,128,1", "512;128", "-1,2", "", "0,0", "00,0"]:
        with pytest.raises(UsageError, match="expected PROMPT,GENERATED"):
            parse_pair(text, "-pg")
