"""Long texts in slices give the tokens of the whole text; between slices, encoding stops if nobody waits for it."""

from itertools import product

import numpy as np
import pytest
from made_vocabularies import NORMAL, alphabet, gpt2, spm
from reference.tokenizer_files import FakeGGUF, world_vocabulary

from hybrid.infer.text.stops import GoneError, stopped_by
from hybrid.infer.text.tokenizer import Tokenizer, base, load_tokenizer
from hybrid.quant.ggml import pretokenizers

LETTERS = [*"\n\n\n\n   ", *"aabbc" * 3, *"AÄ19.,;'\r\t", "\u3000", "\u0301", "中", "か", "🙂", "\xa0", "\u200d"]
RULES = [rule.names[0] for rule in pretokenizers.load() if "afmoe" not in rule.names]
UNCUT = {"superbpe"}  # rules by which a piece may span many words


def text(seed: int, n: int = 1500) -> str:
    rng = np.random.default_rng(seed)
    return "".join(rng.choice(np.array(LETTERS, object), n)) + "a b\nc a\nb"


def pairs(**keys: object) -> FakeGGUF:
    """A byte-level vocabulary in which every pair of these is a token, so that any other split gives other ids."""
    spelled = alphabet()
    merges = list(product([spelled[ord(letter)] for letter in "ab \n"], repeat=2))
    tokens = [*spelled.values(), *("".join(pair) for pair in merges)]
    kinds = {"tokens": tokens, "token_type": [NORMAL] * len(tokens), "merges": [" ".join(pair) for pair in merges]}
    return gpt2(**kinds | keys)


def same(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, given: str) -> int:
    """Checks that the tokens are the whole text's; returns the number of slices."""
    whole = tokenizer.encode(given)
    monkeypatch.setattr(base, "SLICE", 5)
    slices = list(tokenizer._slices(given))
    assert "".join(slices) == given and tokenizer.encode(given) == whole
    monkeypatch.undo()
    return len(slices)


@pytest.mark.parametrize("pre", RULES)
def test_slices_of_a_text_that_rules_split(pre: str, monkeypatch: pytest.MonkeyPatch) -> None:
    byte_level = pretokenizers.by_name(pre).byte_level  # type: ignore[union-attr]
    change = {} if byte_level else {"unknown_token_id": 0}
    tokenizer = load_tokenizer(pairs(pre=pre, **change))
    n = [same(tokenizer, monkeypatch, text(seed)) for seed in range(3)]
    assert max(n) == 1 if pre in UNCUT else min(n) > 10


def test_an_expression_of_a_file_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    file = pairs()
    file.metadata["hybrid.tokenizer.split"] = [r" ?[a-z]+|\n+|\S| "]  # type: ignore[index]
    assert same(load_tokenizer(file), monkeypatch, text(1)) == 1


def test_slices_of_a_text_by_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert same(load_tokenizer(spm()), monkeypatch, text(1)) > 10
    normalized = spm(remove_extra_whitespaces=True)
    assert same(load_tokenizer(normalized), monkeypatch, text(1)) == 1
    reaching = spm()
    reaching.metadata["tokenizer.ggml.tokens"][268] = "a\u2581"  # across one cut
    tokenizer = load_tokenizer(reaching)
    assert same(tokenizer, monkeypatch, text(1)) > 1 and tokenizer._cut is not None
    assert tokenizer._cut.pattern.count("|") == 0


def test_slices_of_the_longest_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_vocabulary()
    tokens = ["<s>", *(repr(token)[2:-1] for token in world)]
    keys = {"model": "rwkv", "tokens": tokens, "token_type": [3, *[NORMAL] * len(world)]}
    tokenizer = load_tokenizer(FakeGGUF({f"tokenizer.ggml.{key}": value for key, value in keys.items()}))
    assert same(tokenizer, monkeypatch, text(1)) > 1


def test_nobody_waits_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, looks = load_tokenizer(pairs()), []

    def gone() -> bool:
        looks.append(1)
        return len(looks) == 4

    monkeypatch.setattr(base, "SLICE", 5)
    given = text(1)
    with stopped_by(gone), pytest.raises(GoneError, match="nobody waits"):
        tokenizer.encode(given)
    assert len(looks) == 4 and tokenizer.encode(given)
