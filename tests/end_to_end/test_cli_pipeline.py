"""The command line on the bundled trained model: convert, quantize, inspect, run, perplexity, bench."""

import enum
import io
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from end_to_end.outcomes import Cli, failed, ok
from test_batch_guessing import Free

from hybrid import cache_paths
from hybrid.quant.ggml.reader import GGUFFile

PROMPT = "A file that comes from somewhere else should"


pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("own_cache")]


# --- convert -------------------------------------------------------------------------------------


def test_convert_reports_and_leaves_only_the_file(cli: Cli, bundled: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    out = ok(cli("convert", bundled, "-o", target, "--outtype", "f16", "--verify", "--model-name", "Named"))
    assert "126 tensors" in out and "tensors compared" in out
    assert list(tmp_path.iterdir()) == [target]
    with GGUFFile.open(target) as gguf:
        assert gguf.get("general.name") == "Named"
        assert gguf.get("general.file_type") == 1


def test_convert_with_the_file_as_its_second_argument(cli: Cli, bundled: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    ok(cli("convert", bundled, target, "--vocab-only"))
    assert list(tmp_path.iterdir()) == [target]
    assert "and -o" in failed(cli("convert", bundled, target, "-o", target), code=2)
    assert "a type with --outtype" in failed(cli("convert", bundled, "q8_0"), code=2)
    assert list(tmp_path.iterdir()) == [target]


def test_convert_dry_run_writes_nothing(cli: Cli, bundled: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    out = ok(cli("convert", bundled, "--dry-run"))
    assert "blk.0.ssm_conv1d.weight" in out and "126 tensors" in out
    plan = json.loads(ok(cli("convert", bundled, "--dry-run", "--json")))
    assert plan["architecture"] == "JambaForCausalLM"
    assert list(tmp_path.iterdir()) == []


def test_convert_lists_architectures(cli: Cli) -> None:
    names = ok(cli("convert", "--list-architectures")).split()
    assert {"JambaForCausalLM", "MambaForCausalLM", "LlavaForConditionalGeneration"} <= set(names)


def test_convert_of_an_empty_folder(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    message = failed(cli("convert", tmp_path / "empty", "-o", tmp_path / "x.gguf"), code=1)
    assert "config.json" in message
    assert not (tmp_path / "x.gguf").exists()


def test_convert_into_a_folder_that_is_not_there(cli: Cli, bundled: Path, tmp_path: Path) -> None:
    result = cli("convert", bundled, "-o", tmp_path / "no" / "x.gguf")
    assert result[0] in (1, 2)
    assert "no" in failed(result, result[0])


# --- inspect ------------------------------------------------------------------------------------


def test_inspect_agrees_with_the_memory_of_the_model(cli: Cli, files: dict[str, Path]) -> None:
    from hybrid.infer import LoadedModel

    facts = json.loads(ok(cli("inspect", files["q8_0"], "--json")))
    assert facts["pattern"] == ["M", "ME", "A", "ME", "M", "ME", "A", "ME"]
    with LoadedModel.load(files["q8_0"], n_ctx=64) as model:
        assert model.memory.bytes_state_per_seq == facts["state_nbytes_per_seq"]
        assert model.memory.bytes_kv_per_token == facts["kv_nbytes_per_token"]
        assert model.n_params == facts["n_weights"]
    out = ok(cli("inspect", files["q8_0"]))
    assert "0  M  ME A  ME M  ME A  ME" in out
    assert "A attention: 2, M Mamba: 6, E experts: 4" in out


# --- run -----------------------------------------------------------------------------------------


def test_run_puts_text_on_stdout_and_the_rest_on_stderr(cli: Cli, files: dict[str, Path]) -> None:
    code, out, err = cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 12, "--temp", 0)
    assert code == 0
    assert out.endswith("\n") and len(out) > 10 and PROMPT not in out
    assert "per second" in err
    data = json.loads(ok(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 12, "--temp", 0, "--json")))
    assert data["text"].rstrip("\n") == out.rstrip("\n")
    assert len(data["ids"]) == 12 and data["reason"] == "length"


def test_a_seed_repeats_and_another_does_not(cli: Cli, files: dict[str, Path]) -> None:
    def text(seed: int, threads: int) -> str:
        return ok(
            cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 24, "--seed", seed, "-t", threads, "--temp", 1.2)
        )

    assert text(1, 1) == text(1, 2) != text(2, 1)


def test_prompt_from_file_and_stdin(
    cli: Cli, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["-n", "8", "--temp", "0"]
    expected = ok(cli("run", files["q8_0"], "--raw", "-p", PROMPT, *options))
    (tmp_path / "prompt.txt").write_text(PROMPT)
    assert ok(cli("run", files["q8_0"], "--raw", "-f", tmp_path / "prompt.txt", *options)) == expected
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(PROMPT.encode()), isatty=lambda: False))
    assert ok(cli("run", files["q8_0"], "--raw", *options)) == expected


def test_stop_text_ends_and_is_not_printed(cli: Cli, files: dict[str, Path]) -> None:
    whole = ok(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 40, "--temp", 0))
    word = whole.split()[4]
    data = json.loads(
        ok(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 40, "--temp", 0, "--stop", word, "--json"))
    )
    assert data["reason"] == "stop" and data["stop"] == word
    assert whole.startswith(data["text"]) and word not in data["text"]


def test_a_run_in_two_halves_is_the_run_in_one(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    """With --state in between: the same tokens, sampled, with penalties."""
    options = ["--seed", "7", "--temp", "1.0", "--repeat-penalty", "1.1", "--json"]
    whole = json.loads(ok(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 30, *options)))
    state = tmp_path / "half.state"
    first = json.loads(ok(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 11, "--state", state, *options)))
    second = json.loads(ok(cli("run", files["q8_0"], "--raw", "-p", "", "-n", 19, "--state", state, *options)))
    assert first["ids"] + second["ids"] == whole["ids"]
    assert second["prompt_tokens"] == 0
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["half.state"]


def test_a_state_of_another_model_is_refused(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    state = tmp_path / "s.state"
    ok(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 2, "--state", state))
    before = state.read_bytes()
    error = failed(cli("run", files["bf16"], "--raw", "-p", "x", "-n", 2, "--state", state), code=1)
    assert re.fullmatch(
        r"error: s\.state was saved by '.*', not by this model \('.*'\)\. Start without --state\.", error.strip()
    )
    error = failed(
        cli("run", files["q8_0"], "--raw", "-p", "x", "-n", 2, "--state", state, "--kv-type", "q8_0"), code=1
    )
    assert "keeps keys and values in f16, this model in q8_0. Use --kv-type f16, or start without --state." in " ".join(
        error.split()
    )
    assert state.read_bytes() == before
    state.write_bytes(before[:1000])
    assert "Start without --state." in failed(
        cli("run", files["q8_0"], "--raw", "-p", "x", "-n", 2, "--state", state), code=1
    )
    assert failed(cli("state", "show", state), code=1).endswith("the file has 1000."), "nothing starts there"


def test_a_prompt_that_does_not_fit_names_the_option(cli: Cli, files: dict[str, Path]) -> None:
    error = failed(cli("run", files["q8_0"], "--raw", "-p", PROMPT * 9, "-n", 2, "-c", 8), code=2)
    assert error.endswith(" tokens do not fit the context of 8. Use a larger context (-c)."), error


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["-p", PROMPT, "-c", "8"], 2, "8"),
        (["-p", PROMPT, "--temp", "nan"], 2, "temp"),
        (["-p", PROMPT, "--top-p", "7"], 2, "top_p"),
        (["-p", PROMPT, "--seed", "-1"], 2, "seed"),
        (["-p", PROMPT, "--stop", ""], 2, "stop"),
    ],
)
def test_run_options_that_cannot_be(cli: Cli, files: dict[str, Path], options: list[str], code: int, says: str) -> None:
    assert says in failed(cli("run", files["q8_0"], "--raw", "-n", 2, *options), code)


def test_run_a_folder_converts_once(cli: Cli, data_dir: Path, tmp_path: Path) -> None:
    folder = data_dir / "checkpoints" / "jamba-dense"
    code, first, err = cli("run", folder, "--raw", "-p", "The", "-n", 4, "--temp", 0)
    assert code == 0 and "converting" in err
    code, second, err = cli("run", folder, "--raw", "-p", "The", "-n", 4, "--temp", 0)
    assert code == 0 and "converting" not in err
    assert first == second
    assert len(list((tmp_path / "cache" / "hybrid" / "converted").glob("*.gguf"))) == 1


def test_what_a_conversion_on_the_way_could_not_keep(cli: Cli, data_dir: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(data_dir / "checkpoints" / "jamba-dense", tmp_path / "folder")
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 99999]}')
    note = "note: generation_config.json: eos_token_id 99999 left out"
    assert note in cli("run", folder, "--raw", "-p", "The", "-n", 1)[2]
    assert note not in cli("run", folder, "--raw", "-p", "The", "-n", 1)[2], "it is converted once"
    assert note in cli("quantize", folder, tmp_path / "q.gguf", "q8_0")[2]


@pytest.mark.parametrize(
    ("command", "name", "code"),
    [("run", "SIGINT", 130), ("run", "SIGTERM", 143), ("perplexity", "SIGINT", 130), ("perplexity", "SIGHUP", 129)],
)
def test_a_signal_ends_quietly(
    program: Path, files: dict[str, Path], prose: Path, tmp_path: Path, command: str, name: str, code: int
) -> None:
    """During computation: no traceback, no partial state file. Two of the processes are not forked."""
    options = {
        "run": ["-p", PROMPT, "-n", "-1", "-c", "65536", "--state", tmp_path / "s.state"],
        "perplexity": ["-f", prose, "-c", "16", "-b", "16"],
    }[command]
    started = [program] if name == "SIGINT" else [sys.executable, "-m", "hybrid.cli"]
    process = subprocess.Popen(
        [*started, command, str(files["q8_0"]), *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.read(4), "it said nothing"
        process.send_signal(getattr(signal, name))
        _, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == code, err.decode()
    assert b"Traceback" not in err
    assert list(tmp_path.glob("*.state*")) == []


def test_numpy_does_not_drop_a_signal(cli: Cli, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy asks its arguments for `__array_ufunc__`, and drops exceptions meanwhile. Up to Python 3.11 `enum` classes
    answer with Python code, in which a signal may be handled: the run would continue as if nothing had happened."""
    asked: set[str] = set()

    def answer(cls: type, name: str) -> Any:
        if name.startswith("__array"):
            frame = sys._getframe(1)
            asked.add(f"{frame.f_code.co_filename}, line {frame.f_lineno}: {cls.__name__}.{name}")
        raise AttributeError(name)

    monkeypatch.setattr(enum.EnumType, "__getattr__", answer, raising=False)
    assert np.int32(1) != Caller.ONE, "it asks"
    assert len(asked) == 1, asked
    asked.clear()
    ok(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 40, "--temp", 1.5, "--seed", 3))
    assert not asked


class Caller(enum.IntEnum):
    ONE = 2


@pytest.mark.parametrize("temp", [0, 0.7])
def test_guesses_change_nothing(cli: Cli, files: dict[str, Path], temp: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybrid.infer.runner.StepCosts", Free)  # this model is too small for guesses to pay
    text = "One day a cat sat on a mat. One day a dog sat on a mat. One day a cat sat"
    options = ("run", files["q8_0"], "--raw", "-p", text, "-n", 40, "--temp", temp, "--seed", 5, "--json")
    plain, guessed = json.loads(ok(cli(*options, "--spec", "none"))), json.loads(ok(cli(*options)))
    assert guessed["ids"] == plain["ids"] and guessed["text"] == plain["text"]
    assert guessed["passes"] + guessed["accepted"] == plain["passes"] and guessed["guessed"] > 0


# --- files of prompts ----------------------------------------------------------------------------

LINES = [
    {"prompt": "The state of a recurrent layer", "id": "a"},
    {"prompt": "The state of a recurrent layer is"},
    "Attention",
    {"messages": [{"role": "user", "content": "What is a cache?"}], "id": 7},
    {"prompt": "The state of a machine"},
]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in LINES) + "\n\n")
    return path


def test_a_file_of_prompts(cli: Cli, files: dict[str, Path], prompts: Path, tmp_path: Path) -> None:
    """Answers do not depend on the batch size, and an interrupted run continues."""
    out = tmp_path / "out.jsonl"
    options = ("run", files["q8_0"], "-f", prompts, "--n-samples", 3, "-n", 9, "-c", 256, "--seed", 5)
    code, text, err = cli(*options, "--parallel", 1)
    assert code == 0 and "15 answers" in err
    rows = [json.loads(line) for line in text.splitlines()]
    assert [(r["index"], r["sample"]) for r in rows] == [(i, s) for i in range(5) for s in range(3)]
    assert [r["id"] for r in rows[::3]] == ["a", None, None, 7, None]
    assert len({r["text"] for r in rows[:3]}) > 1, "samples differ"
    code, _, err = cli(*options, "--parallel", 6, "-o", out)
    assert code == 0 and out.read_text() == text
    with pytest.MonkeyPatch.context() as patch:  # this model is too small for guesses to pay
        patch.setattr("hybrid.infer.runner.StepCosts", Free)
        code, guessed, err = cli(*options, "-n", 40, "--temp", 0)
    assert code == 0 and " guesses came true)" in err
    code, plain, err = cli(*options, "-n", 40, "--temp", 0, "--spec", "none")
    assert guessed == plain and "guesses" not in err
    # one answer alone, as a single prompt
    alone = json.loads(
        ok(cli("run", files["q8_0"], "--raw", "-p", LINES[0]["prompt"], "-n", 9, "-c", 256, "--seed", 6, "--json"))
    )
    assert alone["text"] == rows[1]["text"]
    # ends within a line
    out.write_text(text[: len(text) * 2 // 3])
    code, _, err = cli(*options, "--parallel", 4, "-o", out)
    assert code == 0 and "were there" in err
    assert out.read_text() == text
    assert "0 answers (15 were there)" in cli(*options, "-o", out)[2]
    for other in (("--temp", 0.1), ("-n", 8), ("--n-samples", 1)):
        assert "holds answers to other prompts or settings" in failed(cli(*options, *other, "-o", out), code=2)
    assert out.read_text() == text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "prompts.jsonl, line 6 is not JSON"),
        ("5", "line 6: expected"),
        ('{"prompt": "a", "messages": []}', "line 6: expected"),
        ('{"prompt": ""}', "line 6: its prompt is not a text"),
        ('{"messages": 3}', "line 6: its messages are not a list"),
        (json.dumps({"prompt": "long " * 400}), "prompt 6 has"),
    ],
)
def test_wrong_prompts_are_named(cli: Cli, files: dict[str, Path], prompts: Path, line: str, says: str) -> None:
    prompts.write_text(prompts.read_text().rstrip("\n") + "\n" + line)
    assert says in failed(cli("run", files["q8_0"], "-f", prompts, "-n", 2, "-c", 256), code=2)


def test_options_of_files_of_prompts(cli: Cli, files: dict[str, Path], prompts: Path) -> None:
    for option in (
        ("--state", "s"),
        ("--json",),
        ("--raw",),
        ("--no-raw",),
        ("--chat-template", "x"),
        ("--system", "Be brief."),
    ):
        assert "does not go with a file" in failed(cli("run", files["q8_0"], "-f", prompts, *option), code=2)
    for option in (("-o", "x"), ("--parallel", 2), ("--n-samples", 2)):
        assert "belongs to a file of prompts" in failed(cli("run", files["q8_0"], "--raw", "-p", "x", *option), code=2)
    told = failed(cli("run", files["q8_0"], "--raw", "-p", "x", "--system", "Be brief."), code=2)
    assert "--system needs the model's chat template: leave out --raw." in told
    empty = prompts.with_name("empty.jsonl")
    empty.write_text("\n")
    assert "has no prompts" in failed(cli("run", files["q8_0"], "-f", empty), code=2)


# --- chat ----------------------------------------------------------------------------------------


def test_chat_on_the_model(files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two turns, saved and loaded: the second turn processes only its own tokens, and the chat continues."""
    from hybrid.cli.chat.commands import COMMANDS
    from hybrid.cli.chat.session import ChatSession
    from hybrid.infer import LoadedModel
    from hybrid.infer.answers.conversations.conversation import Conversation
    from hybrid.infer.answers.sampling import SamplingParams

    with LoadedModel.load(files["q8_0"], n_ctx=512) as model:
        conversation = Conversation(model, SamplingParams(temp=0), model.chat_template, max_tokens=6)
        path = tmp_path / "chat.state"
        lines = iter(["What is a cache?", "And a file?", "/stats", f"/save {path}", "/clear", f"/load {path}", "Yes."])
        session = ChatSession(
            conversation, lambda prompt: next(lines, None) or (_ for _ in ()).throw(EOFError()), COMMANDS
        )
        session.loop()
        assert [m["role"] for m in conversation.messages] == ["user", "assistant"] * 3
        text = conversation.render(conversation.messages)
        fresh = model.tokenizer.encode(text, add_special=False, parse_special=True)
        assert conversation.stats.n_prompt < len(fresh), "something was processed twice"
        assert conversation.stats.n_reused > 0
        err = capsys.readouterr().err
        assert "context" in err and "per second" in err and "unchanged" in err
        conversation.seq.close()


@pytest.fixture
def keyboard() -> Iterator[Any]:
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        yield pipe


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("hello\r", "hello"),
        ("a\x1b\rb\r", "a\nb"),
        ("a\\\rb\r", "a\nb"),
        ('"""a\rb"""\r', "a\nb"),
        ("ab\x7fc\r", "ac"),
        ("\x1b[200~a\nb\r\nc\x1b[201~\r", "a\nb\nc"),
        ("/mo\t x\r", "/model x"),
        ("/s\t\r", "/s"),
    ],
)
def test_line_editing(keyboard: Any, keys: str, message: str) -> None:
    from hybrid.cli.terminal.line_editing import prompt_reader

    keyboard.send_text(keys)
    assert prompt_reader(["/model", "/save", "/set"])("> ") == message


def test_a_chat_is_kept_and_gone_on_with(
    keyboard: Any, cli: Cli, files: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")  # a line per chat in the list
    options = ("run", files["q8_0"], "-n", 5, "--temp", 0, "--system", "Be brief.")
    assert "no earlier chat with q8_0.gguf" in failed(cli("run", files["q8_0"], "--continue"), code=2)
    keyboard.send_text("What is a cache?\r/fork side\rAnd a file?\r\x04")
    code, _, err = cli(*options)
    assert code == 0 and "--continue continues it" in err
    keyboard.send_text("/tree\rWhy?\r/stats\r\x04")
    code, out, err = cli(*options, "--continue")
    assert code == 0, err
    assert "> What is a cache?" in out and re.search(r"And a file\?( -> .*)?  \[\*side\]", err)
    assert "restored" in err

    rows = ok(cli("state", "list")).splitlines()
    assert len(rows) == 2 and "What is a cache?" in rows[1]
    (info,) = json.loads(ok(cli("state", "list", "--json")))
    assert info["turns"] == 3 and info["branches"] == ["main", "side"] and info["n_checkpoints"] >= 3
    name = Path(info["path"]).stem
    assert "chat of 3 turns, branches main, side" in ok(cli("state", "show", name))
    assert "no such state file" in failed(cli("state", "show", "absent"), code=2)
    assert "needs the name" in failed(cli("state", "rm"), code=2)
    assert "takes no names" in failed(cli("state", "list", name), code=2)
    assert "is not a kept chat" in failed(cli("state", "rm", files["q8_0"]), code=2)
    goes_on = ("run", files["q8_0"], "--continue")
    assert "--state does not go with it" in failed(cli(*goes_on, "--state", "x"), code=2)
    code, out, err = cli(*goes_on, "-n", 3, "And one more?")
    assert code == 0 and "restored" in err and "generated 3" in err and "the limit of 3 tokens; loaded" in err
    assert json.loads(ok(cli(*goes_on, "-n", 3, "-p", "And one more?", "--json")))["prompt_tokens"] < 60
    assert "chat of 5 turns, branches main, side" in ok(cli("state", "show", name))
    assert ok(cli("state", "rm", name)).startswith("1 chat removed")
    assert ok(cli("state")) == "no kept chats\n"


def test_history_is_kept_and_ctrl_d_ends(keyboard: Any) -> None:
    from hybrid.cli.terminal.line_editing import prompt_reader

    keyboard.send_text("remember me\r\x04")
    read = prompt_reader()
    assert read("> ") == "remember me"
    with pytest.raises(EOFError):
        read("> ")
    assert "remember me" in (cache_paths.state_dir() / "history").read_text()


# --- perplexity, bench, demo ---------------------------------------------------------------------


def test_perplexity_prints_as_llama_perplexity_does(cli: Cli, files: dict[str, Path], prose: Path) -> None:
    out = ok(cli("perplexity", files["q8_0"], "-f", prose, "-c", 128, "--chunks", 3))
    first, last = out.splitlines()
    assert first.startswith("[1]") and ",[3]" in first and first.endswith(",")
    data = json.loads(ok(cli("perplexity", files["q8_0"], "-f", prose, "-c", 128, "--chunks", 3, "--json")))
    assert last == f"Final estimate: PPL = {data['ppl']:.4f} +/- {data['stderr']:.5f}"
    assert data["n_chunks"] == 3 and len(data["running"]) == 3
    assert 5 < data["ppl"] < 120, data["ppl"]


def test_perplexity_does_not_depend_on_how_chunks_are_grouped(cli: Cli, files: dict[str, Path], prose: Path) -> None:
    def ppl(*options: object) -> float:
        report = ok(cli("perplexity", files["q8_0"], "-f", prose, "-c", 64, "--chunks", 5, "--json", *options))
        value: float = json.loads(report)["ppl"]
        return value

    assert ppl("-b", 64) == ppl("-b", 512) == ppl("-t", 1)
    assert ppl("--exact") != ppl()
    assert abs(ppl("--exact") / ppl() - 1) < 0.01


@pytest.mark.parametrize(("text", "says"), [("", "empty|tokens"), ("Too short.", "tokens")])
def test_perplexity_of_too_little(cli: Cli, files: dict[str, Path], tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "t.txt").write_text(text)
    message = failed(cli("perplexity", files["q8_0"], "-f", tmp_path / "t.txt"), code=2)
    assert any(word in message for word in says.split("|")), message


def test_bench_tables(cli: Cli, files: dict[str, Path]) -> None:
    options = ["-p", "16", "-n", "4", "-r", "2", "-pg", "8,2"]
    out = ok(cli("bench", files["q8_0"], *options))
    for test in ("pp16", "tg4", "pp8+tg2", "first token", "peak memory"):
        assert test in out
    records = json.loads(ok(cli("bench", files["q8_0"], *options, "-o", "json")))
    assert [(r["n_prompt"], r["n_gen"]) for r in records] == [(16, 0), (0, 4), (8, 2)]
    assert all(r["avg_ts"] > 0 for r in records)


def test_bench_at_a_depth(cli: Cli, files: dict[str, Path]) -> None:
    options = ["-p", "0", "-n", "2", "-r", "1", "-d", "0,600", "--kv-type", "f32,q8_0", "--no-state", "-o", "json"]
    records = json.loads(ok(cli("bench", files["q8_0"], *options)))
    assert [(r["type_k"], r["n_depth"]) for r in records] == [("f32", 0), ("f32", 600), ("q8_0", 0), ("q8_0", 600)]
    assert "in one of f32, f16, bf16, q8_0, q5_1" in failed(cli("bench", files["q8_0"], "--kv-type", "f12"), code=2)


@pytest.mark.slow
def test_bench_profile(cli: Cli, files: dict[str, Path]) -> None:
    out = ok(cli("bench", files["q8_0"], "-p", "16", "-n", "2", "-np", "1,3", "--profile"))
    assert "GB/s" in out and all(f"{test}: " in out for test in ("pp16", "tg2", "tg2 x3"))


def test_demo(cli: Cli, small_checkpoint: Path, prose: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another model and a shorter text; test_cli_packaging.py runs it as a newcomer does."""
    (tmp_path / "text.txt").write_text(prose.read_text(encoding="utf-8")[:2500], encoding="utf-8")
    monkeypatch.setattr("hybrid.pipeline.models.bundled_checkpoint", lambda: small_checkpoint)
    monkeypatch.setattr("hybrid.pipeline.models.bundled_prose", lambda: tmp_path / "text.txt")
    out = ok(cli("demo", "-o", tmp_path / "demo"))
    assert out.count("$ hybrid ") == 7
    assert out.count("Final estimate: PPL = ") == 3
    assert PROMPT in out
