"""Prompts with a gap: what is cut, and the order of the parts. llama-server's: tests/golden/test_peer_infill.py."""

from pathlib import Path

import pytest
from filling_models import by_keys, by_text

from hybrid.infer.answers.asking.infill import OtherFile, check_fill, gap_prompt, infill_prompt, mixed_ids
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.split import open_gguf


@pytest.fixture(scope="module")
def tok(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(open_gguf(by_text().write(tmp_path_factory.mktemp("filling") / "model.gguf")))


def text_of(tok: Tokenizer, ids: list[int]) -> str:
    return tok.decode(ids)


@pytest.mark.parametrize("n_ctx", [37, 100, 513, 4097])
@pytest.mark.parametrize("n_predict", [None, -1, 0, 7, 10_000])
@pytest.mark.parametrize("n_others", [0, 1, 3])
def test_a_prompt_leaves_room(n_ctx: int, n_predict: int | None, n_others: int, tok: Tokenizer) -> None:
    """For twice the answer, or half of the context; the parts next to the gap stay."""
    others = [OtherFile("o" * 3000, f"{at}.h") for at in range(n_others)]
    before, after = "<" + "a" * 5000 + "A", "B" + "b" * 5000 + ">"
    ids = infill_prompt(tok, before, after, n_ctx, prompt="pp", others=others, n_predict=n_predict)
    answer = min({None: 128, -1: 128}.get(n_predict, n_predict), n_ctx // 4)  # type: ignore[type-var]
    assert len(ids) <= n_ctx - 2 * answer + 3
    text = text_of(tok, ids)
    assert "App<|fim_suffix|>" in text and text.endswith("<|fim_middle|>")
    if n_ctx > 100:
        assert "pp<|fim_suffix|>Bb" in text
        assert ("o<|file_sep|>filename\n<|fim_prefix|>" in text) == bool(n_others)
    n_cut = text.count("a") - text.count("filename"), text.count("b")
    assert max(n_cut) < 2048


def test_what_fits_stays_whole(tok: Tokenizer) -> None:
    others = [OtherFile("one\n", "1.h"), OtherFile("two\n")]
    text = text_of(tok, infill_prompt(tok, "before", "after", 400, prompt=" <|endoftext|>", others=others))
    assert text == (
        "<|repo_name|>myproject\n<|file_sep|>1.h\none\n<|file_sep|>tmp\ntwo\n<|file_sep|>filename\n"
        "<|fim_prefix|>before <|endoftext|><|fim_suffix|>after<|fim_middle|>"
    )


def test_control_tokens_are_text_but_in_the_prompt(tok: Tokenizer) -> None:
    end = tok.token("<|endoftext|>")
    assert end is not None
    ids = infill_prompt(
        tok, "<|endoftext|>", "<|endoftext|>", 400, others=[OtherFile("<|endoftext|>", "<|endoftext|>")]
    )
    assert end not in ids
    assert end in infill_prompt(tok, "", "", 400, prompt="<|endoftext|>")
    assert mixed_ids(tok, [end, "<|endoftext|>", 7]) == [end, *tok.encode("<|endoftext|>"), 7]


def test_bos_is_before_the_gap(tmp_path: Path) -> None:
    tok = load_tokenizer(open_gguf(by_keys().write(tmp_path / "model.gguf")))
    fill = tok.vocabulary.fill
    assert gap_prompt(tok, [9], [10]) == [1, fill.prefix, 9, fill.suffix, 10, fill.middle]
    assert gap_prompt(tok, [9], [10], suffix_first=True) == [1, fill.suffix, 10, fill.prefix, 9, fill.middle]
    assert infill_prompt(tok, "", "", 64) == [1, fill.prefix, fill.suffix, fill.middle], "no token of a repository"


def test_a_model_that_cannot(tmp_path: Path) -> None:
    tiny = by_keys()
    tiny.drop("tokenizer.ggml.suffix_token_id")
    tok = load_tokenizer(open_gguf(tiny.write(tmp_path / "model.gguf")))
    with pytest.raises(UsageError, match="no token for suffix "):
        check_fill(tok)
