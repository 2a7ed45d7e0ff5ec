"""--context-shift on the command line: a text continues past its context, is saved and continued; refused options."""

import json
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from end_to_end.outcomes import Cli, failed, ok

from hybrid.cli.terminal.context_shift import tokens_left_out
from hybrid.infer import LoadedModel
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.infer.answers.sampling import SamplingParams

PROMPT = "A file that comes from somewhere else should"
pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("own_cache")]
SHIFT = ["-c", "64", "--context-shift", "--keep", "3"]


def test_a_text_goes_on_and_says_so_once(cli: Cli, files: dict[str, Path]) -> None:
    options = ["-p", PROMPT, "-n", 150, "--temp", "0"]
    _, text, notes = cli("run", files["q8_0"], "--raw", *options, *SHIFT)
    assert len(text.split()) > 50
    notes = " ".join(notes.split())
    assert notes.count("context of 64 was full") == 1
    assert "older tokens were left out of the attention layers; the recurrent state goes on, it has seen them" in notes
    data = json.loads(ok(cli("run", files["q8_0"], "--raw", *options, *SHIFT, "--json", "--spec", "none")))
    assert data["reason"] == "length" and len(data["ids"]) == 150 and data["discarded"] > 64
    assert data["text"].strip() == text.strip()
    guessed = json.loads(ok(cli("run", files["q8_0"], "--raw", *options, *SHIFT, "--json")))
    assert guessed["ids"] == data["ids"]
    ended = json.loads(ok(cli("run", files["q8_0"], "--raw", *options, "-c", "64", "--json")))
    assert ended["reason"] == "context" and ended["discarded"] == 0
    n = len(ended["ids"]) - 2
    assert ended["ids"][:n] == data["ids"][:n], "the same up to the first shift"


def test_two_halves_are_the_whole(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    options = ["--seed", "7", "--temp", "1.0", "--json", *SHIFT]
    whole = json.loads(ok(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 120, *options)))
    state = tmp_path / "s"
    first = json.loads(ok(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 80, "--state", state, *options)))
    shown = ok(cli("state", "show", state))
    assert "after a context shift" in shown
    second = json.loads(ok(cli("run", files["q8_0"], "--raw", "-p", "", "-n", 40, "--state", state, *options)))
    assert first["ids"] + second["ids"] == whole["ids"]
    assert first["discarded"] + second["discarded"] == whole["discarded"] > 64
    more = json.loads(ok(cli("run", files["q8_0"], "--raw", "-p", PROMPT * 3, "-n", 5, "--state", state, *options)))
    assert more["discarded"] > 0 and more["prompt_tokens"] > 20, "a prompt makes its room"


def test_a_full_state_is_gone_on_with(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    """The saved answer ended with a sampled token that did not fit."""
    state = tmp_path / "s"
    ok(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 200, "-c", "64", "--state", state, "--temp", "0"))
    assert "do not fit" in failed(
        cli("run", files["q8_0"], "--raw", "-p", "", "-n", 5, "-c", "64", "--state", state), code=2
    )
    out = json.loads(ok(cli("run", files["q8_0"], "--raw", "-p", "", "-n", 50, "--state", state, "--json", *SHIFT)))
    assert out["reason"] == "length" and len(out["ids"]) == 50


def test_files_of_prompts(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    """Each answer equals the answer to its prompt alone."""
    prompts = tmp_path / "p.jsonl"
    texts = [PROMPT, "The state", PROMPT + " be"]
    prompts.write_text("\n".join(map(json.dumps, texts)))
    options = ["-n", 90, "--temp", "0", *SHIFT]
    _, out, notes = cli("run", files["q8_0"], "-f", prompts, "--parallel", 2, *options)
    answers = [json.loads(line) for line in out.splitlines()]
    assert "context of 64 was full" in " ".join(notes.split())
    for text, answer in zip(texts, answers, strict=True):
        alone = json.loads(ok(cli("run", files["q8_0"], "--raw", "-p", text, "--json", *options)))
        assert answer["text"] == alone["text"] and answer["reason"] == "length" and answer["tokens"] == 90
    path = tmp_path / "out.jsonl"
    ok(cli("run", files["q8_0"], "-f", prompts, "-o", path, *options))
    other = failed(cli("run", files["q8_0"], "-f", prompts, "-o", path, *options[:-1], "5"), code=2)
    assert "other prompts or settings" in " ".join(other.split())


def test_a_chat_goes_on_as_if_it_had_not_been_saved(files: dict[str, Path], tmp_path: Path) -> None:
    options = {"template": None, "max_tokens": 40, "system": "Notes. ", "keep": -1}

    def said(chat: Conversation, text: str) -> str:
        return "".join(part.text for part in chat.answer(text))

    def talk() -> Conversation:
        model = stack.enter_context(LoadedModel.load(files["q8_0"], n_ctx=96, checkpoint_budget=64 << 20))
        return Conversation(model, SamplingParams(temp=0), **options)  # type: ignore[arg-type]

    with ExitStack() as stack:
        chat = talk()
        for question in ("The file", " A state", " One cache", " No text"):
            assert len(said(chat, question)) > 20
        assert chat.held is chat.turns.head and chat.seq.is_shifted
        n = len(chat.model.tokenizer.encode("Notes. "))
        assert chat.seq.tokens[: n - 1] == chat.model.tokenizer.encode("Notes. ")[: n - 1]
        chat.save(tmp_path / "chat")
        wanted = said(chat, " And then")
        again = talk()
        again.load(tmp_path / "chat")
        assert again.seq.is_shifted and said(again, " And then") == wanted
        # other branches are other texts
        again.undo()
        again.undo()
        assert len(said(again, " Elsewhere")) > 20 and len(again.seq.tokens) < 96
        again.turns.switch("1")
        assert len(said(again, " Early")) > 20 and again.held is None and not again.seq.is_shifted


@pytest.mark.parametrize(
    ("is_recurrent", "specs", "says"),
    [
        (False, [1], "9 older tokens were left out"),
        (
            True,
            [1],
            "9 older tokens were left out of the attention layers; the recurrent state goes on, it has seen them",
        ),
        (True, [], "9 older tokens were left out; this model needs none of them, its recurrent state goes on"),
    ],
)
def test_what_is_said(is_recurrent: bool, specs: list[int], says: str) -> None:
    memory = SimpleNamespace(is_recurrent=is_recurrent, attention=SimpleNamespace(specs=specs))
    model: Any = SimpleNamespace(n_ctx=64, memory=memory)
    assert tokens_left_out(model, 9) == f"the context of 64 was full: {says}"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--keep", "3"], "needs --context-shift"),
        (["--context-shift", "--keep", "-2"], "'--keep': -2 is less than -1."),
        (["--context-shift", "--keep", "-1", "-c", "10"], "kept tokens fill the context of 10: nothing could leave it"),
    ],
)
def test_options_that_cannot_be(cli: Cli, files: dict[str, Path], options: list[str], says: str) -> None:
    assert says in " ".join(failed(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 2, *options), code=2).split())
