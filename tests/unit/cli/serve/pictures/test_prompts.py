"""Texts of prompts that have pictures."""

from pathlib import Path

import numpy as np
from seeing_models import seeing_model

from hybrid.cli.serve.pictures.prompts import MARKER, prompt_bytes, prompt_text
from hybrid.infer.engine.pictures import Picture
from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.quant.ggml.split import open_gguf


def test_runs_are_markers(data_dir: Path) -> None:
    tokenizer = load_tokenizer(open_gguf(seeing_model(data_dir)))
    one, other = (Picture(np.full((n, 4), n, np.float32), (1, n)).ids for n in (3, 1))
    before, after = tokenizer.encode("Grüße, ", add_special=False), tokenizer.encode(" and more", add_special=False)
    for ids, text in (
        ([*before, *one, *after], f"Grüße, {MARKER} and more"),
        ([*one, *other, *before, *one], f"{MARKER}{MARKER}Grüße, {MARKER}"),
        ([*before, *after], "Grüße,  and more"),
        (one, MARKER),
        ([], ""),
    ):
        assert prompt_text(tokenizer, ids) == text
        assert prompt_bytes(tokenizer, ids) == text.encode()
    assert prompt_text(tokenizer, [*one[1:], *before]) == "Grüße, ", "the rest of one that was cut"
