"""Expressions that split text are tried before use."""

import pytest

from hybrid.quant.ggml import pretokenizers, split_trial
from hybrid.quant.ggml.errors import TokenizerError

BY_CODE = "AFMoE_digits"  # only stands for code of llama.cpp


@pytest.mark.parametrize(
    "expression",
    [
        r"(a+)+$",
        r"(?=(a+)+b)",
        r"(a|aa)+$",
        r"(\s+)+x",
        r"(?:\p{L}+\s?)+\d",
        r"(\p{N}|1)+[a-z]",
        r"((Q|\p{Lu})+)+!$",
        r"\p{L}*a\p{L}*a\p{L}*b",  # a power of the length, not exponential
    ],
)
def test_what_backtracks_is_refused_by_name(
    expression: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_trial, "SECONDS_IN_ALL", 2.0)
    with pytest.raises(TokenizerError) as error:
        split_trial.check([r"\p{N}", expression], "t.json")
    message = str(error.value)
    assert message.startswith(f"t.json: the expression {expression!r} that splits text ")
    assert "retry-limit-in-match over" in message or "takes more than" in message
    assert message.endswith("Use another tokenizer.") and "\n" not in message
    assert capfd.readouterr().err == "", "what the panic prints"


def test_the_expressions_of_the_table_pass() -> None:
    written = {each for rule in pretokenizers.load() for each in rule.split if BY_CODE not in each}
    for expression in sorted(written, key=len)[::6]:  # each takes 0.1 s, and all were tried once
        split_trial.check([expression], "t.json")


@pytest.mark.parametrize(
    ("expressions", "says"),
    [
        (["(a"], r"t.json: the expression '\(a' that splits text is not valid: Oniguruma error: .* parenthesis"),
        (["a"] * 33, "t.json: its 33 expressions that split text have 33 characters, expected at most 32 with 65536"),
        (["a" * 65537], "its 1 expressions that split text have 65537 characters"),
    ],
)
def test_what_cannot_be_tried(expressions: list[str], says: str) -> None:
    with pytest.raises(TokenizerError, match=says):
        split_trial.check(expressions, "t.json")


def test_an_interrupt_is_not_taken_for_a_panic() -> None:
    assert not split_trial.is_panic(KeyboardInterrupt())
