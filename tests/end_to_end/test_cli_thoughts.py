"""`hybrid run --think`: thoughts apart from the answer, switched on or off, ended by a budget; refused options."""

import json
from pathlib import Path

import pytest
from end_to_end.outcomes import Cli, failed, ok
from end_to_end.templated import OWN, templated

from hybrid.infer import LoadedModel
from hybrid.infer.answers.chat.dialect import ChatOptions
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.infer.answers.sampling import SamplingParams

pytestmark = pytest.mark.exhaustive

DRAWN = ["--temp", "1", "--seed", "3"]


@pytest.fixture
def thinker(files: dict[str, Path], cli: Cli, tmp_path: Path) -> Path:
    return templated(cli, files["q8_0"], OWN, tmp_path)


def test_thoughts_are_no_output(thinker: Path, cli: Cli) -> None:
    """This model has not learned to end thoughts: without --think off all its output is thoughts."""
    asked = ["run", thinker, "-p", "Why?", "-n", "12", *DRAWN]
    code, out, err = cli(*asked)
    assert code == 0 and out == "" and "thought for 12 tokens (--json tells what)" in err
    report = json.loads(ok(cli(*asked, "--json")))
    assert report["text"] == "" and report["reasoning_content"] and len(report["ids"]) == 12
    off = json.loads(ok(cli(*asked, "--think", "off", "--json")))
    assert off["text"] and "reasoning_content" not in off
    assert ok(cli(*asked, "--think", "off")).strip() == off["text"].strip()


@pytest.mark.parametrize("spec", ["none", "ngram"])
def test_a_budget_ends_them(spec: str, thinker: Path, cli: Cli) -> None:
    asked = ["run", thinker, "-p", "Why?", "--think-budget", "5", "--spec", spec, *DRAWN]
    report = json.loads(ok(cli(*asked, "-n", "30", "--json")))
    assert report["reasoning_content"] and report["text"]
    with LoadedModel.load(thinker, n_ctx=64) as model:
        assert len(model.tokenizer.encode(report["reasoning_content"], add_special=False)) <= 5 + 1
    # after them the form holds
    told = json.loads(ok(cli(*asked, "-n", "60", "--choice", "yes", "--choice", "no", "--json")))
    assert told["text"] in ("yes", "no") and told["reasoning_content"] == report["reasoning_content"]
    none = json.loads(ok(cli(*[*asked[:5], "0", *asked[6:]], "-n", "60", "--choice", "yes", "--json")))
    assert none["text"] == "yes" and "reasoning_content" not in none


def test_lines_of_messages(thinker: Path, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    lines = [{"messages": [{"role": "user", "content": text}]} for text in ("a", "b", "c")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked = ["run", thinker, "-f", path, "--think-budget", "4", "--choice", "left", "--choice", "right", "-n", "60"]
    answers = [json.loads(line) for line in ok(cli(*asked, *DRAWN, "--parallel", "2")).splitlines()]
    assert all(answer["text"] in ("left", "right") and answer["reasoning_content"] for answer in answers)
    alone = [json.loads(line) for line in ok(cli(*asked, *DRAWN, "--parallel", "1")).splitlines()]
    assert alone == answers
    off = [json.loads(line) for line in ok(cli(*asked[:4], "--think", "off", "-n", "5", *DRAWN)).splitlines()]
    assert all("reasoning_content" not in answer and answer["text"] for answer in off)


def test_thoughts_that_leave_the_history_cost_the_tail(thinker: Path) -> None:
    """The cost in tokens, on a model whose state cannot be cut."""
    with LoadedModel.load(thinker, n_ctx=1024, checkpoint_budget=64 << 20) as model:
        chat = Conversation(
            model,
            SamplingParams(temp=1.0, seed=1),
            model.chat_template,
            60,
            system="Long. " * 60,
            asked=ChatOptions(budget=30),
        )
        for question in ("First?", "Second?", "Third?"):
            before = chat.stats.n_prompt
            for _ in chat.answer(question):
                pass
            processed, turn = chat.stats.n_prompt - before, chat.turns.head
            assert turn is not None and turn.answer.thoughts and turn.answer.n_thought >= 30
            if turn.parent is None:
                assert processed > 120
                continue
            # the last answer without its thoughts, the question, and the template around them
            least = len(model.tokenizer.encode(turn.parent.answer.text + question, add_special=False))
            assert processed <= least + 30, (processed, least)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--raw", "--think", "on"], "--think needs the model's chat template: leave out --raw."),
        (["--think", "on"], "the model has no thoughts: its chat template does not know any."),
        (["--think-budget", "5"], "the model has no thoughts"),
        (["--think", "off", "--think-budget", "5"], "--think off and --think-budget 5 are both given"),
        (["--think", "on", "--think-budget", "0"], "--think on and --think-budget 0 are both given"),
        (["--think", "maybe"], "maybe"),
        (["--think-budget", "-1"], "'--think-budget': -1 is less than 0."),
    ],
)
def test_what_cannot_be(options: list[str], says: str, files: dict[str, Path], cli: Cli) -> None:
    assert says in failed(cli("run", files["q8_0"], "-p", "a", *options), code=2)


def test_off_where_there_are_none_is_what_it_is(files: dict[str, Path], cli: Cli) -> None:
    ok(cli("run", files["q8_0"], "-p", "a", "--think", "off", "-n", "1"))
