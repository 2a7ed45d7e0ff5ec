"""Every field of vision_config and of a processor changes one of the two files, is refused by name, or is listed as
without effect; an absent field has transformers' default."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import config_fields
import pytest
import random_towers
from perturbed_configs import digest, other_values

from hybrid.convert.config_fields import without_effect
from hybrid.convert.plan import PreparedConversion, prepare
from hybrid.convert.vision import FAMILIES, TOWERS
from hybrid.quant.ggml.errors import CheckpointError, HybridError, UnsupportedError

NAMES = list(random_towers.CONFIGS)
FILES = ("config.json", "preprocessor_config.json", "processor_config.json")
_TEXT = ("text_config", "architectures", "vision_config")


class Folder:
    """The files of a checkpoint, converted repeatedly with other settings."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = random_towers.write(name, folder)
        self.settings = [json.loads((folder / file).read_text()) for file in FILES]
        self.plain = self.prepared(self.settings)
        self.digest = digest(self.plain)
        self.text = digest(prepare(self.folder, with_vocabulary=False))

    def prepared(self, settings: list[dict[str, Any]]) -> PreparedConversion:
        for file, content in zip(FILES, settings, strict=True):
            (self.folder / file).unlink(missing_ok=True)
            (self.folder / file).write_text(json.dumps(content))
        return prepare(self.folder, tower=True, with_vocabulary=False)

    def fault(self, path: str, settings: list[dict[str, Any]]) -> str:
        """Why the conversion with these settings is wrong; "" if it is right."""
        try:
            prepared = self.prepared(settings)
        except HybridError as error:
            return "" if str(error) else "an error without words"
        why = without_effect(prepared.family, path)
        if digest(prepared) != self.digest:
            return "" if why is None else f"changes the file, though: {why}"
        if not why and digest(prepare(self.folder, with_vocabulary=False)) != self.text:
            return ""
        ignored = any("is ignored, because" in note for note in prepared.plan.notes)
        return "" if why or ignored else "changes nothing, and nobody says why"


def changes(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(path, other value, the whole with only that changed)."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            for found, other, changed in changes(inner, f"{path}{key}."):
                yield found, other, {**value, key: changed}
        else:
            for other in other_values(key, inner):
                yield f"{path}{key}", other, {**value, key: other}


def all_changes(folder: Folder) -> Iterator[tuple[str, Any, list[dict[str, Any]]]]:
    """Changes of every field of the three files, and of fields that transformers' class of the tower has besides."""
    config, picture, outer = folder.settings
    known = config_fields.tower_fields()[config["architectures"][0]]
    own = {name: value for name, value in known.items() if value is not None}
    vision = {**config_fields.of_all(), **own, **config["vision_config"]}
    vision = {name: value for name, value in vision.items() if name not in ("architectures", "is_encoder_decoder")}
    for path, other, changed in changes(vision):
        yield f"vision_config.{path}", other, [{**config, "vision_config": changed}, picture, outer]
    for path, other, changed in changes({key: value for key, value in config.items() if key not in _TEXT}):
        yield path, other, [{**config, **changed}, picture, outer]
    for path, other, changed in changes(picture):
        yield path, other, [config, changed, outer]
    for path, other, changed in changes(outer):
        yield path, other, [config, picture, changed]


@pytest.mark.parametrize("name", NAMES)
def test_every_field_counts_is_refused_or_is_listed(name: str, tmp_path: Path) -> None:
    """At least one of a number's other values has to change something."""
    folder, wrong, right, tried = Folder(name, tmp_path / name), {}, set(), 0
    assert not [note for note in folder.plain.plan.notes if "unknown" in note]
    for path, other, settings in all_changes(folder):
        if path in right:
            continue
        tried += 1
        if fault := folder.fault(path, settings):
            wrong.setdefault(path, f"{path} = {other!r} {fault}")
        elif type(other) in (int, float):
            right.add(path)
    assert tried > 40
    assert [fault for path, fault in wrong.items() if path not in right] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_absent_field_is_its_default(name: str, tmp_path: Path) -> None:
    folder, wrong = Folder(name, tmp_path / name), []
    config, picture, outer = folder.settings
    for field, default in config_fields.tower_fields()[config["architectures"][0]].items():
        absent = {key: value for key, value in config["vision_config"].items() if key != field}
        try:
            without = digest(folder.prepared([{**config, "vision_config": absent}, picture, outer]))
        except HybridError:
            continue  # the tensors show another size than the default
        try:
            stated = folder.prepared([{**config, "vision_config": {**absent, field: default}}, picture, outer])
        except HybridError as error:
            wrong.append(f"{field}: absent is converted, though {error}")
            continue
        if digest(stated) != without:
            wrong.append(f"{field}: absent is not {default!r}")
    assert wrong == []


def test_unknown_fields_are_named(tmp_path: Path) -> None:
    folder = Folder("smolvlm", tmp_path / "m")
    config, picture, outer = folder.settings
    config["vision_config"]["wobble"] = 3
    notes = folder.prepared(
        [config, {**picture, "tint": 1, "size": {"longest_edge": 72, "depth": 2}}, outer]
    ).plan.notes
    assert notes == (
        "config.json: vision_config.wobble unknown for this architecture, and ignored",
        "preprocessor_config.json: size.depth, tint unknown for this architecture, and ignored",
    )


# fields of published checkpoints that transformers' classes do not have
PUBLISHED: dict[str, dict[str, Any]] = {
    "qwen25-vl": {
        "vision_token_id": 9, "vision": {"in_chans": 3, "spatial_patch_size": 6, "in_channels": None},
        "picture": {"processor_class": "Qwen2_5_VLProcessor", "default_to_square": True, "crop_size": None},
    },
    "smolvlm": {
        "vision": {
            "max_image_size": {"longest_edge": 24}, "size": {"longest_edge": 72}, "use_base_siglip": False,
            "tie_word_embeddings": False,
        },
    },
    "lfm2-vl": {
        "do_image_splitting": True, "encoder_patch_size": 4, "max_image_tokens": 16, "max_num_patches": 144,
        "max_pixels_tolerance": 1.5, "max_tiles": 5, "min_image_tokens": 4, "min_tiles": 3, "tile_size": 48,
        "use_thumbnail": True, "use_image_special_tokens": True, "vision_feature_layer": -1,
    },
    "gemma3-vl": {
        "picture": {
            "do_convert_rgb": None, "image_seq_length": 4, "do_pan_and_scan": None,
            "pan_and_scan_max_num_crops": None,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_fields_of_published_checkpoints(name: str, tmp_path: Path) -> None:
    folder = random_towers.write(name, tmp_path / name, **PUBLISHED[name])
    for tower in (True, False):
        notes = prepare(folder, tower=tower, with_vocabulary=False).plan.notes
        assert not [note for note in notes if "unknown" in note or "is ignored" in note]


def test_a_config_that_contradicts_its_processor(tmp_path: Path) -> None:
    folder = random_towers.write("lfm2-vl", tmp_path / "m", max_tiles=9)
    assert prepare(folder, tower=True).plan.notes == (
        "config.json: max_tiles is ignored, because preprocessor_config.json says otherwise",
    )
    folder = random_towers.write("smolvlm", tmp_path / "n", vision={"size": {"longest_edge": 9}})
    assert prepare(folder, tower=True).plan.notes == (
        "config.json: vision_config.size is ignored, because preprocessor_config.json says otherwise",
    )


REFUSED: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("qwen35-vl", {"vision": {"temporal_patch_size": 1}}, UnsupportedError, "temporal_patch_size = 1 is not supported"),
    ("qwen35-vl", {"vision": {"in_channels": 4}}, UnsupportedError, "in_channels = 4 is not supported, only 3 is"),
    ("qwen35-vl", {"vision": {"hidden_act": "gelu"}}, UnsupportedError, 'hidden_act = "gelu" is not supported'),
    ("qwen35-vl", {"vision": {"num_position_embeddings": 48}}, CheckpointError, "expected a square number"),
    ("qwen35-vl", {"vision": {"out_hidden_size": 19}}, CheckpointError, "expected the width of the text model, 18"),
    ("qwen35-vl", {"vision": {"num_heads": 3}}, CheckpointError, "expected a divisor of the width 20"),
    ("qwen35-vl", {"picture": {"patch_size": 7}}, UnsupportedError, "patch_size = 7 is not supported, only 6 is"),
    ("qwen35-vl", {"picture": {"resample": 4}}, CheckpointError, "resample = 4 .*expected an integer from 0 to 3"),
    ("qwen35-vl", {"picture": {"image_std": [1, 0, 1]}}, CheckpointError, "expected three numbers, each positive"),
    ("qwen35-vl", {"picture": {"image_mean": [1, 2]}}, CheckpointError, "expected three numbers"),
    ("qwen35-vl", {"picture": {"do_resize": False}}, UnsupportedError, "do_resize = false is not supported"),
    ("qwen35-vl", {"picture": {"min_pixels": 20000}}, CheckpointError, "image_min_pixels = 20000 is larger than"),
    (
        "qwen3-vl",
        {"vision": {"deepstack_visual_indexes": [2, 1]}},
        CheckpointError,
        "increasing numbers of the 4 layers",
    ),
    ("qwen25-vl", {"vision": {"fullatt_block_indexes": [4]}}, CheckpointError, "increasing numbers of the 4 layers"),
    ("qwen25-vl", {"vision": {"window_size": 17}}, CheckpointError, "expected at least the 18 pixels of a feature"),
    ("smolvlm", {"picture": {"max_image_size": {"longest_edge": 30}}}, UnsupportedError, "longest_edge = 30"),
    ("smolvlm", {"outer": {"image_seq_len": 5}}, UnsupportedError, "image_seq_len = 5 is not supported, only 4 is"),
    ("lfm2-vl", {"projector_hidden_act": "silu"}, UnsupportedError, "projector_hidden_act"),
    ("lfm2-vl", {"vision_feature_layer": -2}, UnsupportedError, "vision_feature_layer = -2 is not supported"),
    ("lfm2-vl", {"picture": {"min_tiles": 6}}, CheckpointError, "6 to 5 tiles, expected a minimum below the maximum"),
    ("lfm3-vl", {"vision": {"conv_kernel_size": 4}}, CheckpointError, "conv_kernel_size = 4 .*expected an odd number"),
    ("gemma3-vl", {"mm_tokens_per_image": 5}, UnsupportedError, "image_seq_length = 4 is not supported, only 5"),
    ("gemma3-vl", {"picture": {"size": {"height": 24, "width": 20}}}, UnsupportedError, "width = 20 is not supported"),
    ("gemma4-vl", {"vision": {"attention_bias": True}}, UnsupportedError, "attention_bias = true is not supported"),
    ("granite4-vision", {"vision": {"model_type": None}}, CheckpointError, "expected siglip_vision_model"),
    ("granite4-vision", {"vision_feature_select_strategy": "default"}, UnsupportedError, "only .full. is"),
    ("granite4-vision", {"downsample_rate": "2"}, CheckpointError, "expected two sides, such as 4/8"),
    ("granite4-vision", {"deepstack_layer_map": [[0, 0]]}, CheckpointError, "one of the 3 vision layers"),
    ("granite4-vision", {"deepstack_layer_map": [[2, 3]]}, CheckpointError, "text layers that differ, 0 among them"),
    ("granite4-vision", {"spatial_target_layers": [4, 9]}, CheckpointError, "numbers of the 5 text layers"),
]


@pytest.mark.parametrize(("name", "changed", "kind", "message"), REFUSED)
def test_refusals(name: str, changed: dict[str, Any], kind: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=message):
        prepare(random_towers.write(name, tmp_path / name, **changed), tower=True)


ODD: tuple[Any, ...] = (None, [], {}, "x", -1, 0, 1e30, 2**40, [None], [[1]], {"a": 1}, float("nan"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_odd_values_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    """Or without effect: no other error comes out, whatever a field holds."""
    folder = Folder(name, tmp_path / name)
    n = 0
    for at, file in enumerate(folder.settings):
        for path in places(file):
            if path[0] == "text_config" and len(path) > 1:
                continue
            for value in ODD:
                settings = json.loads(json.dumps(folder.settings))
                inner = settings[at]
                for step in path[:-1]:
                    inner = inner[step]
                inner[path[-1]] = value
                n += 1
                try:
                    folder.prepared(settings)
                except HybridError as error:
                    assert str(error) and "\n" not in str(error)
    assert n > 300


def places(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all fields, also of objects."""
    for key, inner in value.items():
        yield (*path, key)
        if isinstance(inner, dict):
            yield from places(inner, (*path, key))


def test_a_picture_s_side_may_be_no_whole_patches(tmp_path: Path) -> None:
    """SmolVLM's: 384 pixels in patches of 14."""
    folder = random_towers.write(
        "smolvlm", tmp_path / "m", vision={"image_size": 26}, picture={"max_image_size": {"longest_edge": 26}}
    )
    assert prepare(folder, tower=True).plan.metadata["clip.vision.image_size"] == 26


def test_towers_are_registered_once() -> None:
    assert len(TOWERS) == sum(len(tower.architectures) for tower in FAMILIES)
