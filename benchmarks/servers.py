"""Our server and llama-server as processes."""

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 600


@dataclass(frozen=True)
class Running:
    """A server that answers. log: its output."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def memory(self) -> int:
        """Resident bytes."""
        said = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        return int(said.stdout or 0) * 1024


def ours(model: Path, *options: object) -> contextlib.AbstractContextManager[Running]:
    """`hybrid serve`."""
    return _running([sys.executable, "-m", "hybrid.cli", "serve", model, *options])


def peer(program: Path, model: Path, *options: object) -> contextlib.AbstractContextManager[Running]:
    """llama-server."""
    return _running([program, "-m", model, *options])


@contextlib.contextmanager
def _running(command: list[object]) -> Iterator[Running]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            words = [str(word) for word in (*command, "--port", port)]
            process = subprocess.Popen(words, stdout=out, stderr=out)
        try:
            _wait(Running(port, process, log), str(command[0]))
            yield Running(port, process, log)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(server: Running, name: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health", timeout=5):
            return
        time.sleep(0.1)
    raise SystemExit(f"error: {name} does not answer; its last words: {server.log.read_text()[-500:]}")
