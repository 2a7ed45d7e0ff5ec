"""`hybrid serve --state-dir`: after any end of the server or a full disk little is processed again, with the same
bits."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_server import WAIT

from hybrid.cli.main import run

pytestmark = pytest.mark.exhaustive

SAMPLED = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}  # hardly ever what an encoder would choose
FILE_LIMIT = 40_000  # bytes, less than a state of the bundled model


class Served:
    """A server in a process of its own, on a socket in `folder`."""

    def __init__(self, program: Path, model: Path, folder: Path, code: str = "") -> None:
        """code: runs first in the server's process."""
        command = [program, "serve", model, "--unix", folder / "socket"]
        command += ["--state-dir", folder / "states", "-c", 4096, "-t", 1]
        self.folder = folder
        (folder / "socket").unlink(missing_ok=True)
        with (folder / "log").open("w") as log:
            env = {**os.environ, "TESTS_FIRST": code}
            self.process = subprocess.Popen([str(each) for each in command], stderr=log, env=env)
        self.until(lambda: "/v1" in self.log)
        transport = httpx.HTTPTransport(uds=str(folder / "socket"))
        self.http = httpx.Client(transport=transport, base_url="http://x", timeout=WAIT)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def until(self, happens: Callable[[], object]) -> None:
        """Wait until `happens()` is true; a failure shows the log."""
        end = time.monotonic() + WAIT
        while not happens():
            assert self.process.poll() is None and time.monotonic() < end, self.log
            time.sleep(0.01)

    def complete(self, prompt: list[int], **more: object) -> dict[str, Any]:
        body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "ignore_eos": True, "logprobs": 3, **more}
        response = self.http.post("/v1/completions", json=body)
        assert response.status_code == 200, f"{response.text}\n{self.log}"
        answer: dict[str, Any] = response.json()
        return answer

    def end(self, number: int) -> str:
        """Send a signal, check the exit code; return the log."""
        self.http.close()
        self.process.send_signal(number)
        code = self.process.wait(WAIT)
        assert code == (0 if number == signal.SIGTERM else -number), self.log
        assert "Traceback" not in self.log, self.log
        while number == signal.SIGKILL and not self.is_free():  # the command dies after its client (command_server.py)
            time.sleep(0.01)
        return self.log

    def is_free(self) -> bool:
        """Whether no process uses the folder of states."""
        with (self.folder / "states" / "lock").open("rb") as lock:
            try:
                flock(lock, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def states(self) -> list[Path]:
        return list((self.folder / "states").rglob("*.state"))

    def written(self, n: int) -> None:
        """Wait for n state files."""
        self.until(lambda: len(self.states()) >= n)


def cached(answer: dict[str, Any]) -> int:
    n: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return n


def prompt(n: int, step: int = 7) -> list[int]:
    return [100 + i * step % 1800 for i in range(n)]


def test_killed_while_it_answers_and_while_it_saves(program: Path, files: dict[str, Path], tmp_path: Path) -> None:
    """The answers have the bits of an uninterrupted server's."""
    ids = prompt(2500)
    first = Served(program, files["q8_0"], tmp_path)
    first.complete(ids)
    first.written(6)  # four of the ladder, the ends of the prompt and of the answer
    with first.http.stream(
        "POST", "/v1/completions", json={"prompt": prompt(9), "stream": True, "max_tokens": 999}
    ) as r:
        next(r.iter_lines())
        first.end(signal.SIGKILL)
    second = Served(program, files["q8_0"], tmp_path)
    longer = [*ids, *prompt(300, 11)]
    answer = second.complete(longer)
    assert cached(answer) == 2500, "at most 512 tokens are processed anew"
    second.end(signal.SIGKILL)  # the tokens just processed are being written
    third = Served(program, files["q8_0"], tmp_path)
    again = third.complete([*longer, *prompt(20, 13)])
    assert cached(again) >= 2500
    assert third.complete(longer)["choices"] == answer["choices"]
    assert "warning" not in third.end(signal.SIGTERM)
    (tmp_path / "states").rename(tmp_path / "away")
    fresh = Served(program, files["q8_0"], tmp_path)
    anew = fresh.complete(longer)
    assert cached(anew) == 0 and anew["choices"] == answer["choices"]
    assert fresh.complete([*longer, *prompt(20, 13)])["choices"] == again["choices"]
    fresh.end(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_answer_that_comes_back_as_text(number: int, program: Path, files: dict[str, Path], tmp_path: Path) -> None:
    """Also after a restart the sampled tokens are used, not the encoder's."""
    first = Served(program, files["q8_0"], tmp_path)
    messages = [{"role": "user", "content": "Tell me about memory."}]
    asked = {"messages": messages, "max_tokens": 60, "seed": 3, **SAMPLED}
    answer = first.http.post("/v1/chat/completions", json=asked).json()
    usage = answer["usage"]
    text = answer["choices"][0]["message"]["content"]
    ids = first.http.post("/tokenize", json={"content": text, "add_special": False}).json()["tokens"]
    assert len(ids) != usage["completion_tokens"], "encoded again, the answer is other tokens"
    first.written(2)
    if number == signal.SIGKILL:
        first.until(lambda: list((tmp_path / "states").rglob("ledger.json")))
    first.end(number)
    second = Served(program, files["q8_0"], tmp_path)
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
    asked |= {"messages": messages, "max_tokens": 3}
    again = second.http.post("/v1/chat/completions", json=asked).json()
    assert cached(again) >= usage["total_tokens"] - 1, "all but the token that was drawn last"
    second.end(signal.SIGTERM)


def test_a_stored_response_is_continued(program: Path, files: dict[str, Path], tmp_path: Path) -> None:
    """After a restart too, with its sampled tokens."""
    first = Served(program, files["q8_0"], tmp_path)
    asked = {"max_output_tokens": 60, **{name: SAMPLED[name] for name in ("temperature", "top_p")}}
    begun = first.http.post("/v1/responses", json={**asked, "input": "Tell me about memory."}).json()
    first.written(2)
    first.end(signal.SIGTERM)
    second = Served(program, files["q8_0"], tmp_path)
    assert second.http.get(f"/v1/responses/{begun['id']}").json() == begun
    asked |= {"input": "Go on.", "previous_response_id": begun["id"], "max_output_tokens": 3}
    usage = second.http.post("/v1/responses", json=asked).json()["usage"]
    known = usage["input_tokens_details"]["cached_tokens"]
    assert known >= begun["usage"]["total_tokens"] - 1, "all but the token that was drawn last"
    assert second.http.delete(f"/v1/responses/{begun['id']}").json()["deleted"]
    second.end(signal.SIGTERM)
    left = [path.name for path in (tmp_path / "states" / "responses").iterdir()]
    assert len(left) == 1 and begun["id"] not in left[0]


def test_a_signal_leaves_everything_on_disk(program: Path, files: dict[str, Path], tmp_path: Path) -> None:
    first = Served(program, files["q8_0"], tmp_path)
    ids = prompt(1200)
    text = first.complete(ids)
    first.end(signal.SIGTERM)
    second = Served(program, files["q8_0"], tmp_path)
    assert cached(second.complete(ids)) == 1200
    assert second.complete(ids)["choices"] == text["choices"]
    with pytest.raises(AssertionError, match="another process uses it"):
        Served(program, files["q8_0"], _beside(tmp_path))
    assert cached(second.complete(ids)) == 1200
    second.end(signal.SIGTERM)


def _beside(folder: Path) -> Path:
    """A folder for a second server, with the states of the first."""
    other = folder / "other"
    other.mkdir()
    (other / "states").symlink_to(folder / "states")
    return other


def test_a_disk_that_takes_no_more(program: Path, files: dict[str, Path], tmp_path: Path) -> None:
    """Files may not grow: one line, no partial file, and answers continue."""

    limit = f"import resource as r\nr.setrlimit(r.RLIMIT_FSIZE, ({FILE_LIMIT}, {FILE_LIMIT}))"
    server = Served(program, files["q8_0"], tmp_path, limit)
    ids = prompt(600)
    first = server.complete(ids)
    server.until(lambda: "cannot be written" in server.log)
    assert server.complete(ids)["choices"] == first["choices"]
    text = server.end(signal.SIGTERM)
    assert len(re.findall("warning: .*states cannot be written: File too large", text)) == 1, text
    assert not server.states() and not list(tmp_path.rglob("unfinished"))


def test_what_cannot_be_kept(files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    asked = ["serve", str(files["q8_0"]), "--port", "0", "-c", "64", "--state-dir"]
    for options, words in {
        (str(tmp_path / "file"),): "no states can be kept there: File exists. Choose another folder.",
        (str(tmp_path / "a"), "--checkpoint-budget", "0"): "Give --checkpoint-budget, or leave out --state-dir.",
        (str(tmp_path / "a"), "--state-budget", "much"): "--state-budget much: expected a size like",
    }.items():
        capsys.readouterr()
        assert run([*asked, *options]) in (1, 2)
        text = capsys.readouterr().err
        assert words in text and "Traceback" not in text, text
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
