"""Which vocabularies count as the same, and the errors for others."""

import pytest
from reference.tokenizer_files import FakeGGUF

from hybrid.infer.answers.guessing.same_vocabulary import check_same_vocabulary
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.errors import UsageError

TOKENS = [chr(c) for c in range(0x21, 0x41)] + ["</s>"]
NORMAL, CONTROL, UNUSED = 1, 3, 5


def tokenizer(tokens: list[str] = TOKENS, types: list[int] | None = None, eos: int = 32) -> Tokenizer:
    types = [CONTROL if i == 32 else NORMAL for i in range(len(tokens))] if types is None else types
    metadata = {"model": "gpt2", "tokens": tokens, "token_type": types, "merges": [], "eos_token_id": eos}
    return load_tokenizer(FakeGGUF({f"tokenizer.ggml.{key}": value for key, value in metadata.items()}))


def test_the_same_with_or_without_padding() -> None:
    kinds = [NORMAL] * 32 + [CONTROL] + [UNUSED] * 3
    padded = tokenizer([*TOKENS, "[PAD33]", "[PAD34]", "[PAD35]"], kinds)
    for a, b in ((tokenizer(), tokenizer()), (tokenizer(), padded), (padded, tokenizer())):
        check_same_vocabulary(a, "a.gguf", b, "b.gguf")


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (tokenizer([*TOKENS[:5], "z", *TOKENS[6:]]), "token 5 is 'z' there and '&' here"),
        (tokenizer([*TOKENS, "more"]), "they have 34 and 33 tokens, and token 33 of a.gguf is 'more'"),
        (
            tokenizer(types=[CONTROL if i in (5, 32) else NORMAL for i in range(33)]),
            "token 5 is '&', a control token, there and '&' here",
        ),
        (tokenizer(eos=3), "token 3 is '$', a control token, there and '$' here"),
    ],
)
def test_what_differs_is_said(other: Tokenizer, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_same_vocabulary(other, "a.gguf", tokenizer(), "b.gguf")
    assert str(caught.value).startswith("a.gguf cannot guess for b.gguf: " + says)
    assert "\n" not in str(caught.value) and str(caught.value).endswith("mostly of the same family.")


def test_they_may_end_answers_with_other_tokens() -> None:
    """A chat model and its base model have the same vocabulary."""
    kinds = [CONTROL if i in (5, 32) else NORMAL for i in range(33)]
    check_same_vocabulary(tokenizer(types=kinds, eos=5), "a.gguf", tokenizer(types=kinds), "b.gguf")
