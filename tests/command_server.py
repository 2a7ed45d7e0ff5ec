"""The command `hybrid` for tests that type many command lines: a process that has loaded its modules forks for each.

    with CommandServer() as server:
        server.write_command(path, folder)     # an executable file; its caches and chats are in `folder`

It is used as the program itself: signals reach the command, and who kills it kills the command. Python code in the
environment variable TESTS_FIRST is executed before the command.

Starting Python and loading modules takes half a second of each command, in which nothing of a page is tested; how
commands start is what test_cli_startup.py and test_cli_packaging.py test, in processes of their own.
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

# Without modules that take long to load. The words, the folder and the three streams go to the server; back come the
# number of the process, which gets all signals, and its exit code. It is killed when this one is.
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


# macOS has libraries that do not survive a fork: there each command loads its modules
FORKS = sys.platform == "linux"
ALONE = """#!{python}
import sys
sys.path.insert(0, {tests!r})
from command_server import run
run(sys.argv[1:], {folder!r})
"""


class CommandServer:
    """address: of its socket; paths of sockets have to be short.

    modules    more of hybrid's that it loads before it forks
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
        """An executable file that runs `hybrid`, or with -c Python. folder: of its caches and chats."""
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
    """In a process of its own, which has one thread: it may fork."""
    for module in ("convert", "infer.engine.engine", "infer.evaluate", "infer.bench", "cli.__main__", *modules):
        import_module(f"hybrid.{module}")
    from hybrid.cli.main import load

    for command in ("bench", "convert", "embed", "gguf", "imatrix", "perplexity", "quantize", "run"):
        load(command)

    parent = os.getppid()
    listener.settimeout(2)
    while os.getppid() == parent:  # tests that were killed end nothing
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
    """Waits for the command, in a process between it and the server, and tells its number and its exit code."""
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
    if ended not in select.select([ended, connection], [], [])[0]:  # its client was killed
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(OSError):
        connection.sendall(f"{status % 256}\n".encode())
    os._exit(0)


def run(words: list[str], folder: str) -> NoReturn:
    """A command line in this process, which ends with it. folder: as in write_command. `-c CODE` is Python's."""
    from hybrid import cache_paths
    from hybrid.cli.__main__ import main

    assert cache_paths.cache_dir and cache_paths.state_dir
    # kernels stay where they are, or every test would compile its own
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
