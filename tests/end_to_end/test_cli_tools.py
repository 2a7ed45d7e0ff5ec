"""`hybrid run` with tools: one message, files of messages, a chat continued through files; refused options."""

import json
from pathlib import Path
from typing import Any

import pytest
from end_to_end.outcomes import Cli, failed, ok
from end_to_end.templated import OWN, templated

from hybrid.infer.answers.chat.dialect import ChatOptions

pytestmark = pytest.mark.exhaustive

GRANITE, JAMBA = "ibm-granite-granite-4.0", "ai21labs-Jamba-Mini-1.7"
WEATHER = {
    "name": "get_weather",
    "description": "Weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 9}, "unit": {"enum": ["C", "F"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}
CLOCK = {"name": "get_time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
TOOLS = [{"type": "function", "function": function} for function in (WEATHER, CLOCK)]
ENDS = ["--logit-bias", "2=20"]  # </s> as early as allowed: after the first call
DRAWN = ["--temp", "1", "--seed", "5", "-n", "400", *ENDS]


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return path


def fits(function: dict[str, Any]) -> bool:
    arguments = json.loads(function["arguments"])
    if function["name"] == "get_time":
        return arguments == {}
    return arguments.keys() == {"city", "unit"} and len(arguments["city"]) <= 9 and arguments["unit"] in ("C", "F")


@pytest.mark.parametrize("name", [GRANITE, JAMBA, "LFM2-8B-A1B", "Qwen3.5-4B"])
def test_a_call_is_a_line_of_json(name: str, files: dict[str, Path], cli: Cli, tmp_path: Path, tools: Path) -> None:
    model = templated(cli, files["q8_0"], name, tmp_path)
    asked = ["run", model, "-p", "Rain in Rome?", "--tools", tools, "--think", "off", *DRAWN]
    out = ok(cli(*asked, "--tool-choice", "get_weather"))
    calls = [json.loads(line) for line in out.splitlines()]
    assert calls and all(call["type"] == "function" and len(call["id"]) == 9 for call in calls)
    assert all(fits(call["function"]) and call["function"]["name"] == "get_weather" for call in calls)
    report = json.loads(ok(cli(*asked, "--tool-choice", "required", "--json")))
    assert report["text"] == "" and all(fits(call["function"]) for call in report["tool_calls"]) and report["ids"]
    none = json.loads(ok(cli(*asked[: -len(ENDS)], "--tool-choice", "none", "-n", "20", "--json")))
    assert "tool_calls" not in none and none["text"]


def test_a_chat_goes_on_by_files(files: dict[str, Path], cli: Cli, tmp_path: Path, tools: Path) -> None:
    """A state whose last answer calls a tool waits for the result: each run is one step of a script's loop."""
    model, state = templated(cli, files["q8_0"], OWN, tmp_path), tmp_path / "chat.state"
    chat = ["run", model, "--state", state, *DRAWN, "--json", "--think", "off"]
    first = json.loads(ok(cli(*chat, "--tools", tools, "--tool-choice", "get_weather", "-p", "Rain?")))
    (call,) = first["tool_calls"]
    second = json.loads(ok(cli(*chat, "-p", "It rains.")))
    # only </s>, the result and the prompt for an answer are new: tools, question and call are reused as sampled
    assert second["prompt_tokens"] < 60 < first["prompt_tokens"]
    assert "tool_calls" not in second, "behind results the model may answer"
    shown = ok(cli("state", "show", state))
    assert "chat of 2 turns" in shown and fits(call["function"])


def test_results_of_several_calls(
    files: dict[str, Path], cli: Cli, tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A required call is one call, so the test allows several, which differ."""
    with monkeypatch.context() as patch:
        patch.setattr(ChatOptions, "several", property(lambda asked: True))
        _results_of_several_calls(files, cli, tmp_path, tools)


def _results_of_several_calls(files: dict[str, Path], cli: Cli, tmp_path: Path, tools: Path) -> None:
    model, state = templated(cli, files["q8_0"], GRANITE, tmp_path), tmp_path / "chat.state"
    chat = ["run", model, "--state", state, "--temp", "1", "--seed", "5", "--json"]
    first = json.loads(ok(cli(*chat, "--tools", tools, "--tool-choice", "get_weather", "-p", "Rain?", "-n", "200")))
    assert first["reason"] == "length"
    whole = [call for call in first["tool_calls"] if call["function"]["arguments"].endswith("}")]
    assert len(whole) > 1
    message = failed(cli(*chat, "-p", "12:00", *ENDS), code=2)
    assert f"the chat waits for {len(whole)} results (get_weather, get_weather" in message
    ok(cli(*chat, "-p", json.dumps(["12:00"] * len(whole)), *ENDS))


def test_files_of_messages(files: dict[str, Path], cli: Cli, tmp_path: Path, tools: Path) -> None:
    model, path, out = templated(cli, files["q8_0"], GRANITE, tmp_path), tmp_path / "p.jsonl", tmp_path / "out.jsonl"
    question = [{"role": "user", "content": "Rain?"}]
    answered = [
        *question,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "12:00"},
    ]
    lines: list[dict[str, Any]] = [
        {"messages": question},
        {"messages": question, "tools": TOOLS[1:], "tool_choice": "required"},
        {"messages": question, "tool_choice": "none"},
        {"messages": answered, "tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked = ["run", model, "-f", path, "--tools", tools, "--tool-choice", "get_weather", *DRAWN]
    ok(cli(*asked, "-o", out, "--parallel", "3"))
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    names = [{call["function"]["name"] for call in answer.get("tool_calls", ())} for answer in answers]
    assert names == [{"get_weather"}, {"get_time"}, set(), {"get_weather"}]
    whole = [answer for answer in answers if answer["reason"] == "eos"]
    assert all(fits(call["function"]) for answer in whole for call in answer.get("tool_calls", ()))
    assert "12:00" not in answers[0]["text"] and answers[3]["prompt_tokens"] > answers[0]["prompt_tokens"]
    code, _, err = cli(*[*asked[:6], *DRAWN], "-o", out)
    assert code == 2 and "other prompts or settings" in err, "the choice is part of what was asked"
    again = ok(cli(*asked))
    texts = [(a["text"], [c["function"] for c in a.get("tool_calls", ())]) for a in answers]
    alone = [json.loads(line) for line in again.splitlines()]
    assert [(a["text"], [c["function"] for c in a.get("tool_calls", ())]) for a in alone] == texts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("{}", "tools is an object, expected a list"),
        ("[]", "holds no tools"),
        (json.dumps([*TOOLS, TOOLS[0]]), "'get_weather' is the name of tools/0 already"),
        (json.dumps([{"type": "function", "function": {"name": "a b"}}]), "tools/0/function/name is 'a b'"),
        (json.dumps([{"type": "web_search"}]), "tools/0/type"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_file_of_tools_that_cannot_be_used(
    text: str, says: str, files: dict[str, Path], cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "tools.json"
    path.write_text(text)
    message = failed(cli("run", files["q8_0"], "-p", "a", "--tools", path), code=2)
    assert "tools.json" in message and says in message


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--raw", "--tools", "TOOLS"], "--tools needs the model's chat template: leave out --raw."),
        (["--tools", "nowhere.json"], "nowhere.json cannot be read"),
        (["--tools", "TOOLS", "--tool-choice", "x"], "no such tool. There are: get_weather, get_time."),
        (["--tool-choice", "required"], "asks for a call, and there are no tools"),
        (["--tool-choice", ""], "--tool-choice is empty"),
        (["--n-probs", "3"], "--n-probs reports the tokens of a raw text: add --raw"),
    ],
)
def test_what_does_not_go_together(
    options: list[str], says: str, files: dict[str, Path], cli: Cli, tools: Path
) -> None:
    given = [str(tools) if option == "TOOLS" else option for option in options]
    assert says in failed(cli("run", files["q8_0"], "-p", "a", *given), code=2)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"prompt": "a", "tools": TOOLS}, "tools and thoughts need messages, and the line has a prompt"),
        ({"messages": [{"role": "user", "content": "a"}], "tools": 5}, "tools is a number, expected a list"),
        ({"messages": [{"role": "user", "content": "a"}], "tool_choice": "required"}, "there are no tools"),
        ({"messages": 5}, "its messages are not a list"),
    ],
)
def test_lines_that_cannot_be_used(
    line: dict[str, Any], says: str, files: dict[str, Path], cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"prompt": "fine"}) + "\n" + json.dumps(line) + "\n")
    message = failed(cli("run", files["q8_0"], "-f", path), code=2)
    assert "line 2: " in message and says in message


def test_a_checkpoint_without_a_template(cli: Cli, tmp_path: Path, files: dict[str, Path]) -> None:
    """It continues the text; options that need a template are refused."""
    plain = _without_template(files["q8_0"], tmp_path)
    for option in (("--no-raw",), ("--system", "Be brief."), ("--think", "on")):
        says = failed(cli("run", plain, "-p", "a", *option), code=2)
        assert f"{option[0]} needs a chat template, and plain.gguf has none. Give one with --chat-template." in says
    drawn = ("-p", "A cache", "-n", 4, "--temp", 0)
    assert ok(cli("run", plain, *drawn)) == ok(cli("run", plain, "--raw", *drawn))


def _without_template(model: Path, folder: Path) -> Path:
    """A copy in which the template's key has another name of the same length."""
    path = folder / "plain.gguf"
    path.write_bytes(model.read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_nothing_", 1))
    return path
