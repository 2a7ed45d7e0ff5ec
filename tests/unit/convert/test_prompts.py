"""Prompts of sentence-transformers models, from their folder to the file."""

import json
from pathlib import Path
from typing import Any

import pytest
import random_checkpoints

from hybrid.convert import convert
from hybrid.infer.evaluate.embed_prompts import EmbedPrompts
from hybrid.quant.ggml.errors import CheckpointError
from hybrid.quant.ggml.split import open_gguf

PROMPTS = {"query": "search_query: ", "passage": "search_document: ", "plain": ""}


def converted(folder: Path, data_dir: Path, settings: Any, **fields: Any) -> Path:
    source = random_checkpoints.write({**random_checkpoints.ENCODERS["bert"], **fields}, folder / "model")
    (source / "config_sentence_transformers.json").write_text(json.dumps(settings))
    convert(source, folder / "bert.gguf", tokenizer=data_dir / "tokenizers" / "wordpiece")
    return folder / "bert.gguf"


def test_from_the_folder_to_the_file(tmp_path: Path, data_dir: Path) -> None:
    settings = {"prompts": PROMPTS, "default_prompt_name": "query", "similarity_fn_name": "cosine"}
    path = converted(tmp_path, data_dir, settings, matryoshka_dimensions=[32, 16, 32])
    with open_gguf(path) as gguf:
        prompts = EmbedPrompts.read(gguf)
        assert prompts == EmbedPrompts(PROMPTS, "query", (16, 32))
        assert gguf.metadata["hybrid.prompts.names"].tolist() == [*PROMPTS]


def test_marks_of_colbert_models(tmp_path: Path, data_dir: Path) -> None:
    settings = {"query_prefix": "[Q] ", "document_prefix": "[D] ", "skiplist_words": ["!", "."], "query_length": 32}
    with open_gguf(converted(tmp_path, data_dir, settings)) as gguf:
        found = EmbedPrompts.read(gguf)
        assert found == EmbedPrompts({"query": "[Q] ", "document": "[D] "}, skipped=("!", "."))


@pytest.mark.parametrize("settings", [{}, {"prompts": {}}, {"prompts": {"query": "", "document": ""}}])
def test_a_model_without_prompts(settings: Any, tmp_path: Path, data_dir: Path) -> None:
    with open_gguf(converted(tmp_path, data_dir, settings)) as gguf:
        assert EmbedPrompts.read(gguf) == EmbedPrompts()
        assert not [key for key in gguf.metadata if key.startswith("hybrid.")]


@pytest.mark.parametrize(
    ("settings", "fields", "says"),
    [
        ({"prompts": ["a"]}, {}, "prompts is .*, expected a text for each name"),
        ({"prompts": {"a": 1}}, {}, "expected a text for each name"),
        ({"prompts": {"a": "b"}, "default_prompt_name": "c"}, {}, "default_prompt_name is c, which prompts does not"),
        ({"skiplist_words": [1]}, {}, r"skiplist_words is \[1\], expected texts"),
        ({}, {"matryoshka_dimensions": [0]}, r"matryoshka_dimensions is \[0\], expected a list of lengths"),
        ({}, {"matryoshka_dimensions": 64}, "expected a list of lengths"),
    ],
)
def test_refused(settings: Any, fields: Any, says: str, tmp_path: Path, data_dir: Path) -> None:
    with pytest.raises(CheckpointError, match=says):
        converted(tmp_path, data_dir, settings, **fields)
