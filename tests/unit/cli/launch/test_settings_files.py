"""Files of settings with ours added."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from hybrid.cli.launch.settings_files import JSONSettings, SettingsFile, YAMLSettings, others_read, write
from hybrid.quant.ggml.errors import UsageError


@pytest.mark.parametrize(
    ("old", "ours", "wanted"),
    [
        ("", {"a": 1}, {"a": 1}),
        ("  \n", {"a": 1}, {"a": 1}),
        ('{"b": 2}', {"a": 1}, {"b": 2, "a": 1}),
        ('{"a": {"x": 1, "y": 2}, "b": null}', {"a": {"y": 3, "z": {}}}, {"a": {"x": 1, "y": 3, "z": {}}, "b": None}),
        ('{"a": "text"}', {"a": {"x": 1}}, {"a": {"x": 1}}),
        ('{"a": [{"id": "m", "n": 1}, {"id": "o"}, 5]}', {"a": [{"id": "m", "n": 2}]},
         {"a": [{"id": "m", "n": 2}, {"id": "o"}, 5]}),
        ('{"a": ["x", "y"]}', {"a": ["y"]}, {"a": ["y", "x"]}),
    ],
)  # fmt: skip
def test_json(tmp_path: Path, old: str, ours: dict[str, Any], wanted: dict[str, Any]) -> None:
    settings = JSONSettings(tmp_path / "a.json", values=ours)
    new = settings.merged(old)
    assert json.loads(new) == wanted and new.endswith("}\n")
    assert [*json.loads(new)] == [*wanted], "the order stays"
    assert settings.merged(new) == new, "once is enough"
    assert json.loads(settings.shown) == ours


@pytest.mark.parametrize(
    ("old", "wanted"),
    [
        ("", 'model: "m"\nn: 5\n'),
        ("# mine\nmodel: x  # old\nread:\n  - a.md\n", '# mine\nmodel: "m"\nread:\n  - a.md\nn: 5\n'),
        ("n : 4\nmodels: x\n\nmodel: 'y'", 'n: 5\nmodels: x\n\nmodel: "m"\n'),
        ("# only a comment\n", '# only a comment\nmodel: "m"\nn: 5\n'),
    ],
)
def test_yaml(tmp_path: Path, old: str, wanted: str) -> None:
    settings = YAMLSettings(tmp_path / "a.yml", values={"model": "m", "n": 5})
    assert settings.merged(old) == wanted and settings.merged(wanted) == wanted
    assert yaml.safe_load(settings.shown) == {"model": "m", "n": 5}


def test_texts_of_yaml_are_quoted(tmp_path: Path) -> None:
    values = {"a": 'org/na"me: #5', "b": "über\n{x}", "c": "no"}
    assert yaml.safe_load(YAMLSettings(tmp_path / "a", values=values).shown) == values


@pytest.mark.parametrize(
    ("kind", "old", "says"),
    [
        (JSONSettings, '{"a": 1, // comment\n}', "it is not JSON (Expecting property name"),
        (JSONSettings, "[1]", "it is not a JSON object"),
        (YAMLSettings, "- a\n- b\n", "it is not YAML with keys"),
        (YAMLSettings, "a: [1\n", "it is not YAML with keys"),
        (YAMLSettings, "a:\n  b: 1\n", "its lines cannot be changed one by one"),
        (YAMLSettings, "a: >\n  one\n  two\n", "its lines cannot be changed one by one"),
        (YAMLSettings, "x: |\n  y\n? a\n: 1\n", "its lines cannot be changed one by one"),
        (YAMLSettings, '"a": 1\n', "its lines cannot be changed one by one"),
    ],
)  # fmt: skip
def test_what_cannot_be_changed_is_left_alone(tmp_path: Path, kind: Any, old: str, says: str) -> None:
    path = tmp_path / "settings"
    path.write_text(old)
    with pytest.raises(UsageError) as error:
        write(kind(path, values={"a": 5}))
    assert str(error.value).startswith(f"{path} is left alone: {says}") and "\n" not in str(error.value)
    assert path.read_text() == old and [*tmp_path.iterdir()] == [path]


def test_writing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.json"
    assert write(JSONSettings(path, values={"a": 1})) == f"wrote {path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and not others_read(path)
    assert write(JSONSettings(path, values={"a": 1})) == f"{path} has these settings already"
    path.chmod(0o644)
    for number in (2, 3):
        backup = f"{path}.before-hybrid{'-2' if number == 3 else ''}"
        assert write(JSONSettings(path, values={"a": number})) == f"wrote {path}; the old one is {backup}"
        assert json.loads(Path(backup).read_text()) == {"a": number - 1}
    assert stat.S_IMODE(path.stat().st_mode) == 0o644 and others_read(path), "as its owner has it"
    assert json.loads(path.read_text()) == {"a": 3} and len([*path.parent.iterdir()]) == 3


def test_a_link_stays(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").write_text("{}")
    link = tmp_path / "a.json"
    link.symlink_to("dotfiles")
    write(JSONSettings(link, values={"a": 1}))
    assert link.is_symlink() and json.loads((tmp_path / "dotfiles").read_text()) == {"a": 1}


def test_a_file_of_our_own_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "hybrid.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"hybrid\.toml is left alone: it is not UTF-8\. Add the settings by hand"):
        write(SettingsFile(path, "a = 1\n"))
    path.write_text("a = 2\n")
    assert "the old one is" in write(SettingsFile(path, "a = 1\n")) and path.read_text() == "a = 1\n"
