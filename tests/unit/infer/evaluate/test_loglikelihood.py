"""Texts are split into context and scored tokens as in lm-evaluation-harness."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from hybrid.infer.evaluate.loglikelihood import PairMaker, rolling
from hybrid.quant.ggml.errors import Remedy, UsageError

BOS, EOS = 1, 2


@dataclass
class Letters:
    """A tokenizer with a token for every character and one for "th"; <s> and </s> may be written out."""

    add_bos: bool = False
    bos: int | None = BOS
    eos: int | None = EOS

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        assert not add_special and parse_special
        ids = []
        while text:
            piece = next((p for p in ("<s>", "</s>", "th") if text.startswith(p)), text[0])
            text = text[len(piece) :]
            ids.append({"<s>": BOS, "</s>": EOS, "th": 1000}.get(piece, ord(piece[0]) if len(piece) == 1 else 0))
        return ids


def cut(context: str, continuation: str, n_ctx: int = 99, add_bos: bool | None = None, **of: Any) -> tuple[str, str]:
    """Both parts as text, BOS as ^, EOS as $, "th" as T."""
    pair, _ = PairMaker(Letters(**of), n_ctx, add_bos).pair(context, continuation)  # type: ignore[arg-type]
    return text_of(pair.context), text_of(pair.continuation)


def text_of(ids: Sequence[int]) -> str:
    return "".join({BOS: "^", EOS: "$", 1000: "T"}.get(i) or chr(i) for i in ids)


@pytest.mark.parametrize(
    ("context", "continuation", "want"),
    [
        ("ab", " cd", ("ab", " cd")),
        ("ab ", "cd", ("ab", " cd")),  # the space is the continuation's
        ("ab \n ", " cd", ("ab", " \n  cd")),
        ("at", "hing", ("at", "ing")),  # a token across the seam: as many tokens as the context has are not scored
        ("at", "h", ("a", "T")),  # ... but never all
        ("", "cd", ("^", "cd")),
        ("  ", "cd", ("^", "  cd")),
        ("", "<s>cd", ("^", "cd")),
        ("<s>ab", "c", ("^ab", "c")),
    ],
)
def test_the_seam(context: str, continuation: str, want: tuple[str, str]) -> None:
    assert cut(context, continuation) == want
    with_bos = (want[0] if want[0].startswith("^") else "^" + want[0], want[1])
    assert cut(context, continuation, add_bos=True) == with_bos


def test_bos_begins_a_text_once() -> None:
    maker = PairMaker(Letters(add_bos=True), 99)  # type: ignore[arg-type]
    assert text_of(maker.ids("ab")) == "^ab" and text_of(maker.ids("<s>ab")) == "^ab"
    assert text_of(maker.ids("ab", begins=False)) == "ab"
    assert text_of(PairMaker(Letters(add_bos=True), 99, add_bos=False).ids("ab")) == "ab"  # type: ignore[arg-type]
    without = PairMaker(Letters(bos=None), 99, add_bos=True)  # type: ignore[arg-type]
    assert text_of(without.ids("ab")) == "ab" and without.prefix == EOS


def test_a_long_context_loses_its_beginning() -> None:
    maker = PairMaker(Letters(), 5)  # type: ignore[arg-type]
    for context, want, lost in (("abc", "abc", 0), ("abcd", "abcd", 0), ("abcde", "bcde", 1), ("abcdefgh", "efgh", 4)):
        pair, n = maker.pair(context, "xy")
        assert (text_of(pair.context), text_of(pair.continuation), n) == (want, "xy", lost)
        assert len(pair.context) + len(pair.continuation) - 1 <= 5
    pair, n = maker.pair("abc", "vwxyz")
    assert text_of(pair.context) == "c" and n == 2
    with pytest.raises(UsageError, match="a continuation of 6 tokens does not fit the context of 5") as refused:
        maker.pair("abc", "uvwxyz")
    assert refused.value.remedy is Remedy.LARGER_CONTEXT


def test_what_cannot_be_cut_is_refused() -> None:
    maker = PairMaker(Letters(), 9)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="nothing to score after 'abc': the continuation is empty"):
        maker.pair("abc", "")
    with pytest.raises(UsageError, match="begins a text"):
        maker.pair("", "<s>")
    with pytest.raises(UsageError, match="neither BOS nor EOS"):
        PairMaker(Letters(bos=None, eos=None), 9).pair("", "a")  # type: ignore[arg-type]


@pytest.mark.parametrize("n_ctx", [1, 2, 4, 7])
def test_windows_score_each_token_once(n_ctx: int) -> None:
    for n in range(20):
        ids = list(range(10, 10 + n))
        pairs = list(rolling(ids, BOS, n_ctx))
        assert [i for pair in pairs for i in pair.continuation] == ids
        text, at = [BOS, *ids], 0
        for number, pair in enumerate(pairs):
            both = [*pair.context, *pair.continuation]
            at += len(pair.continuation)
            assert both == text[at + 1 - len(both) : at + 1], "what stands in the text before it"
            assert len(both) == n_ctx + 1 or (number == 0 and at == n), "full, unless the text is shorter"


@pytest.mark.slow
def test_windows_are_the_harnesss() -> None:
    utils = pytest.importorskip("lm_eval.utils")
    for n in range(30):
        for n_ctx in range(1, 9):
            theirs = utils.get_rolling_token_windows(list(range(n)), 99, n_ctx, 1)
            want = [utils.make_disjoint_window(window) for window in theirs]
            assert [(list(p.context), list(p.continuation)) for p in rolling(list(range(n)), 99, n_ctx)] == want
