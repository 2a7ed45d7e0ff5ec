"""Facts about layers and their memory, told before loading. test_inspection_of_families.py checks that they hold."""

from pathlib import Path

import gguf_bytes as b
import pytest
import random_heads
import tiny_models

from hybrid.convert import convert
from hybrid.infer.engine.estimate import Estimate
from hybrid.infer.engine.layer_facts import LayerFacts, layer_facts
from hybrid.quant.ggml.errors import FormatError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile


def facts_of(model: tiny_models.Tiny, folder: Path) -> list[LayerFacts]:
    with GGUFFile.open(model.write(folder / "tiny.gguf")) as gguf:
        return layer_facts(gguf)


def test_latent_attention_and_the_delta_rule(tmp_path: Path) -> None:
    """Keys of 12 latent values, which are also the value, and 4 more; states of 7 x 7 for each of 4 heads after three
    convolutions of 3 taps."""
    delta, latent = facts_of(tiny_models.kimi(), tmp_path)
    assert (delta.letters, latent.letters) == ("M", "AE")
    assert delta.mixers == (("M", "gated delta rule by channels"),)
    assert latent.mixers == (("A", "attention"), ("E", "experts"))
    assert delta.kv_nbytes_per_token == latent.state_nbytes == 0
    assert latent.kv_nbytes_per_token == 2 * 16
    assert delta.state_nbytes == 4 * (4 * 7 * 7 + 3 * 2 * 4 * 7)


def test_values_of_tensors_do_not_matter(tmp_path: Path) -> None:
    """A file with damaged tensors is shown, a file with damaged keys is not."""
    model = tiny_models.FAMILIES["jamba"]()
    model.tensors["blk.1.ssm_a"].values[...] = float("nan")
    assert [layer.letters for layer in facts_of(model, tmp_path)] == ["AE", "M"]
    model.set(".attention.head_count", 0)
    with pytest.raises(FormatError, match=r"jamba.attention.head_count = 0, expected an integer of at least 1"):
        facts_of(model, tmp_path)
    model.key_values["general.architecture"] = (b.STR, b.string("jambo"))
    with pytest.raises(UnsupportedError, match="architecture 'jambo' is not supported"):
        facts_of(model, tmp_path)


def test_a_head_that_guesses_ahead(tmp_path: Path, data_dir: Path) -> None:
    """Its block is listed like an attention layer with its memory, under a letter of its own."""
    checkpoint, path = random_heads.write("qwen35-mtp", tmp_path / "model"), tmp_path / "model.gguf"
    convert(checkpoint, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    with GGUFFile.open(path) as file:
        facts = layer_facts(file)
        size = sum(t.nbytes for name, t in file.tensors.items() if name.startswith("blk.3."))
    assert [layer.letters for layer in facts] == ["M", "A", "M", "AT"]
    assert facts[3].kv_nbytes_per_token == facts[1].kv_nbytes_per_token == 2 * 2 * 32
    assert facts[3].nbytes == size > facts[1].nbytes
    with Estimate(path) as estimate:
        assert sum(kind.n_layers for kind in estimate.kinds("f16") if kind.mixer == "attention") == 2


def test_a_head_with_latent_attention(tmp_path: Path, data_dir: Path) -> None:
    """The head keeps an additional latent vector per token."""
    checkpoint, path = random_heads.write("deepseek-v3-mtp", tmp_path / "model"), tmp_path / "model.gguf"
    convert(checkpoint, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    with GGUFFile.open(path) as file:
        facts = layer_facts(file)
    assert [layer.letters for layer in facts] == ["A", "AE", "AE", "AET"]
    assert {layer.kv_nbytes_per_token for layer in facts} == {2 * (36 + 12)}
