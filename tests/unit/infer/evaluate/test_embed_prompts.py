"""Prompts by name and by kind of text, and what is said of shorter vectors."""

from pathlib import Path
from typing import Any

import pytest

from hybrid.infer.evaluate.embed_prompts import EmbedPrompts, check_dimensions
from hybrid.quant.ggml.errors import FormatError, UsageError
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.writer import GGUFWriter

PROMPTS = EmbedPrompts({"query": "Q: ", "passage": "P: ", "retrieval.passage": "R: "}, "query", (8, 16))


def test_by_name_and_kind() -> None:
    assert [PROMPTS.named(name) for name in (None, "", "passage")] == ["Q: ", "", "P: "]
    with pytest.raises(UsageError, match=r"no prompt document: its prompts are query, passage, retrieval\.passage"):
        PROMPTS.named("document")
    kinds = ("query", "search_query", "document", "search_document", "retrieval.passage", "classification")
    assert [PROMPTS.of_kind(kind) for kind in kinds] == ["query", "query", *["passage"] * 3, None]
    assert EmbedPrompts().named(None) == "" and EmbedPrompts().of_kind("query") is None
    with pytest.raises(UsageError, match="no prompt query: it has no prompts"):
        EmbedPrompts().named("query")


def test_lengths() -> None:
    assert [PROMPTS.note_on_length(n, 24) for n in (None, 24, 8)] == [""] * 3
    assert PROMPTS.note_on_length(9, 24) == "the model was trained for vectors of 8, 16 values, not of 9"
    assert "does not say that the model was trained for" in EmbedPrompts().note_on_length(9, 24)
    for n in (None, 1, 24):
        check_dimensions(n, 24)
    for n in (0, 25):
        with pytest.raises(UsageError, match=f"{n} dimensions: the vectors of this model have 24 values"):
            check_dimensions(n, 24)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"names": ["a"]}, r"hybrid\.prompts\.texts = .*, expected a text for each of the 1 different names"),
        ({"names": ["a", "a"], "texts": ["b", "c"]}, "expected a text for each"),
        ({"names": "a", "texts": "b"}, r"hybrid\.prompts\.names = 'a', expected texts"),
        ({"names": [1], "texts": ["b"]}, "expected texts"),
        ({"names": ["a"], "texts": ["b"], "default": "c"}, r"hybrid\.prompts\.default = 'c', expected a name in"),
        ({"embedding.dimensions": [0]}, r"hybrid\.embedding\.dimensions = .*, expected lengths of vectors"),
        ({"embedding.dimensions": "8"}, "expected lengths of vectors"),
    ],
)
def test_wrong_keys(keys: dict[str, Any], says: str, tmp_path: Path) -> None:
    with GGUFWriter(tmp_path / "a.gguf", "bert") as writer:
        for name, value in keys.items():
            writer.add(f"hybrid.{name}" if "." in name else f"hybrid.prompts.{name}", value)
    with open_gguf(tmp_path / "a.gguf") as gguf, pytest.raises(FormatError, match=says):
        EmbedPrompts.read(gguf)
