"""The command `hybrid` for tests that type many command lines: a process with loaded modules forks for each.

    with CommandServer() as server:
        server.write_command(path, folder)     # an executable file; its caches and chats are in `folder`

It behaves like the program itself: signals reach the command, and killing it kills the command. Python code in the
environment variable TESTS_FIRST runs before the command.

Starting Python and loading modules takes half a second for each command. test_cli_startup.py and test_cli_packaging.py
test how commands start, in processes of their own.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

# Loads no slow modules. It sends the words, the folder and the three streams to the server, and gets back the number of
# the process, to which it forwards all signals, and its exit code. The command is killed when this process is.
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
passed = {{signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH}}
signal.pthread_sigmask(signal.SIG_BLOCK, passed)
asked = {{"words": sys.argv[1:], "cwd": os.getcwd(), "environment": dict(os.environ), "folder": {folder!r}}}
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"3"], [0, 1, 2])
    server.sendall(json.dumps(asked).encode() + b"\\n")
    answers = server.makefile()
    child = int(answers.readline())
    def passed_on(number, frame):
        try:
            os.kill(child, number)
        except ProcessLookupError:
            pass
    for number in passed:
        signal.signal(number, passed_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed)
    code = answers.readline()
sys.exit(int(code or 1))
"""


# libraries of macOS do not survive a fork: there each command loads its modules
FORKS = sys.platform == "linux"
ALONE = """#!{python}
import sys
sys.path.insert(0, {tests!r})
from command_server import run
run(sys.argv[1:], {folder!r})
"""


class CommandServer:
    """Forks commands from a process with loaded modules. address: of its socket, whose path has to be short.

    modules    more of hybrid's modules to load before forking
    """

    def __init__(self, *modules: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="hybrid-")
        self.address = f"{self.folder.name}/s"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen()
            program = [sys.executable, __file__, str(listener.fileno()), *modules]
            self.process = subprocess.Popen(program, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL)

    def write_command(self, path: Path, folder: Path) -> None:
        """Write an executable that runs `hybrid`, or Python with -c. folder: for its caches and chats."""
        more = {"python": sys.executable, "folder": str(folder), "tests": str(Path(__file__).parent)}
        path.write_text((CLIENT if FORKS else ALONE).format(address=self.address, **more))
        path.chmod(0o755)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def _serve(listener: socket.socket, modules: list[str]) -> None:
    """The server's process. It has one thread, so that it may fork."""
    for module in ("convert", "infer.engine.engine", "infer.evaluate", "infer.bench", "cli.__main__", *modules):
        import_module(f"hybrid.{module}")
    from hybrid.cli.main import load

    for command in ("bench", "convert", "embed", "gguf", "imatrix", "perplexity", "quantize", "run"):
        load(command)

    parent = os.getppid()
    listener.settimeout(2)
    while os.getppid() == parent:  # also stops when the tests were killed
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            listener.close()
            _answer(connection)
        connection.close()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def _answer(connection: socket.socket) -> None:
    """Fork a command, send its process number and exit code. Runs in a process between the command and the server."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    asked = json.loads(connection.makefile().readline())
    child = os.fork()
    if child == 0:
        connection.close()
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        for name, mode, number in (("stdin", "r", 0), ("stdout", "w", 1), ("stderr", "w", 2)):
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
        run(asked["words"], asked["folder"])
    for stream in streams:
        os.close(stream)
    connection.sendall(f"{child}\n".encode())
    ended = os.pidfd_open(child)
    if ended not in select.select([ended, connection], [], [])[0]:  # the client was killed
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(OSError):
        connection.sendall(f"{status % 256}\n".encode())
    os._exit(0)


def run(words: list[str], folder: str) -> NoReturn:
    """Run a command line in this process, then exit. `-c CODE` runs Python code. folder: as in write_command."""
    from hybrid import cache_paths
    from hybrid.cli.__main__ import main

    assert cache_paths.cache_dir and cache_paths.state_dir
    # the kernel cache is shared, or every test would compile its own
    cache_paths.cache_dir, cache_paths.state_dir = lambda: Path(folder, "cache"), lambda: Path(folder, "state")
    sys.argv = ["hybrid", *words]
    code: object = 1
    try:
        exec(os.environ.pop("TESTS_FIRST", ""), {})
        if words[:1] == ["-c"]:
            sys.argv = ["-c", *words[2:]]
            exec(words[1], {"__name__": "__main__"})
            code = 0
        else:
            main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)  # type: ignore[arg-type]


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
