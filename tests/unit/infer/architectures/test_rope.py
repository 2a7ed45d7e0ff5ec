"""RoPE scaling in llama.cpp's variants, and windows: the meaning of a file's keys."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import random_checkpoints
import tiny_models
from random_checkpoints import CONFIGS
from reference.families import Reference
from reference.rope_scaling import scaling
from tiny_models import D_HEAD, FAMILIES, Tensor, Tiny

from hybrid.convert import convert
from hybrid.infer import LoadedModel, Work
from hybrid.infer.architectures.rope import rope_of
from hybrid.infer.evaluate.embed import Embedder
from hybrid.infer.layers.attention import Rope
from hybrid.infer.loading.weights import Weights
from hybrid.quant.ggml.errors import FormatError, StateError, UnsupportedError
from hybrid.quant.ggml.families.rope import RopeHparams
from hybrid.quant.ggml.reader import GGUFFile

EXPERTS = {".expert_count": 3, ".expert_used_count": 2, ".expert_feed_forward_length": 8}
IDS = np.random.default_rng(5).integers(3, tiny_models.N_VOCAB, 40).tolist()
SHORT, LONG = [1.0, 1.1, 1.3, 1.4], [1.0, 2.5, 6.0, 17.0]
LONG_ROPE = {
    ".rope.scaling.type": "longrope",
    ".rope.scaling.original_context_length": 24,
    ".rope.scaling.attn_factor": 1.25,
}


def shared() -> Any:
    """The parts of Weights that a table needs, for texts that reach position 9."""
    tables: list[np.ndarray] = []

    def reaches(fill: Callable[[int], None]) -> None:
        fill(9)
        tables.append(fill.__self__.rows)  # type: ignore[attr-defined]

    return SimpleNamespace(shared={}, reaches=reaches, tables=tables)


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """file(keys, change=..., arch=...) -> a tiny Llama with these additional keys."""

    def make(keys: dict[str, Any], change: Callable[[Tiny], object] | None = None, arch: str = "llama") -> Path:
        tiny = FAMILIES["llama"]()
        if arch != "llama":
            key_values = {key.replace("llama.", f"{arch}."): value for key, value in tiny.key_values.items()}
            tiny = Tiny(arch, key_values, tiny.tensors)
            tiny.set("general.architecture", arch)
        for key, value in keys.items():
            tiny.set(key, value)
        if change:
            change(tiny)
        n = len(list(tmp_path.iterdir()))
        return tiny.write(tmp_path / f"{n}.gguf")

    return make


def long_factors(tiny: Tiny) -> None:
    tiny.tensors["rope_factors_long.weight"] = Tensor(np.float32(LONG))
    tiny.tensors["rope_factors_short.weight"] = Tensor(np.float32(SHORT))


def logits(path: Path, n_ctx: int = 64, ids: list[int] = IDS) -> np.ndarray:
    with LoadedModel.load(path, n_ctx=n_ctx, n_threads=1, precision="exact") as model:
        return model.sequence().logits_of(ids)


def test_a_table_for_every_set_of_factors() -> None:
    w = shared()
    plain, one, other = (Rope(8, 1e4, factors=f) for f in (None, np.float32(SHORT), np.float32(LONG)))
    stronger = Rope(8, 1e4, factors=np.float32(SHORT), magnitude=1.5)
    tables = [rope.table(w, 16) for rope in (plain, one, other, stronger)]
    assert len(set(tables)) == 4
    assert Rope(8, 1e4, factors=np.float32(LONG)).table(w, 16) == tables[2]
    np.testing.assert_allclose(w.tables[2][3, :, 0], np.cos(3 * 1e4 ** (-np.arange(4) / 4) / LONG), atol=1e-7)
    np.testing.assert_allclose(w.tables[3], 1.5 * w.tables[1], rtol=1e-6)


@pytest.mark.parametrize(("n_ctx", "factors"), [(24, SHORT), (25, LONG), (64, LONG)])
def test_long_rope(n_ctx: int, factors: list[float], file: Callable[..., Path]) -> None:
    """Equals one set of factors in Llama 3's tensor, for short texts as for long ones."""

    def one_set(tiny: Tiny) -> None:
        tiny.tensors["rope_freqs.weight"] = Tensor(np.float32(factors))

    expected = logits(file({".rope.scaling.attn_factor": 1.25}, one_set), n_ctx, IDS[:20])
    np.testing.assert_array_equal(logits(file(LONG_ROPE, long_factors), n_ctx, IDS[:20]), expected)
    assert np.abs(expected - logits(file({}, one_set), n_ctx, IDS[:20])).max() > 1e-3


def test_a_state_belongs_to_its_frequencies(file: Callable[..., Path], tmp_path: Path) -> None:
    path = file(LONG_ROPE, long_factors)
    with LoadedModel.load(path, n_ctx=24, n_threads=1) as model:
        seq = model.sequence()
        seq.prefill(IDS[:9])
        seq.save(tmp_path / "short.state")
    with LoadedModel.load(path, n_ctx=20, n_threads=1) as model:
        model.restore(tmp_path / "short.state")
    says = r"saved by 'tiny llama F32', not by .*'tiny llama F32 \(long RoPE\)'"
    with LoadedModel.load(path, n_ctx=25, n_threads=1) as model, pytest.raises(StateError, match=says):
        model.restore(tmp_path / "short.state")


def test_an_embedding_is_that_of_the_context_asked_for(file: Callable[..., Path]) -> None:
    """An embedder loads the model for its longest text, but frequencies follow the requested context."""
    path, long = file(LONG_ROPE, long_factors), IDS[:30]
    for n_ctx, texts in ((64, [IDS[:9], long]), (24, [IDS[:9]])):
        with Embedder(path, n_ctx=n_ctx, n_threads=1, precision="exact") as embedder:
            alone = embedder.embed_ids([IDS[:9]])
            np.testing.assert_array_equal(embedder.embed_ids(texts)[:1], alone)
        with LoadedModel.load(path, n_ctx=n_ctx, n_threads=1, precision="exact") as model:
            hidden = model.runner.hidden_states([Work(model.sequence(), IDS[:9], slice(-1, None))])[0][0]
        np.testing.assert_allclose(alone[0], hidden / np.linalg.norm(hidden), atol=1e-6)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40}
GGUF_YARN = {
    ".rope.scaling.type": "yarn",
    ".rope.scaling.factor": 4.0,
    ".rope.scaling.original_context_length": 40,
    ".rope.freq_base": 90.0,
}


@pytest.mark.parametrize(
    ("keys", "settings"),
    [
        ({}, {}),
        ({"yarn_beta_fast": 3.0, "yarn_beta_slow": 0.5}, {"beta_fast": 3.0, "beta_slow": 0.5}),
        ({"yarn_attn_factor": 1.4}, {"attention_factor": 1.4}),  # as llama.cpp's converter writes it
        ({"yarn_log_multiplier": 0.6}, {"mscale": 1.0, "mscale_all_dim": 0.6}),
        ({"attn_factor": 1.5}, {"attention_factor": 1.5 * (0.1 * np.log(4) + 1)}),
        ({"yarn_ext_factor": 1.0}, {}),
    ],
)
def test_yarn(keys: dict[str, float], settings: dict[str, float], file: Callable[..., Path]) -> None:
    path = file({**GGUF_YARN, **{f".rope.scaling.{key}": value for key, value in keys.items()}})
    with GGUFFile.open(path) as gguf:
        rope = rope_of(RopeHparams.read(gguf, "llama"), Weights(gguf), D_HEAD, 0)
    factors, magnitude = scaling({"rope_parameters": {**YARN, **settings}}, D_HEAD, 90.0, 1)
    np.testing.assert_allclose(rope.factors, factors, rtol=1e-6)
    assert 1 < factors[1] < 4  # a ramp
    assert rope.magnitude == pytest.approx(magnitude, rel=1e-6)


def test_yarn_with_bounds_between_pairs(file: Callable[..., Path]) -> None:
    with GGUFFile.open(file({**GGUF_YARN, "hybrid.rope.scaling.truncate": False})) as gguf:
        rope = rope_of(RopeHparams.read(gguf, "llama"), Weights(gguf), D_HEAD, 0)
    factors, _ = scaling({"rope_parameters": {**YARN, "truncate": False}}, D_HEAD, 90.0, 1)
    np.testing.assert_allclose(rope.factors, factors, rtol=1e-6)
    assert not np.allclose(factors, scaling({"rope_parameters": YARN}, D_HEAD, 90.0, 1)[0])


def without_norms(tiny: Tiny) -> None:
    for name in [name for name in tiny.tensors if "norm" in name and name.startswith("blk")]:
        tiny.tensors[name.replace("attn_norm", "post_attention_norm").replace("ffn_norm", "post_ffw_norm")] = (
            tiny.tensors.pop(name)
        )
    for i in range(2):
        for part, n in (("q", 32), ("k", 16)):
            tiny.tensors[f"blk.{i}.attn_{part}_norm.weight"] = Tensor(np.linspace(0.5, 1.5, n, dtype=np.float32))


def test_windows_per_layer(file: Callable[..., Path]) -> None:
    """A token sees the last N tokens, itself included; older tokens than all layers together reach are forgotten."""
    whole = logits(file({}))
    for key, reach in ((5, 9), ([5, 5], 9), ([5, 1], 5)):
        cut = logits(file({"hybrid.attention.sliding_window": key}))
        np.testing.assert_array_equal(cut[:5] if key == 5 else cut[:1], whole[:5] if key == 5 else whole[:1])
        assert np.abs(cut[reach:] - whole[reach:]).max() > 1e-3
        # unscaled rotations see distances alone, so the same end gives the same logits wherever it stands
        other = logits(file({"hybrid.attention.sliding_window": key}), ids=[7] * (40 - reach) + IDS[-reach:])
        np.testing.assert_allclose(cut[-1], other[-1], atol=1e-5)
        before = logits(file({"hybrid.attention.sliding_window": key}), ids=[7] * (41 - reach) + IDS[1 - reach :])
        assert np.abs(cut[-1] - before[-1]).max() > 1e-4


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_llama_cpp_has_no_windows_here(arch: str, file: Callable[..., Path]) -> None:
    """llama.cpp ignores its own window key here (its PR 13676); files must run as they do there."""
    np.testing.assert_array_equal(
        logits(file({".attention.sliding_window": 5}, arch=arch)), logits(file({}, arch=arch))
    )


def test_olmo_3_in_the_files_of_llama_cpp(file: Callable[..., Path]) -> None:
    """Three of four layers have a window and unscaled rotations, unless the file says which."""
    scaled = {".rope.scaling.type": "linear", ".rope.scaling.factor": 2.0}
    plain, stretched = (logits(file(keys, without_norms, "olmo2")) for keys in ({}, scaled))
    windows = {".attention.sliding_window": 5}
    cut = logits(file(windows, without_norms, "olmo2"))
    np.testing.assert_array_equal(cut[:5], plain[:5])
    assert np.abs(cut[9:] - plain[9:]).max() > 1e-4
    # both of the two layers are local, so nothing is scaled
    np.testing.assert_array_equal(logits(file({**windows, **scaled}, without_norms, "olmo2")), cut)
    none = {**windows, ".attention.sliding_window_pattern": 1, **scaled}
    np.testing.assert_array_equal(logits(file(none, without_norms, "olmo2")), stretched)
    one = {**windows, ".attention.sliding_window_pattern": [False, True]}
    assert np.abs(logits(file(one, without_norms, "olmo2")) - cut).max() > 1e-4


@pytest.mark.parametrize(
    ("arch", "keys", "message"),
    [
        ("llama", {"hybrid.attention.sliding_window": [5, 5, 5]}, "has 3 values for 2 layers"),
        ("llama", {"hybrid.attention.sliding_window": "5"}, "an integer, or one for every layer"),
        ("llama", {"hybrid.attention.sliding_window": [5.0, 5.0]}, "an integer, or one for every layer"),
        ("llama", {"hybrid.rope.scaling.truncate": 0}, "expected true or false"),
        ("olmo2", {".attention.sliding_window_pattern": [True]}, "has 1 values for 2 layers"),
        ("olmo2", {".attention.sliding_window_pattern": [2, 1]}, "a number of layers, or true or false for every"),
        ("olmo2", {".attention.sliding_window_pattern": True}, "a number of layers, or true or false for every"),
        ("llama", {**GGUF_YARN, ".rope.freq_base": 1.0}, "rope.freq_base = 1.0, expected more than 1"),
        ("llama", {**GGUF_YARN, ".rope.scaling.yarn_beta_slow": 0.0}, "yarn_beta_slow = 0.0, expected a positive"),
        ("llama", {**GGUF_YARN, ".rope.dimension_count": 1 << 30}, "expected at most 65536"),
        ("llama", {".rope.scaling.attn_factor": 0.0}, "attn_factor = 0.0, expected a positive number"),
        (
            "mistral3",
            {".attention.temperature_scale": -0.5},
            "temperature_scale = -0.5, expected a finite numb",
        ),
        ("gpt-oss", {**EXPERTS, "hybrid.expert_swiglu_limit": 0.0}, "expert_swiglu_limit = 0.0, expected a finite num"),
        ("gpt-oss", {**EXPERTS, ".attention.sliding_window_pattern": [True]}, "has 1 values for 2 layers"),
        ("gpt-oss", EXPERTS, "has no tensor blk.0.attn_sinks.weight"),
    ],
)
def test_what_is_refused(arch: str, keys: dict[str, Any], message: str, file: Callable[..., Path]) -> None:
    with pytest.raises(FormatError, match=message) as error:
        logits(file(keys, without_norms if arch == "olmo2" else None, arch))
    assert "\n" not in str(error.value)


def test_other_scalings_are_named(file: Callable[..., Path]) -> None:
    with pytest.raises(UnsupportedError, match="'dynamic' is not supported, only none, linear, yarn and longrope are"):
        logits(file({".rope.scaling.type": "dynamic"}))


@pytest.mark.parametrize("missing", ["long", "short"])
def test_both_sets_of_factors_must_be_there(missing: str, file: Callable[..., Path]) -> None:
    def change(tiny: Tiny) -> None:
        long_factors(tiny)
        del tiny.tensors[f"rope_factors_{missing}.weight"]

    with pytest.raises(FormatError, match=f"rope_factors_{missing}"):
        logits(file(LONG_ROPE, change))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "falcon-h1", "lfm2", "qwen3next", "qwen35", "llama-biased", "qwen2", "qwen3moe", "gemma2", "phi3", "olmo2",
        "olmoe", "starcoder2", "phi2", "granite-attention", "granite-4-attention", "openelm",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_every_architecture_that_turns_obeys_the_scaling(
    name: str, kind: str, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scaling keys count for every family, even if our converter writes none for it. Against the model in float64."""
    folder = random_checkpoints.write(CONFIGS[name], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    family = type(random_checkpoints.family_for(config))
    usual, keys = family.keys, {"type": kind, "factor": 4.0, "original_context_length": 100}
    more = [(f"rope.scaling.{key}", value) for key, value in keys.items()]
    monkeypatch.setattr(family, "keys", lambda self, file_type: [*usual(self, file_type), *more])
    convert(folder, tmp_path / "o.gguf", outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    tensors = random_checkpoints.tensors(config)
    config.setdefault("rope_parameters", {}).update(
        {**YARN, "rope_type": kind, "original_max_position_embeddings": 100}
    )
    expected = Reference(config, tensors).logits(IDS)
    error = np.abs(logits(tmp_path / "o.gguf") - expected).max() / np.abs(expected).max()
    print(f"{name}: {error:.1e} of the largest logit")
    assert error < 2e-5


@pytest.mark.parametrize("window", [40, 41, 2**31 - 1])
def test_a_window_that_is_not_reached_changes_nothing(window: int, file: Callable[..., Path]) -> None:
    logits = []
    for path in (file({"hybrid.attention.sliding_window": window}), file({})):
        with LoadedModel.load(path, n_ctx=64, n_threads=2) as model:
            logits.append(model.sequence().logits_of(IDS))
    assert len(IDS) == 40
    np.testing.assert_array_equal(*logits)


def test_sections_change_no_text(file: Callable[..., Path]) -> None:
    plain = logits(file({}, arch="qwen2vl"))
    np.testing.assert_array_equal(logits(file({".rope.dimension_sections": [2, 1, 1, 0]}, arch="qwen2vl")), plain)
    with LoadedModel.load(file({".rope.dimension_sections": [1, 1, 2]}, arch="qwen2vl"), n_ctx=64) as model:
        assert model.memory.has_axes
    with LoadedModel.load(file({}, arch="qwen2vl"), n_ctx=64) as model:
        assert not model.memory.has_axes


@pytest.mark.parametrize("wrong", [[1, 2], [2, 1, 1, 0, 0], [0, 0, 0], 4, "x", [1.5, 1.5, 1.0], [1 << 20] * 3])
def test_bad_sections(wrong: Any, file: Callable[..., Path]) -> None:
    with pytest.raises(FormatError, match=r"qwen2vl\.rope\.dimension_sections = .*, expected 3 or 4 numbers of pairs"):
        LoadedModel.load(file({".rope.dimension_sections": wrong}, arch="qwen2vl"), n_ctx=64)
