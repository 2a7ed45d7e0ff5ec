"""The models that the command line names, and their names."""

from pathlib import Path

import pytest

from hybrid.cli.options.guess_options import GuessOptions
from hybrid.cli.serve.models.given import GivenModels, found_in
from hybrid.cli.serve.models.settings_file import ModelTable
from hybrid.cli.serve.opening import ModelSetup
from hybrid.cli.serve.server_settings import ServerSettings
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.writer import GGUFWriter
from hybrid.reporting import SILENT

SETUP = ModelSetup(None, GuessOptions())


def model(path: Path, **keys: str) -> Path:
    """A file with the metadata of a model."""
    path.parent.mkdir(exist_ok=True)
    with GGUFWriter(path, "llama") as writer:
        for key, value in keys.items():
            writer.add(key.replace("__", "."), value)
    return path


def given(
    models: list[str], folder: Path | None = None, tables: tuple[ModelTable, ...] = (), **more: str
) -> GivenModels:
    return GivenModels(models, folder, False, tables, SETUP, ServerSettings(), 60.0, SILENT, **more)


def table(name: str, file: Path | None = None, **options: object) -> ModelTable:
    return ModelTable(name, file, (f"{name}-*",), True, None, options, f"x.toml [{name}]")


class TestGivenModels:
    def test_names_of_arguments(self, tmp_path: Path) -> None:
        a, b = model(tmp_path / "a-Q4_0.gguf"), model(tmp_path / "x=y.gguf")
        entries = given([str(a), f"coder={a}", str(b)]).entries()
        assert [(entry.name, entry.path) for entry in entries] == [("a-Q4_0", a), ("coder", a), ("x=y", b)]
        assert {entry.idle for entry in entries} == {60.0}
        assert [entry.name for entry in given([str(a)], alias="me").entries()] == ["me"]

    def test_two_of_one_name(self, tmp_path: Path) -> None:
        a, b = model(tmp_path / "1" / "a.gguf"), model(tmp_path / "2" / "a.gguf")
        with pytest.raises(UsageError, match=r"1/a\.gguf and .*2/a\.gguf are both named a\. Name one of them"):
            given([str(a), str(b)]).entries()
        with pytest.raises(UsageError, match="are both named a"):
            given([str(a)], tables=(table("a", b),)).entries()

    def test_no_such_file(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"no such file or folder"):
            given([str(model(tmp_path / "a.gguf")), str(tmp_path / "b.gguf")]).entries()

    def test_tables(self, tmp_path: Path) -> None:
        folder = tmp_path / "all"
        a, b = model(folder / "a.gguf"), model(tmp_path / "b.gguf")
        entries = {e.name: e for e in given([], folder, (table("a", ctx=64), table("b", b))).entries()}
        assert {name: entry.path for name, entry in entries.items()} == {"a": a, "b": b}
        assert entries["a"].aliases == ("a-*",) and entries["a"].pinned and entries["a"].idle == 60.0
        with pytest.raises(UsageError, match=r"^x\.toml \[c\]: there is no model of this name\. Add: model = FILE\.$"):
            given([], folder, (table("c"),)).entries()
        with pytest.raises(UsageError, match=r"ctxx is not known"):
            given([], folder, (table("a", ctxx=64),)).entries()

    def test_files_that_come_and_go(self, tmp_path: Path) -> None:
        a = model(tmp_path / "a.gguf")
        models = given([], tmp_path)
        entries = models.entries()
        assert [entry.name for entry in entries] == ["a"]
        model(tmp_path / "b.gguf")
        again = models.rescan(entries)
        assert [entry.name for entry in again] == ["a", "b"] and again[0] is entries[0]
        a.unlink()
        assert [entry.name for entry in models.rescan(again)] == ["b"]


class TestFoundIn:
    def test_what_a_folder_holds(self, tmp_path: Path) -> None:
        model(tmp_path / "a.gguf")
        model(tmp_path / "mmproj-a.gguf")
        model(tmp_path / "style.gguf", general__type="adapter")
        model(tmp_path / "big-00001-of-00002.gguf")
        model(tmp_path / "big-00002-of-00002.gguf")
        (tmp_path / "broken.gguf").write_bytes(b"GGUF")
        (tmp_path / "notes.txt").touch()
        model(tmp_path / "one" / "some-Q4_K_M.gguf")
        model(tmp_path / "two" / "x.gguf")
        model(tmp_path / "two" / "y.gguf")
        (tmp_path / "checkpoint").mkdir()
        (tmp_path / "checkpoint" / "config.json").write_text("{}")
        names = [each.name for each in found_in(tmp_path)]
        assert names == ["a", "big", "broken", "checkpoint", "one", "two/x", "two/y"]

    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"cannot be read: No such file or directory\.$"):
            found_in(tmp_path / "absent")
