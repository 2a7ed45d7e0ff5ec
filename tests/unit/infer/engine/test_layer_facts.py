"""What layers are and keep, said before they are loaded. That it is what they keep: test_inspection_of_families.py."""

from pathlib import Path

import gguf_bytes as b
import pytest
import tiny_models

from hybrid.infer.engine.layer_facts import LayerFacts, layer_facts
from hybrid.quant.ggml.errors import FormatError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile


def facts_of(model: tiny_models.Tiny, folder: Path) -> list[LayerFacts]:
    with GGUFFile.open(model.write(folder / "tiny.gguf")) as gguf:
        return layer_facts(gguf)


def test_latent_attention_and_the_delta_rule(tmp_path: Path) -> None:
    """Keys of 12 latent values, which are the value, too, and 4 more; states of 7 x 7 for each of 4 heads
    behind three convolutions of 3 taps."""
    delta, latent = facts_of(tiny_models.kimi(), tmp_path)
    assert (delta.letters, latent.letters) == ("M", "AE")
    assert delta.mixers == (("M", "gated delta rule by channels"),)
    assert latent.mixers == (("A", "attention"), ("E", "experts"))
    assert delta.kv_nbytes_per_token == latent.state_nbytes == 0
    assert latent.kv_nbytes_per_token == 2 * 16
    assert delta.state_nbytes == 4 * (4 * 7 * 7 + 3 * 2 * 4 * 7)


def test_values_of_tensors_do_not_matter(tmp_path: Path) -> None:
    """A file whose tensors are damaged is shown, one whose keys are is not."""
    model = tiny_models.FAMILIES["jamba"]()
    model.tensors["blk.1.ssm_a"].values[...] = float("nan")
    assert [layer.letters for layer in facts_of(model, tmp_path)] == ["AE", "M"]
    model.set(".attention.head_count", 0)
    with pytest.raises(FormatError, match=r"jamba.attention.head_count = 0, expected an integer of at least 1"):
        facts_of(model, tmp_path)
    model.key_values["general.architecture"] = (b.STR, b.string("jambo"))
    with pytest.raises(UnsupportedError, match="architecture 'jambo' is not supported"):
        facts_of(model, tmp_path)
