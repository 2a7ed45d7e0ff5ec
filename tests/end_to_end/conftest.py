"""Fixtures: the bundled model as files, a command line in this process, and the checks of its errors."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_server import CommandServer
from end_to_end.outcomes import Cli
from http_server import WAIT, Server
from made_models import made, sources
from scripted_chat import Script, scripted
from seeing_models import seeing_model, tower_of

from hybrid.cli.main import run
from hybrid.infer import LoadedModel

if TYPE_CHECKING:
    import anthropic  # loading it would cost each process that collects tests two and a half seconds
    from cluster_workers import Workers
    from seeing_server import Seeing


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "cache" not in path.relative_to(folder).parts[:1]}


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command line that must fail. It may print notes, then one line, which is returned; it changes no files."""
    monkeypatch.chdir(tmp_path)

    def call(*args: object, code: int) -> str:
        before = {path: path.stat().st_size for path in _files(tmp_path)}
        capsys.readouterr()
        given = run([str(a) for a in args])
        captured = capsys.readouterr()
        assert given == code, captured
        lines = captured.err.splitlines()
        assert [line.startswith("error: ") for line in lines] == [False] * (len(lines) - 1) + [True], captured.err
        assert "Traceback" not in captured.err and "Warning" not in captured.err, captured.err
        assert {path: path.stat().st_size for path in _files(tmp_path)} == before, "files appeared, changed or went"
        return lines[-1]

    return call


def _made(checkpoint: Path) -> dict[str, Path]:
    """The files that commands make of a checkpoint, shared by all workers and runs: do not change them."""
    found = (path for path in sorted(checkpoint.iterdir()) if path.is_file())
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in found)).hexdigest()
    key = f"{sources('cli', 'convert', 'quant')} {digest}"

    def make(name: str, *command: object) -> Path:
        def call(path: Path) -> None:
            assert run([str(path if word is None else word) for word in command]) == 0

        return made(f"{name}.gguf", key, call)

    bf16 = make("bf16", "convert", checkpoint, "-o", None, "--verify")
    return {"bf16": bf16, "q8_0": make("q8_0", "quantize", bf16, None, "q8_0")}


@pytest.fixture(scope="session")
def files(bundled: Path) -> dict[str, Path]:
    """The bundled model, converted and quantized."""
    return _made(bundled)


@pytest.fixture(scope="session")
def small_checkpoint(data_dir: Path) -> Path:
    """A model with random weights, a quarter as many as the bundled one has."""
    return data_dir / "checkpoints" / "jamba-dense"


@pytest.fixture(scope="session")
def small(small_checkpoint: Path) -> dict[str, Path]:
    """The small checkpoint, converted and quantized."""
    return _made(small_checkpoint)


@pytest.fixture(scope="session")
def commands() -> Iterator[CommandServer]:
    """Forks commands, also `hybrid serve`."""
    with CommandServer("cli.serve.app", "cli.serve.running", "cli.commands.serve") as server:
        yield server


@pytest.fixture
def program(commands: CommandServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `hybrid`, forked. Its caches and chats are in the same folder."""
    folder = tmp_path_factory.mktemp("program")
    commands.write_command(folder / "hybrid", folder)
    return folder / "hybrid"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Workers]":
    """Two workers of a cluster that follow orders."""
    from cluster_workers import workers

    with workers(tmp_path_factory.mktemp("workers") / "orders") as made:
        yield made


@pytest.fixture
def obedient(two: "Workers") -> "Iterator[Workers]":
    """Two present workers without orders."""
    two.clear()
    two.all_there(240)
    yield two
    two.clear()


@pytest.fixture(scope="module")
def chat_model(files: dict[str, Path]) -> Iterator[LoadedModel]:
    """The bundled model, with room for chats of scripted answers."""
    with LoadedModel.load(files["q8_0"], n_ctx=4096, n_seq_max=4, checkpoint_budget=256 << 20) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def server(files: dict[str, Path]) -> Iterator[Server]:
    """The bundled model, served; several modules have a server of their own instead."""
    with LoadedModel.load(files["q8_0"], n_ctx=512, n_seq_max=5, checkpoint_budget=32 << 20) as model:
        server = Server(model)
        yield server
        server.close()
        assert model.n_free == 5


@pytest.fixture(scope="session")
def files_of_eyes(data_dir: Path) -> tuple[Path, Path]:
    """A small model that sees, and its tower."""
    path = seeing_model(data_dir)
    return path, tower_of(path)


@pytest.fixture(scope="module")
def model_with_eyes(files_of_eyes: tuple[Path, Path]) -> Iterator[LoadedModel]:
    """That model, with room for five sequences, which the tests leave free."""
    with LoadedModel.load(files_of_eyes[0], n_ctx=1024, n_seq_max=5, checkpoint_budget=64 << 20) as model:
        yield model
        assert model.n_free == 5


@pytest.fixture(scope="module")
def seeing_server(model_with_eyes: LoadedModel, files_of_eyes: tuple[Path, Path]) -> "Iterator[Seeing]":
    """A server of that model and its tower."""
    from seeing_server import Seeing

    with closing(Seeing(model_with_eyes, files_of_eyes[1])) as server:
        yield server


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """Scripted answers for the model of any server in this process."""
    with scripted(monkeypatch) as script:
        yield script


@pytest.fixture(scope="module")
def claude(server: Server) -> "Iterator[anthropic.Anthropic]":
    """Anthropic's client, connected to the module's own `server`."""
    import anthropic

    with anthropic.Anthropic(api_key="none", base_url=server.url, timeout=WAIT, max_retries=0) as client:
        yield client


@pytest.fixture
def own_cache(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep converted models in tmp_path/cache, history and notes in another folder. The kernel cache stays, or every
    test would compile."""
    state = tmp_path_factory.mktemp("state")
    monkeypatch.setattr("hybrid.cache_paths.cache_dir", lambda: tmp_path / "cache" / "hybrid")
    monkeypatch.setattr("hybrid.cache_paths.state_dir", lambda: state)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command line in this process: (exit code, stdout, stderr)."""

    def call(*args: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([str(a) for a in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
