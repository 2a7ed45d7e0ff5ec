"""Models by name, from a hub on loopback."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from end_to_end.outcomes import Cli
from hub_server import Hub, use

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr("hybrid.cli.hub.download.pause", lambda failures: 0.0)
    with Hub() as hub:
        hub.use(monkeypatch, tmp_path / "hub")
        yield hub


def folder(path: Path) -> dict[str, Path]:
    return {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}


def test_a_gguf_file_runs_by_name_and_then_without_asking(
    hub: Hub, cli: Cli, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/tiny-GGUF", {"README.md": b"#", "tiny-Q8_0.gguf": files["q8_0"], "tiny-bf16.gguf": files["bf16"]})
    by_path = cli("run", files["q8_0"], "-p", "State", "-n", 5, "--seed", 1)
    assert cli("run", "org/tiny-GGUF", "-p", "State", "-n", 5, "--seed", 1)[:2] == by_path[:2]
    assert hub.served == files["q8_0"].stat().st_size, "more than the file that is wanted, or less"
    asked = len(hub.asked)
    use(monkeypatch, "http://127.0.0.1:1", tmp_path / "hub")
    assert cli("run", "org/tiny-GGUF", "-p", "State", "-n", 5, "--seed", 1)[:2] == by_path[:2]
    assert len(hub.asked) == asked


def test_a_checkpoint_is_converted_once(
    hub: Hub, cli: Cli, bundled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/jamba", {**folder(bundled), "onnx/model.onnx": bytes(200_000), "pytorch_model.bin": bytes(100_000)})
    by_path = cli("run", bundled, "-p", "State", "-n", 5, "--seed", 1)
    code, out, err = cli("run", "org/jamba", "-p", "State", "-n", 5, "--seed", 1)
    assert (code, out) == by_path[:2] and "converting org/jamba once" in err
    assert not any("onnx" in path or ".bin" in path for path in hub.asked)
    use(monkeypatch, "http://127.0.0.1:1", tmp_path / "hub")
    code, out, err = cli("run", "org/jamba", "-p", "State", "-n", 5, "--seed", 1)
    assert (code, out) == by_path[:2] and "converting" not in err


def test_a_checkpoint_is_quantized_in_the_same_pass(
    hub: Hub, cli: Cli, bundled: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    hub.add("org/jamba", folder(bundled))
    code, _, err = cli("run", "org/jamba:Q8_0", "-p", "State", "-n", 5, "--seed", 1)
    assert code == 0, err
    made = list((tmp_path / "cache" / "hybrid" / "converted").glob("*.gguf"))
    assert [path.name.rpartition("-")[2] for path in made] == ["Q8_0.gguf"]
    assert cli("gguf", "hash", made[0])[1].split()[1] == cli("gguf", "hash", files["q8_0"])[1].split()[1]
