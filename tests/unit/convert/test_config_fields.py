"""Every field of a config is used or reported: docs/config-fields.md, convert/config_fields.py."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import config_examples
import config_fields
import numpy as np
import pytest
import random_checkpoints
from config_examples import examples
from perturbed_configs import Conversion, digest, faults, perturbed

from hybrid.convert.architectures import ARCHITECTURES, FAMILIES
from hybrid.convert.architectures.bert import POSITIONS
from hybrid.convert.config_fields import REFUSED, WITHOUT_EFFECT
from hybrid.convert.plan import prepare
from hybrid.quant.ggml.errors import HybridError, UnsupportedError

EXAMPLES = examples()
BUNDLED = ("falcon-mamba", "jamba-dense", "llama-unigram-bin", "mamba-bf16")
# The inner loop keeps examples that differ in how a config says what a model is: kinds of layers, RoPE, nested configs
QUICK = {
    "jamba",
    "granite-hybrid",
    "gemma3-pictures",
    "llama-yarn",
    "rwkv7",
    "mamba2",
    "bert",
}


# one for each family; others differ in settings that it reads by the same lines
FIRST = {
    ARCHITECTURES[config["architectures"][0]]: name
    for name, config in sorted(EXAMPLES.items(), key=lambda example: example[0] in QUICK)
}


def chosen(names: Iterable[str], others: pytest.MarkDecorator | None = None) -> list[Any]:
    """One example per family; `others` marks the rest, which are skipped if it is missing."""
    marks = {name: () if name in QUICK else (pytest.mark.exhaustive,) for name in FIRST.values()}
    rest = {} if others is None else {name: (others,) for name in names if name not in marks}
    return [pytest.param(name, marks=(marks | rest)[name]) for name in names if name in marks | rest]


def written(config: dict[str, Any], folder: Path) -> Path:
    """A checkpoint of random weights for an unchanged config."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    tensors = random_checkpoints.tensors(config)
    missing = config.get("max_position_embeddings", 0) - len(tensors.get(POSITIONS, ()))
    if POSITIONS in tensors and missing:  # ids that no token has
        tensors[POSITIONS] = np.pad(tensors[POSITIONS], ((missing, 0), (0, 0)))
    random_checkpoints.save_file(tensors, folder / "model.safetensors")
    return folder


def copied(source: Path, config: str, folder: Path) -> Conversion:
    """A checkpoint with one of its configs; its weights are linked."""
    folder.mkdir(exist_ok=True)
    for path in source.iterdir():
        if path.suffix in (".safetensors", ".bin") or path.name.endswith(".index.json"):
            (folder / path.name).symlink_to(path.resolve())
    shutil.copyfile(source / config, folder / "config.json")
    return Conversion(folder)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Any:
    """Example `name` with changed settings."""

    def make(name: str, **settings: Any) -> Path:
        folder = written(EXAMPLES[name], tmp_path / name)
        (folder / "config.json").write_text(json.dumps({**EXAMPLES[name], **settings}))
        return folder

    return make


def notes(folder: Path) -> str:
    return "\n".join(prepare(folder, with_vocabulary=False).plan.notes)


def keys(folder: Path) -> dict[str, Any]:
    return prepare(folder, with_vocabulary=False).plan.metadata


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_every_field_is_known(architecture: str) -> None:
    assert config_examples.fields(architecture).unknown == []


@pytest.mark.parametrize("name", chosen(EXAMPLES))
def test_another_value_is_used_refused_or_without_effect(name: str, tmp_path: Path) -> None:
    assert faults(Conversion(written(EXAMPLES[name], tmp_path / "model")), every=False) == []


@pytest.mark.matrix
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_other_value_is_used_refused_or_without_effect(name: str, tmp_path: Path) -> None:
    assert faults(Conversion(written(EXAMPLES[name], tmp_path / "model"))) == []


@pytest.mark.parametrize("name", BUNDLED)
@pytest.mark.parametrize("config", ["config.json", pytest.param("config.legacy.json", marks=pytest.mark.exhaustive)])
def test_fields_of_a_real_checkpoint(name: str, config: str, data_dir: Path, tmp_path: Path) -> None:
    conversion = copied(data_dir / "checkpoints" / name, config, tmp_path)
    assert not [note for note in conversion.plain.plan.notes if "unknown for this" in note]
    assert faults(conversion) == []


QUARTERS = 4


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.parametrize("quarter", range(QUARTERS))
def test_fields_of_the_reference_checkpoints(quarter: int, shared_dir: Path, tmp_path: Path) -> None:
    """One of each class and spelling. In quarters, so that the work is divided among processes."""
    by_field: dict[str, list[str]] = {}
    seen: set[tuple[str, str]] = set()
    for path in sorted((shared_dir / "checkpoints").glob("*/config*.json")):
        kind = json.loads(path.read_text())["architectures"][0], path.stem
        if kind[0] in ARCHITECTURES and kind not in seen:
            seen.add(kind)
            if len(seen) % QUARTERS != quarter:
                continue
            name = f"{path.parent.name}-{path.stem}"
            conversion = copied(path.parent, path.name, tmp_path / name)
            unknown = [note for note in conversion.plain.plan.notes if "unknown for this" in note]
            by_field[name] = unknown + faults(conversion)
    assert len(seen) > 30 and len(by_field) >= len(seen) // QUARTERS
    assert {name: wrong for name, wrong in by_field.items() if wrong} == {}


@pytest.mark.parametrize(
    "name",
    chosen([n for n, c in EXAMPLES.items() if config_fields.has_class(c["architectures"][0])], pytest.mark.matrix),
)
def test_an_absent_field_is_its_default(name: str, tmp_path: Path) -> None:
    """transformers' default; if the tensors have other sizes, the config may be refused instead."""
    conversion = Conversion(written(EXAMPLES[name], tmp_path / "model"))
    wrong = []
    for field, default in config_fields.known_fields()[EXAMPLES[name]["architectures"][0]].items():
        if field == "text_config" or field in conversion.plain.family.conditional:
            continue
        absent = {key: value for key, value in EXAMPLES[name].items() if key != field}
        try:
            without = digest(conversion.prepared(absent))
        except HybridError:
            continue
        try:
            if digest(conversion.prepared({**absent, field: default})) != without:
                wrong.append(f"{field}: absent is not {default!r}")
        except UnsupportedError as error:
            wrong.append(f"{field}: absent is converted, though {error}")
        except HybridError:
            pass  # the tensors' shapes show another size than the default
    assert wrong == []


@pytest.mark.exhaustive
def test_conditional_fields_are_used_somewhere(tmp_path: Path) -> None:
    """Each is used where its condition holds, as a config with another value shows."""
    unused = {
        (family, name)
        for family in FAMILIES
        for name, when in family.conditional.items()
        if name != "tie_word_embeddings" and "tensors" not in when  # which a complete checkpoint shows
    }
    for example, config in EXAMPLES.items():
        family = ARCHITECTURES[config["architectures"][0]]
        if all(other is not family for other, _ in unused):
            continue
        conversion = Conversion(written(config, tmp_path / example))
        for path, other, _ in perturbed(config):
            key = (family, path.rpartition(".")[2])
            if key in unused and conversion.changes(other):
                unused.discard(key)
    known = {family: set(_all_names(family)) for family in FAMILIES}
    assert {(family.__name__, name) for family, name in unused if name in known[family]} == set()


def _all_names(family: type) -> list[str]:
    fields = config_fields.known_fields()
    own = [fields[name] for name, other in ARCHITECTURES.items() if other is family]
    return [name for names in own for name in (*names, *(names.get("text_config") or ()))]


def test_a_reason_stands_in_one_place() -> None:
    general = [name for names in WITHOUT_EFFECT.values() for name in names]
    assert len(general) == len(set(general))
    for family in FAMILIES:
        assert not set(family.without_effect) & set(general), family
        assert not set(family.without_effect) & set(family.conditional), family


def test_a_field_that_nobody_knows_is_named(checkpoint: Any) -> None:
    folder = checkpoint("jamba", mamba_turbo=3, use_secret_norm=True, nothing=None, rms_norm_eps=1e-6)
    assert "config.json: mamba_turbo, use_secret_norm unknown for this architecture, and ignored" in notes(folder)


def test_fields_within_an_object_are_named_by_their_path(checkpoint: Any) -> None:
    folder = checkpoint("starcoder2", rope_parameters={"rope_theta": 1e4, "rope_type": "default", "wobble": 0.5})
    assert "config.json: rope_parameters.wobble unknown" in notes(folder)


def test_many_unknown_fields_are_counted(checkpoint: Any) -> None:
    folder = checkpoint("jamba", **{f"field_{i}": i for i in range(20)})
    assert "field_7 and 12 more unknown for this architecture" in notes(folder)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("gpt2", {"n_ctx": 7}, "n_ctx is ignored, because n_positions says otherwise"),
        ("gpt2", {"n_embd": 96, "hidden_size": 96}, ""),
        ("jamba", {"layer_norm_epsilon": 1e-2, "rms_norm_eps": 1e-6}, "layer_norm_epsilon is ignored, because rms_n"),
        (
            "qwen3next",
            {"rope_parameters": {"rope_theta": 5.0}},
            "rope_theta is ignored, because rope_parameters.rope_t",
        ),
        ("lfm2", {"tie_embedding": True, "tie_word_embeddings": False}, "tie_word_embeddings is ignored, because tie_"),
    ],
)
def test_spellings_that_contradict(name: str, settings: dict[str, Any], expected: str, checkpoint: Any) -> None:
    said = notes(checkpoint(name, **settings))
    assert expected in said if expected else "is ignored" not in said


def test_all_fields_of_published_kinds_are_known(checkpoint: Any) -> None:
    folder = checkpoint(
        "jamba",
        torch_dtype="bfloat16",
        _name_or_path="x",
        auto_map={"AutoModel": "y"},
        use_cache=True,
        transformers_version="4.46.0",
        initializer_range=0.02,
        output_router_logits=False,
        temperature=0.7,
    )
    assert "unknown" not in notes(folder)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        *(("llama-biased", {key: {"0": 1} if key == "per_layer_config" else True}, key) for key in REFUSED),
        # names in a published config of transformers 4
        *(
            (name, {"rope_scaling": {"type": "linear", "factor": 2.0}}, 'type = "linear" is not supported')
            for name in ("bamba", "falcon-h1", "granite-hybrid", "lfm2", "olmo-hybrid-turned", "recurrentgemma")
        ),
        *((name, {"head_dim": 6}, "head_dim = 6 is not supp") for name in ("jamba", "lfm2", "bamba", "granitemoe")),
        ("falcon-h1", {"mamba_use_mlp": False}, "mamba_use_mlp"),
        ("falcon-h1", {"attn_layer_indices": [1]}, "attn_layer_indices"),
        ("gemma3-pictures", {"tie_word_embeddings": False}, "tie_word_embeddings = false is not supported, only true"),
        ("qwen35-pictures", {"tie_word_embeddings": True}, "tie_word_embeddings = true is not supported, only false"),
        ("granitemoe", {"position_embedding_type": "nope"}, 'position_embedding_type = "nope" is not supported'),
        ("granite-hybrid", {"normalization_function": "layernorm"}, "normalization_function"),
        ("lfm2", {"use_pos_enc": False}, "use_pos_enc = false"),
        ("mamba", {"attn_layer_idx": [1]}, "attn_layer_idx = .1. is not supported"),
        ("mamba", {"d_intermediate": 8}, "d_intermediate = 8 is not supported"),
        ("olmoe", {"sliding_window": 9}, "sliding_window = 9 is not supported"),
        ("openelm", {"normalization_layer_name": "layer_norm"}, "normalization_layer_name"),
        ("recurrentgemma", {"embeddings_scale_by_sqrt_dim": False}, "embeddings_scale_by_sqrt_dim"),
        ("rwkv7", {"attn": {"layers": [1]}}, "attn = "),
        ("rwkv7-world", {"attention_hidden_size": 48}, "attention_hidden_size = 48"),
        ("rwkv6qwen2", {"use_rope": True}, "use_rope = true is not supported, only false is"),
        ("rwkv6qwen2", {"groupnorm_att": True}, "groupnorm_att = true"),
        ("rwkv6qwen2", {"balance_state": False}, "balance_state = false"),
        ("rwkv6qwen2", {"gate_rank_type": 2}, "gate_rank_type = 2"),
    ],
)
def test_what_was_ignored_is_refused(name: str, settings: dict[str, Any], message: str, checkpoint: Any) -> None:
    if name == "qwen35-pictures":
        settings["text_config"] = {**EXAMPLES[name]["text_config"], "tie_word_embeddings": False}
    with pytest.raises(UnsupportedError, match=message):
        prepare(checkpoint(name, **settings), with_vocabulary=False)


@pytest.mark.parametrize(
    ("name", "settings", "key", "expected"),
    [
        ("gpt2", {"n_head": None, "num_attention_heads": 4}, "gpt2.attention.head_count", 4),
        ("jamba", {"layer_norm_epsilon": 1e-2, "rms_norm_eps": 1e-4}, "jamba.attention.layer_norm_rms_epsilon", 1e-4),
        ("lfm2", {"block_ff_dim": 200, "intermediate_size": 999}, "lfm2.feed_forward_length", 160),
        ("falcon-mamba", {"model_type": None}, "mamba.ssm.dt_b_c_rms", True),
        ("granite-4-attention", {"position_embedding_type": None}, "granite.rope.scaling.finetuned", False),
        ("granitemoe", {}, "granitemoe.rope.scaling.finetuned", True),
        ("rwkv6", {"head_size_divisor": 4}, "rwkv6.wkv.norm_epsilon", 16e-5),
        ("rwkv7", {}, "rwkv7.wkv.norm_epsilon", 32e-5),
        ("rwkv7-world", {}, "rwkv7.wkv.norm_epsilon", None),
        ("arwkv7", {"head_size_divisor": 16}, "arwkv7.wkv.norm_epsilon", 256e-5),
        ("recurrentgemma", {"sliding_window": 9}, "recurrentgemma.attention.sliding_window", 9),
        ("olmoe", {"num_experts": None, "num_local_experts": 7}, "olmoe.expert_count", 7),
        ("olmo2", {"rms_norm_eps": None}, "olmo2.attention.layer_norm_rms_epsilon", 1e-5),
        ("phi2", {"layer_norm_eps": None}, "phi2.attention.layer_norm_epsilon", 1e-5),
    ],
)
def test_what_was_ignored_is_used(
    name: str, settings: dict[str, Any], key: str, expected: Any, checkpoint: Any
) -> None:
    value = keys(checkpoint(name, **settings)).get(key)
    assert value == (expected if expected is None or isinstance(expected, (bool, int)) else pytest.approx(expected))


def test_a_model_of_mamba2_is_untied_unless_it_says_so(tmp_path: Path) -> None:
    """As in transformers; state-spaces' own configs, with ssm_cfg, are tied."""
    config = {"model_type": "mamba2", **EXAMPLES["mamba2"]}
    del config["tie_word_embeddings"]
    assert "output.weight" in [
        t.name for t in prepare(written(config, tmp_path / "m"), with_vocabulary=False).plan.tensors
    ]
