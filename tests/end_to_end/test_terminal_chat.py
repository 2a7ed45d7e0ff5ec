"""`hybrid run` in a terminal, as its user sees it."""

import json
import os
import re
import shutil
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_server import CommandServer
from end_to_end.outcomes import Cli
from end_to_end.templated import OWN, templated
from seeing_models import pixels, png
from terminal import CTRL_C, CTRL_D, ENTER, TAB, UP, Terminal

from hybrid.convert import convert

# prompts are processed in steps long enough to be seen
SLOWLY = """
import time
from hybrid.cli.terminal.reading_line import ReadingLine
from hybrid.infer.answers.batch.batcher import Batcher
ReadingLine.DELAY, ReadingLine.EVERY = 0.1, 0.05
go_on = Batcher.go_on
def slowly(self, job, seq):
    known = len(seq.tokens)
    for part in (4, 2):
        time.sleep(0.4)
        job.on_read(known + (len(job.ids) - known) // part, len(job.ids))
    time.sleep(0.4)
    go_on(self, job, seq)
Batcher.go_on = slowly
"""
# the answer grows slowly enough to be interrupted
DRAWS_SLOWLY = """
import time
from hybrid.infer.runner import Runner
step = Runner.step
Runner.step = lambda self, seq, token: (time.sleep(0.05), step(self, seq, token))[1]
"""
# the vision tower takes long enough to be seen
SEES_SLOWLY = """
import time
from hybrid.cli.terminal.reading_line import ReadingLine
from hybrid.infer.towers.tower import VisionTower
ReadingLine.DELAY, ReadingLine.EVERY = 0.1, 0.05
features = VisionTower.tile_features
VisionTower.tile_features = lambda self, *given, **more: (time.sleep(0.5), features(self, *given, **more))[1]
"""
Run = Callable[..., Terminal]
pytestmark = pytest.mark.exhaustive


@pytest.fixture
def program(commands: CommandServer, tmp_path: Path) -> Path:
    """`hybrid`, forked; its files are in the test's folder."""
    (tmp_path / "bin").mkdir()
    commands.write_command(tmp_path / "bin" / "hybrid", tmp_path)
    return tmp_path / "bin" / "hybrid"


@pytest.fixture
def run(program: Path, tmp_path: Path) -> Iterator[Run]:
    """`hybrid run` with arguments. more: code that runs first."""
    opened: list[Terminal] = []

    def start(*args: object, more: str = "", columns: int = 80, rows: int = 24, **variables: str) -> Terminal:
        opened.append(Terminal([program, "run", *args], columns, rows, cwd=tmp_path, TESTS_FIRST=more, **variables))
        return opened[-1]

    yield start
    for terminal in opened:
        with terminal:
            pass


def at_prompt(t: Terminal, n: int = 1) -> None:
    """Wait until the n-th prompt, or a later one, waits for a message."""
    t.until(lambda: t.raw.count(b"\x1b[?2004h") >= n, f"prompt {n}")
    t.until(lambda: t.lines and t.lines[t.screen.cursor.y :][:1] and t.lines[t.screen.cursor.y].startswith(">"))


def answering(t: Terminal) -> None:
    """Wait for the beginning of the answer to Hello."""
    t.until(lambda: (said := t.text.rpartition("> Hello")[2].strip()) and not said.startswith("reading"))


@pytest.fixture
def chatting(cli: Cli, files: dict[str, Path], tmp_path: Path) -> Path:
    """A model with a chat template."""
    return templated(cli, files["q8_0"], OWN, tmp_path)


@pytest.fixture
def without_template(bundled: Path, tmp_path: Path) -> Path:
    folder, path = tmp_path / "checkpoint", tmp_path / "plain.gguf"
    shutil.copytree(bundled, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    convert(folder, path, outtype="bf16")
    return path


def test_the_bundled_model_says_what_it_can_do_and_offers_an_example(run: Run) -> None:
    t = run("-n", 5, "--greedy")
    at_prompt(t)
    assert "was trained on documentation" in " ".join(t.text.split()) and "cannot chat" in " ".join(t.text.split())
    assert t.lines[-1] == "> To install the package, run" and t.colours("To install") == {"brightblack"}
    t.type(ENTER)
    at_prompt(t, 2)
    prompt, answer = (t.lines[-4], t.lines[-3]) if t.lines[-1] == ">" else ("", "")
    assert prompt == "> To install the package, run" and t.colours("To install") == {"default"}
    assert answer, "it has continued the text"
    t.type("/clear", ENTER)
    at_prompt(t, 3)
    assert t.lines[-1] == "> If the option is not given,", "another example, where nothing has been said"
    t.type("x")
    t.until(lambda: t.lines[-1] == "> x")
    t.type(CTRL_C, CTRL_C)  # both at once: the second arrives as a key, as a signal, or while the prompt reopens
    assert t.ends() == 0


def test_a_model_without_a_template_says_so(run: Run, without_template: Path) -> None:
    t = run(without_template, "--greedy", "-n", 3)
    at_prompt(t)
    said = " ".join(t.text.split())
    assert "plain.gguf has no chat template, so it was most likely not trained to chat" in said
    assert (
        "it continues your text instead of answering, 3 tokens at a time (/set n-predict N)" in said
        and t.lines[-1] == ">"
    )


def test_a_template_that_is_not_used(run: Run, chatting: Path) -> None:
    t = run(chatting, "--raw")
    at_prompt(t)
    assert "--raw: the model continues your text instead of answering, 128 tokens" in " ".join(t.text.split())
    t = run(chatting)
    at_prompt(t)
    assert "continued" not in t.text


def test_a_chat_that_begins_with_a_prompt(run: Run, chatting: Path) -> None:
    """llama-cli's -cnv -p; the prompt is shown as if it was typed, and is not repeated."""
    t = run(chatting, "-cnv", "-p", "a b c", "--greedy", "-n", 3)
    t.shows("(/set n-predict N)")
    t.until(lambda: t.lines[-1] == ">")
    assert t.lines.count("> a b c") == 1
    t.type("/tree", ENTER)
    t.shows("1 a b c")
    t = run(chatting, "-cnv", "-st", "-p", "a b c", "--greedy", "-n", 3)
    assert t.ends() == 0 and "/help lists commands" not in t.text


def test_ctrl_d_while_the_model_loads_leaves(run: Run, chatting: Path) -> None:
    t = run(chatting, more="import time; time.sleep(0.5)")
    t.type(CTRL_D)
    assert t.ends() == 0 and "/help lists commands" in t.text


def test_history_and_notes_break_between_words(run: Run, chatting: Path) -> None:
    words = "antelope buffalo crocodile dromedary elephant flamingo giraffe"
    t = run(chatting, "--greedy", "-n", 2, "--think", "off", columns=40)
    at_prompt(t)
    t.type(f"Name {words}", ENTER)
    at_prompt(t, 2)
    t.type("/set top-k 3", ENTER, CTRL_D)
    assert t.ends() == 0
    t = run(chatting, "--continue", columns=40)
    at_prompt(t)
    assert {"> Name antelope buffalo crocodile", "dromedary elephant flamingo giraffe"} <= set(t.lines)
    assert "settings of this chat: top-k 3" in t.lines


def test_ctrl_c_stops_an_answer_and_twice_leaves(run: Run, chatting: Path) -> None:
    t = run(chatting, "--greedy", "-n", 400, "--think", "off", more=DRAWS_SLOWLY)
    at_prompt(t)
    t.type("Hello", ENTER)
    answering(t)
    t.type(CTRL_C)
    t.shows("stopped")
    assert "^C" not in t.text
    at_prompt(t, 2)
    t.type(CTRL_C)
    t.shows("press Ctrl-C again to leave")
    at_prompt(t, 3)
    t.type("/stats", ENTER)
    t.shows("generated")
    at_prompt(t, 4)
    t.type(CTRL_C)
    at_prompt(t, 5)
    t.type(CTRL_C)
    assert t.ends() == 0 and "saved to" in t.text and "Traceback" not in t.text


def test_many_lines_that_are_pasted_are_one_message(run: Run, chatting: Path) -> None:
    t = run(chatting, "--greedy", "-n", 2, "--think", "off")
    at_prompt(t)
    t.type("\x1b[200~first line\nsecond line\r\n/home/third\n\x1b[201~")
    t.shows("/home/third")
    assert "There" not in t.text and "first line" in t.text, "nothing is sent yet"
    t.type(ENTER)
    at_prompt(t, 2)
    t.type("/tree", ENTER)
    t.shows("1 first line second line /home/third")
    t.type("\x1b[200~/usr/bin/x says\nno\x1b[201~", ENTER)
    at_prompt(t, 4)
    t.type("/tree", ENTER)
    t.shows("2 /usr/bin/x says no")


def test_tab_completes_commands_settings_and_files(run: Run, chatting: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "other.gguf").touch()
    t = run(chatting, "--greedy", "-n", 2)
    at_prompt(t)
    t.type("/se", TAB, " ", "min-p 0.1")
    t.until(lambda: "> /set min-p 0.1" in t.text)
    t.type(ENTER)
    t.shows("min-p  0.1  (set)")
    at_prompt(t, 2)
    t.type("/set dynatemp-e", TAB, " 2", ENTER)
    t.shows("dynatemp-exp  2  (set)")
    at_prompt(t, 3)
    t.type("/model sub/o", TAB)
    t.shows("> /model sub/other.gguf")
    t.type(ENTER)
    t.shows("error: sub/other.gguf is empty")
    at_prompt(t, 4)
    t.type("/mod\t")  # faster than fingers
    t.until(lambda: t.lines[-1].startswith("> /model") or "> /model" in t.text.rpartition("error:")[2])
    t.type("\x15/set temp hot", ENTER)
    t.shows("error: /set temp hot: expected a number, or default.")
    at_prompt(t, 5)


def test_history_and_lines_of_a_message(run: Run, chatting: Path) -> None:
    t = run(chatting, "--greedy", "-n", 2, "--think", "off")
    at_prompt(t)
    t.type("one\x1b\rtwo", ENTER)
    at_prompt(t, 2)
    t.type("/nonsense", ENTER)
    t.shows("error: there is no command /nonsense. /help lists them.")
    at_prompt(t, 3)
    t.type(UP)
    t.until(lambda: t.lines[-1] == "> /nonsense")
    t.type(CTRL_C)
    at_prompt(t, 4)
    t.type("/tree", ENTER)
    t.shows("1 one two")
    at_prompt(t, 5)
    t.type(CTRL_D)
    assert t.ends() == 0
    again = run(chatting)
    at_prompt(again)
    again.type(UP, UP, UP)
    again.until(lambda: again.lines[-2:] == ["> one", "  two"])


def test_another_size_of_the_window(run: Run, chatting: Path) -> None:
    t = run(chatting, "--greedy", "-n", 12, "--think", "off", more=DRAWS_SLOWLY)
    at_prompt(t)
    t.type("A long question that goes over the end of the line when the window is narrow")
    t.resize(40, 24)
    t.pump(0.4)
    t.resize(100, 24)
    t.pump(0.4)
    t.until(lambda: t.lines[-1].endswith("when the window is narrow"), "the whole question, once")
    assert t.text.count("A long question") == 1
    t.type(ENTER)
    t.until(lambda: t.text.rpartition("window is narrow")[2].strip())
    t.type("typed early")
    assert "typed early" not in t.text
    t.resize(60, 20)
    at_prompt(t, 2)
    t.shows("> typed early")  # typed text waits for the prompt
    assert t.text.count("typed early") == 1 and "Traceback" not in t.text


def test_another_model_goes_on(run: Run, chatting: Path, without_template: Path) -> None:
    t = run(chatting, "--greedy", "-n", 3, "--think", "off", columns=150)
    at_prompt(t)
    t.type("Remember seven", ENTER)
    at_prompt(t, 2)
    t.type("/set temp 0.2", ENTER)
    at_prompt(t, 3)
    t.type(f"/model {without_template}", ENTER)
    t.shows("BF16")
    t.shows("it reads the conversation when you write next")
    t.shows("it has no chat template")
    at_prompt(t, 4)
    t.type("Go on", ENTER)
    at_prompt(t, 5)
    t.type("/tree", ENTER)
    t.until(lambda: re.search(r"2 Go on -> .*  \[\*main\]", t.text))
    t.type("/set temp", ENTER)
    t.shows("temp  0.2  (set)")
    t.type(f"/model {chatting}", ENTER)
    at_prompt(t, 8)
    t.type("And now", ENTER)
    at_prompt(t, 9)
    t.type("/tree", ENTER)
    t.until(lambda: re.search(r"3 And now.*  \[\*main\]", t.text))
    t.type(CTRL_D)
    assert t.ends() == 0
    assert "saved to" in t.text and "Traceback" not in t.text
    names = sorted(path.name.partition("-")[0] for path in (chatting.parent / "state" / "chats").glob("*.state"))
    assert names == ["own", "own", "plain"], "each model's part of it can be gone on with"


@pytest.mark.parametrize("how", ["-p", "-f", "--raw", "chat"])
def test_how_far_a_prompt_has_been_read(how: str, run: Run, chatting: Path, tmp_path: Path) -> None:
    text = "word " * 200
    (tmp_path / "long.txt").write_text(text)
    args = {"-p": ["-p", text], "-f": ["-f", "long.txt"], "--raw": ["-p", text, "--raw"], "chat": []}[how]
    t = run(chatting, "--greedy", "-n", 3, *args, more=SLOWLY)
    if how == "chat":
        at_prompt(t)
        t.type(f"\x1b[200~{text}\x1b[201~", ENTER)
    # shown for a moment, which may be shorter than this process's gaps between reads
    t.until(lambda: re.search(rb"reading \S.* of .* tokens, .* per second, .* left", t.raw))
    if how == "chat":
        at_prompt(t, 2)
    else:
        assert t.ends() == 0
    assert "reading " not in t.text, "it is gone when the answer begins"
    assert "word" in t.text or how != "chat"


@pytest.mark.parametrize("how", ["-p", "chat"])
def test_a_picture_that_is_being_read(how: str, run: Run, files_of_eyes: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(png(pixels(1)))
    args = ["--image", "cat.png", "-p", "What is it?"] if how == "-p" else []
    t = run(files_of_eyes[0], "--greedy", "-n", 3, *args, more=SEES_SLOWLY)
    if how == "chat":
        at_prompt(t)
        t.type("/image cat.png", ENTER)
        at_prompt(t, 2)
        assert b"reading cat.png" not in t.raw, "the tower reads it with the message"
        t.type("What is it?", ENTER)
    t.until(lambda: b"reading cat.png" in t.raw)
    if how == "chat":
        at_prompt(t, 3)
    else:
        assert t.ends() == 0
    assert "reading " not in t.text and "Traceback" not in t.text


def test_only_a_terminal_is_told(program: Path, chatting: Path) -> None:
    command, env = (
        [program, "run", chatting, "--raw", "-p", "a b c d", "-n", "1"],
        {**os.environ, "TESTS_FIRST": SLOWLY},
    )
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    assert "reading" not in done.stderr and "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_chat_that_is_told_to_end_ends(number: int, run: Run, chatting: Path) -> None:
    """Also during an answer, which Ctrl-C would only stop; the terminal is restored."""
    t = run(chatting, "-n", 400, "--think", "off", more=DRAWS_SLOWLY)
    at_prompt(t)
    t.type("Hello", ENTER)
    answering(t)
    assert not termios.tcgetattr(t.end)[3] & termios.ECHO
    os.kill(t.process.pid, number)
    assert t.ends() == 128 + number
    assert termios.tcgetattr(t.end)[3] & termios.ECHO
    t = run(chatting)
    at_prompt(t)
    os.kill(t.process.pid, number)
    assert t.ends() == 128 + number and "Traceback" not in t.text


def test_clear_leaves_the_chat_among_the_kept_ones(run: Run, chatting: Path) -> None:
    """What comes after it is another chat. A setting may have its name in other programs, and /bye leaves."""
    chats = chatting.parent / "state" / "chats"
    before = set(chats.glob("*.state"))
    t = run(chatting, "--greedy", "-n", 3)
    at_prompt(t)
    t.type("Hello", ENTER)
    at_prompt(t, 2)
    t.type("/clear", ENTER)
    t.shows("a new conversation begins; `hybrid state` lists the one so far")
    at_prompt(t, 3)
    t.type("Another", ENTER)
    at_prompt(t, 4)
    t.type("/set temperature 0.5", ENTER)
    at_prompt(t, 5)
    t.type("/set temp", ENTER)
    t.shows("0.5  (set)")
    t.type("/regan", ENTER)
    t.shows("there is no command /regan. Did you mean /regen?")
    t.type("/bye", ENTER)
    assert t.ends() == 0
    assert len(set(chats.glob("*.state")) - before) == 2
    assert (chatting.parent / "state" / "history").stat().st_mode & 0o777 == 0o600
