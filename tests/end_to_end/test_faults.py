"""Full disks and kill -9: finished work is still there, and the same command continues."""

import os
import pty
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from end_to_end.outcomes import Cli

from hybrid.infer import LoadedModel
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.infer.answers.prompt_files.prompt_files import Lines
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.answers.state_files.saved_states import read_info

pytestmark = pytest.mark.exhaustive

HYBRID = [sys.executable, "-m", "hybrid.cli"]


def test_a_full_disk_costs_no_answer(cli: Cli, program: Path, files: dict[str, Path], tmp_path: Path) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
    prompts.write_text("".join(f'{{"prompt": "The state of a machine number {i}"}}\n' for i in range(6)))
    command = ["run", str(files["q8_0"]), "-f", str(prompts), "-n", "5", "-c", "128"]
    code, whole, _ = cli(*command)  # the kernels are cached now: nothing else is written
    assert code == 0
    room = len("".join(whole.splitlines(keepends=True)[:3])) + 50
    env = {**os.environ, "TESTS_FIRST": f"import resource as r\nr.setrlimit(r.RLIMIT_FSIZE, ({room}, {room}))"}
    full = subprocess.run([program, *command, "-o", out], env=env, capture_output=True, text=True, check=False)
    assert full.returncode == 1 and full.stdout == ""
    assert [line for line in full.stderr.splitlines() if "error" in line] == [f"error: {out}: File too large."]
    written = out.read_text()
    assert 1 <= written.count("\n") <= 3 and whole.startswith(written)
    code, _, err = cli(*command, "-o", out)
    assert code == 0 and "were there" in err and out.read_text() == whole


def test_a_line_is_whole_or_not_there(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "f")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        lines.write("a" * 5000)
        with pytest.raises(OSError, match="File too large") as caught:
            lines.write("b" * 5000)
        lines.write("c")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
        lines.close()
    assert caught.value.filename == str(tmp_path / "f")
    assert (tmp_path / "f").read_text() == "a" * 5000 + "\nc\n"


@pytest.mark.slow
def test_kill_9_costs_the_running_answer(files: dict[str, Path], tmp_path: Path) -> None:
    command = [*HYBRID, "run", str(files["bf16"]), "--temp", "0", "-c", "2048", "-n", "900"]
    pid, terminal = pty.fork()
    if not pid:
        os.execvpe(command[0], command, {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"})
    try:
        os.write(terminal, b"/nothing\r")  # input before the first prompt may be lost
        chats = tmp_path / "hybrid" / "chats"
        deadline = time.monotonic() + 240
        asked = 0.0
        while not (states := list(chats.glob("*.state"))):
            assert time.monotonic() < deadline, "the first turn was not kept"
            if time.monotonic() > asked + 10:
                os.write(terminal, b"What is a cache?\r")
                asked = time.monotonic()
            _drain(terminal)
        os.write(terminal, b"And what is a state?\r")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    assert read_info(states[0]).turns is not None
    with LoadedModel.load(files["bf16"], n_ctx=2048, checkpoint_budget=1 << 26) as model:
        chat = Conversation(model, SamplingParams(temp=0), model.chat_template, max_tokens=4)
        chat.load(states[0])
        assert [m["content"] for m in chat.messages][::2][0] == "What is a cache?"
        n = chat.stats.n_prompt
        for _ in chat.answer("Go on."):
            pass
        assert chat.stats.n_prompt - n < 20, "what was said is known"


def _drain(terminal: int) -> None:
    """Read pending output for a moment, so that the program does not wait for buffer space."""
    import select

    if select.select([terminal], [], [], 0.2)[0]:
        os.read(terminal, 65536)
