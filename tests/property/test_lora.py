"""LoRA adapters, from a PEFT folder to logits: compared with float64, merged, and bit for bit for any threads, parts
and batches."""

import json
from pathlib import Path

import numpy as np
import peft_adapters
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from reference.families import Reference

from hybrid.convert import convert, convert_lora
from hybrid.infer import LoadedModel, Work
from hybrid.quant import merge_lora, quantize
from hybrid.quant.ggml.errors import StateError
from hybrid.quant.ggml.reader import GGUFFile

pytestmark = pytest.mark.exhaustive

# Interleaved heads, stacked experts, reordered heads, split matrices, rows with multipliers.
QUICK = ("llama-biased", "qwen3moe", "qwen35", "qwen3next", "falcon-h1")
MORE = (
    "nemotron-h-moe",
    "lfm2",
    "gemma2",
    "phi3",
    "recurrentgemma",
    "granite-attention",
    "jamba-biased",
    "falcon-h1-biased",
    "zaya",
)
ALPHA, SCALE, RANK = 5.0, 0.75, 3
NOISE = {"recurrentgemma": 1e-4}  # measured 4.6e-5: gates of its recurrence amplify roundings of f32 sums


class Case:
    """A base model and an adapter, as checkpoints and as GGUF."""

    def __init__(self, name: str, folder: Path, data_dir: Path, rank: int = RANK) -> None:
        self.base, self.adapter = folder / "base.gguf", folder / "adapter.gguf"
        self.checkpoint = random_checkpoints.write(CONFIGS[name], folder / "base")
        self.config = json.loads((self.checkpoint / "config.json").read_text())
        self.tensors = random_checkpoints.tensors(self.config)
        self.thin = peft_adapters.factors(self.tensors, rank)
        self.tokenizer = data_dir / "checkpoints" / "mamba-bf16"
        convert(self.checkpoint, self.base, outtype="f32", tokenizer=self.tokenizer)
        self.peft = peft_adapters.write(folder / "adapter", self.thin, ALPHA)
        convert_lora(self.peft, self.adapter, base=self.checkpoint)
        self.ids = np.random.default_rng(4).integers(0, self.config["vocab_size"], 40).tolist()


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)])
def test_logits_are_those_of_the_merged_model(name: str, data_dir: Path, tmp_path: Path) -> None:
    case = Case(name, tmp_path, data_dir)
    tensors = peft_adapters.merged(case.tensors, case.thin, SCALE * ALPHA / RANK)
    expected = Reference(case.config, tensors).logits(case.ids)
    without = Reference(case.config, case.tensors).logits(case.ids)
    with LoadedModel.load(case.base, n_ctx=64, precision="exact", lora=[(case.adapter, SCALE)]) as model:
        got = model.sequence().logits_of(case.ids)
    error, difference = (np.abs(x - expected).max() / np.abs(expected).max() for x in (got, without))
    print(f"{name}: {error:.1e} of the largest logit; without the adapter {difference:.1e}")
    assert error < NOISE.get(name, 3e-5) and difference > 0.1
    # merged into the weights: equals the merged checkpoint
    merge_lora(case.base, [(case.adapter, SCALE)], tmp_path / "merged.gguf")
    with LoadedModel.load(tmp_path / "merged.gguf", n_ctx=64, precision="exact") as model:
        merged = model.sequence().logits_of(case.ids)
    assert np.abs(merged - expected).max() / np.abs(expected).max() < NOISE.get(name, 3e-5)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Case:
    return Case("llama-biased", tmp_path_factory.mktemp("llama"), data_dir, rank=20)


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Case:
    return Case("qwen3moe", tmp_path_factory.mktemp("experts"), data_dir)


@pytest.mark.parametrize("which", ["llama", "experts"])
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_bits_depend_on_nothing(which: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    case: Case = request.getfixturevalue(which)
    path = case.base
    if kind != "F32":
        quantize(case.base, path := tmp_path / "q.gguf", kind, n_threads=1)
    given = [(case.adapter, SCALE), (case.adapter, -0.25)]
    with LoadedModel.load(path, n_ctx=64, n_threads=1, lora=given) as model:
        expected = model.sequence().logits_of(case.ids)
    with LoadedModel.load(path, n_ctx=64, n_threads=1) as model:
        assert not np.array_equal(model.sequence().logits_of(case.ids), expected)
    for n_threads in (2, 3):
        with LoadedModel.load(path, n_ctx=64, n_seq_max=3, n_ubatch=16, n_threads=n_threads, lora=given) as model:
            assert np.array_equal(model.sequence().logits_of(case.ids), expected)
            one, other = model.sequence(), model.sequence()
            model.eval([Work(one, case.ids[:-3]), Work(other, case.ids[5:20])])
            for token in case.ids[-3:-1]:
                one.decode(token)
            assert np.array_equal(one.decode(case.ids[-1]), expected[-1])


def test_scale_zero_changes_nothing(llama: Case) -> None:
    logits = []
    for given in ((), [(llama.adapter, 0.0)]):
        with LoadedModel.load(llama.base, n_ctx=64, lora=given) as model:
            logits.append(model.sequence().logits_of(llama.ids))
    assert np.array_equal(*logits)


def test_states_belong_to_their_adapter(llama: Case, tmp_path: Path) -> None:
    state = tmp_path / "s.state"
    given = [(llama.adapter, SCALE)]
    with LoadedModel.load(llama.base, n_ctx=64, lora=given) as model:
        assert model.description.endswith(" + adapter:0.75")
        seq = model.sequence()
        seq.prefill(llama.ids)
        seq.save(state)
    with LoadedModel.load(llama.base, n_ctx=64, lora=given) as model:
        assert model.restore(state).tokens == llama.ids
    for other in ((), [(llama.adapter, 1.0)], given * 2):
        with (
            LoadedModel.load(llama.base, n_ctx=64, lora=other) as model,
            pytest.raises(StateError, match="was saved by"),
        ):
            model.restore(state)


def test_merging_into_bf16_rounds_once(llama: Case, tmp_path: Path) -> None:
    convert(llama.checkpoint, tmp_path / "bf16.gguf", outtype="bf16", tokenizer=llama.tokenizer)
    merge_lora(tmp_path / "bf16.gguf", [(llama.adapter, SCALE)], tmp_path / "merged.gguf")
    name, source = "blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight"
    a, b = (half.astype(np.float64) for half in llama.thin[source])
    with GGUFFile.open(tmp_path / "bf16.gguf") as base, GGUFFile.open(tmp_path / "merged.gguf") as got:
        assert list(got.metadata) == list(base.metadata) and list(got.tensors) == list(base.tensors)
        exact = base.f32(name) + SCALE * ALPHA / 20 * b @ a
        assert (np.abs(got.f32(name) - exact) <= np.abs(exact) * 2**-8).all()
        assert got.raw("blk.1.attn_norm.weight").tobytes() == base.raw("blk.1.attn_norm.weight").tobytes()
