"""All sizes are parsed by one grammar and printed in one way."""

import re
from pathlib import Path

import pytest

from hybrid.quant.ggml.byte_sizes import parse_size, size_text
from hybrid.quant.ggml.errors import UsageError

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0), ("7", 7), ("7B", 7), ("2K", 2000), ("2kb", 2000), ("2KiB", 2048), ("2ki", 2048),
        ("1.5M", 1_500_000), ("1.5 MB", 1_500_000), ("1.5MiB", 1_572_864), ("2G", 2 * 10**9), ("2GB", 2 * 10**9),
        ("2g", 2 * 10**9), ("2Gi", 2 << 30), ("2GiB", 2 << 30), (" 2 gib ", 2 << 30), ("1T", 10**12), ("1TiB", 1 << 40),
        (".5K", 500), ("4.35G", 4_350_000_000), ("9223372036854775807", (1 << 63) - 1),
    ],
)  # fmt: skip
def test_grammar(text: str, nbytes: int) -> None:
    assert parse_size(text, "--size") == nbytes


@pytest.mark.parametrize(
    "text",
    ["", "G", "big", "-1", "1e9", "nan", "inf", "1i", "1iB", "1P", "1 2", "1..2", ".", "0x10", "١G", "1GG", "1Gb/s",
     "9223372036854775808", "9" * 5000],
)  # fmt: skip
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--size .*: expected a size like 900M, 2G or 1\.5GiB"):
        parse_size(text, "--size")


@pytest.mark.parametrize(
    ("nbytes", "text", "two_digits"),
    [
        (0, "0 B", "0 B"),
        (1023, "1023 B", "1023 B"),
        (1536, "1.5 KiB", "1.50 KiB"),
        (23 << 20, "23.0 MiB", "23.00 MiB"),
        (3_370_000_000, "3.1 GiB", "3.14 GiB"),
        (7 << 40, "7.0 TiB", "7.00 TiB"),
        (5000 << 40, "5000.0 TiB", "5000.00 TiB"),
    ],
)
def test_text(nbytes: int, text: str, two_digits: str) -> None:
    assert size_text(nbytes) == text and size_text(nbytes, 2) == two_digits


@pytest.mark.parametrize("nbytes", [0, 7, 1023, 1024, 5 << 20, 1 << 30, 3 << 40])
def test_what_is_written_can_be_read(nbytes: int) -> None:
    assert parse_size(size_text(nbytes), "--size") == nbytes


def test_sizes_are_written_here_only() -> None:
    """`23.0 MB` in one message and `22.0 MiB` in the next were the same file. (Memory rates are per second.)"""
    pattern = re.compile(r"\} ?[KMGT]i?B\b(?!/s)")
    elsewhere = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in ("cli", "convert", "infer", "library", "quant")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line) and path.name != "byte_sizes.py"
    ]
    assert elsewhere == []
