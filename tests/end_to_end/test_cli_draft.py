"""`--draft`: answers of `hybrid run`, its files and chats, of the server and the library, with a draft model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from end_to_end.outcomes import Cli, ok
from test_draft import Steps, eager

import hybrid
from hybrid.cli.main import run
from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.infer.answers.guessing.draft import Draft
from hybrid.infer.answers.guessing.draft_loading import draft_bytes, load_draft
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.quant.ggml.errors import UsageError

if TYPE_CHECKING:
    from hybrid.cli.serve.models.router import ModelRouter

pytestmark = pytest.mark.exhaustive

__all__ = ["eager"]  # a fixture
TEXT = "One day a cat sat on a mat. One day a dog"


@pytest.fixture
def guessing(monkeypatch: pytest.MonkeyPatch, eager: None) -> None:
    """Guess always: this model is too small for guesses to pay."""
    monkeypatch.setattr("hybrid.infer.runner.StepCosts", Steps)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """A model with another vocabulary."""
    path = tmp_path_factory.mktemp("other") / "other.gguf"
    convert(data_dir / "checkpoints" / "mamba-bf16", path)
    return path


@pytest.mark.usefixtures("guessing")
@pytest.mark.parametrize("more", [(), ("--temp", "0.8"), ("--spec", "none"), ("--regex", "[a-z ]{30,90}[.]")])
def test_one_answer(more: tuple[str, ...], cli: Cli, files: dict[str, Path]) -> None:
    options = ("run", files["q8_0"], "--raw", "-p", TEXT, "-n", 40, "--seed", 5, "--json", *more)
    plain = json.loads(ok(cli(*options)))
    code, text, err = cli(*options, "--draft", files["q8_0"])
    guessed = json.loads(text)
    assert code == 0 and " guesses\n" in err and "guesses came true" in err
    assert guessed["ids"] == plain["ids"] and guessed["text"] == plain["text"]
    assert guessed["guessed"] > 10 and guessed["accepted"] > 5
    if "--regex" not in more:
        assert guessed["passes"] + guessed["accepted"] == plain["passes"] + plain["accepted"]


@pytest.mark.usefixtures("guessing")
def test_a_file_of_prompts(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"prompt": TEXT}, {"prompt": "A cache"}, {"prompt": "The number: ", "regex": "[0-9]{4,9}"}]
    prompts.write_text("\n".join(json.dumps(line) for line in lines))
    options = ("run", files["q8_0"], "-f", prompts, "-n", 30, "-c", 256, "--seed", 5, "--parallel", 2)
    plain = ok(cli(*options))
    code, guessed, err = cli(*options, "--draft", files["q8_0"])
    assert code == 0 and guessed == plain and "guesses came true" in err


@pytest.mark.usefixtures("guessing")
def test_a_chat_that_goes_back(files: dict[str, Path]) -> None:
    """Answers, a repeated answer, an edited question, an undone answer, and a full context."""

    def told(draft: bool) -> list[str]:
        with LoadedModel.load(files["q8_0"], n_ctx=160, checkpoint_budget=64 << 20) as model:
            if draft:
                load_draft(files["q8_0"], model)
                model.runner.guessers.ngrams = False
            chat = Conversation(model, SamplingParams(temp=0.7, seed=3), None, 30, speculate=draft, keep=4)
            said = ["".join(part.text for part in chat.answer(text)) for text in ("A cat ", " and a dog ", " sat ")]
            said.append("".join(part.text for part in chat.regenerate()))
            said.append("".join(part.text for part in chat.edit(2, "The state ")))
            chat.undo()
            said += ["".join(part.text for part in chat.answer(text)) for text in (" or not ", " and then ", " so ")]
            if draft:
                assert chat.result is not None and chat.result.guessed > 0
            return said

    assert told(draft=True) == told(draft=False)


@pytest.mark.usefixtures("guessing")
def test_in_a_program(files: dict[str, Path]) -> None:
    with hybrid.load(files["q8_0"], parallel=2, context=256) as model:
        want = model.complete(TEXT, tokens=30, seed=1).text
    with hybrid.load(files["q8_0"], parallel=2, context=256, draft=files["q8_0"]) as model:
        assert model.complete(TEXT, tokens=30, seed=1).text == want
        helper = model.answering.model.runner.guessers.helper
        assert isinstance(helper, Draft) and helper.credit.total_gain > 5


def test_the_server_is_told(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[object] = []

    def note(router: "ModelRouter", *_: object) -> None:
        served = router.default.served
        assert served is not None
        guessers = served.answers.model.runner.guessers
        taken.append((served.maker.speculate, guessers.ngrams, guessers.helper is not None))

    monkeypatch.setattr("hybrid.cli.commands.serve._run", note)
    draft = ["--draft", str(files["q8_0"])]
    for arguments in ([], ["--spec", "none"], draft, ["--spec", "none", *draft]):
        assert run(["serve", str(files["q8_0"]), "--port", "0", "-c", "64", "--parallel", "2", *arguments]) == 0
    assert taken == [(True, True, False), (False, False, False), (True, True, True), (True, False, True)]


def test_another_vocabulary_is_refused(cli: Cli, files: dict[str, Path], other: Path, tmp_path: Path) -> None:
    code, out, err = cli("run", files["q8_0"], "--raw", "-p", TEXT, "--draft", other)
    last = err.strip().splitlines()[-1]
    assert code == 2 and not out
    assert last.startswith(f"error: other.gguf cannot guess for {files['q8_0'].name}: they have ")
    assert last.endswith("A draft is a smaller model of the same vocabulary, mostly of the same family.")
    code, _, err = cli("run", files["q8_0"], "--raw", "-p", TEXT, "--draft", tmp_path / "none.gguf")
    assert code == 2 and "no such file or folder" in err
    with pytest.raises(UsageError, match="cannot guess for"):
        hybrid.load(files["q8_0"], context=64, draft=other)


def test_the_context_leaves_room_for_the_draft(files: dict[str, Path]) -> None:
    need = draft_bytes(files["q8_0"], 0)
    assert need > files["q8_0"].stat().st_size
    assert draft_bytes(files["q8_0"], 64) < need < draft_bytes(files["q8_0"], 0, n_texts=4)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Check that no thread of a draft is left."""
    import threading

    before = set(threading.enumerate())
    yield
    left = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("hybrid-")]
    for thread in left:
        thread.join(60)  # a thread that reads weights ahead ends after its current block
    assert not [thread for thread in left if thread.is_alive()]
