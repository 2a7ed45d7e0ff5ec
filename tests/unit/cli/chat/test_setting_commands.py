"""/set and /system: the values they show, take and refuse."""

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_chat import FakeModel, Template, talk

from hybrid.cli.chat import setting_commands
from hybrid.cli.chat.commands import COMMANDS
from hybrid.cli.chat.session import ChatSession
from hybrid.cli.main import load
from hybrid.cli.options.sampling_options import Sampling
from hybrid.infer.answers.sampling.params import SamplingParams


@pytest.fixture
def chat() -> ChatSession:
    model = FakeModel("one", "two")
    model.gguf = SimpleNamespace(metadata={"general.sampling.top_k": 30})  # type: ignore[attr-defined]
    made = ChatSession(talk(model, Template()), lambda prompt: "", COMMANDS)
    made.conversation.draw_by(made.sampling.params(model.gguf.metadata))  # type: ignore[attr-defined]
    return made


def told(chat: ChatSession, line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The output of a line: an error as the chat shows it."""
    lines = [line]

    def read(prompt: str) -> str:
        if not lines:
            raise EOFError
        return lines.pop()

    chat.read = read
    chat.loop()
    return capsys.readouterr().err


def test_names_are_those_of_the_options() -> None:
    assert set(setting_commands.names().values()) == {"n_predict", *(field.name for field in fields(Sampling))}
    options = {option for param in load("run").params for option in param.opts}
    assert {f"--{name}" for name in setting_commands.names()} <= options


def test_all_settings_are_shown(chat: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    shown = told(chat, "/set", capsys).splitlines()
    assert [line.split()[0] for line in shown] == list(setting_commands.names())
    assert any(line.split() == ["top-k", "30"] for line in shown), "the model's own"
    assert any(line.split() == ["temp", "0.8"] for line in shown)


@pytest.mark.parametrize(
    ("line", "shows", "field", "value"),
    [
        ("temp 0.2", "temp  0.2  (set)", "temp", 0.2),
        ("--temp 0.2", "--temp  0.2  (set)", "temp", 0.2),
        ("parameter temperature 0.2", "temperature  0.2  (set)", "temp", 0.2),
        ("top_k 7", "top_k  7  (set)", "top_k", 7),
        ("top-k 7", "top-k  7  (set)", "top_k", 7),
        ("greedy on", "greedy  on  (set)", "temp", 0.0),
        ("seed 5", "seed  5  (set)", "seed", 5),
        ("samplers kt", "samplers  top_k;temperature  (set)", "samplers", ("top_k", "temperature")),
        ("samplers top_k; temperature", "top_k;temperature", "samplers", ("top_k", "temperature")),
        ("logit-bias 5=-1.5 6=-inf", "logit-bias  5=-1.5 6=-inf  (set)", "logit_bias", {5: -1.5, 6: float("-inf")}),
        ("dry-sequence-breaker ';' \\n", "(set)", "dry_breakers", (";", "n")),
        ("dry-sequence-breaker ';' '\\n'", "dry-sequence-breaker  ';' '\\n'  (set)", "dry_breakers", (";", "\n")),
        ("dry-sequence-breaker none", "dry-sequence-breaker  none  (set)", "dry_breakers", ()),
        ("typical 0.5", "typical  0.5  (set)", "typ_p", 0.5),
        ("dynatemp_exponent 2", "dynatemp_exponent  2  (set)", "dynatemp_exponent", 2.0),
        ("temp 0", "temp  0  (set)", "temp", 0.0),
    ],
)
def test_each_can_be_set(
    line: str, shows: str, field: str, value: Any, chat: ChatSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shows in told(chat, f"/set {line}", capsys)
    assert getattr(chat.conversation.params, field) == value


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("temp hot", "error: /set temp hot: expected a number, or default."),
        ("top-k 1.5", "error: /set top-k 1.5: expected a whole number, or default."),
        ("greedy maybe", "error: /set greedy maybe: expected on or off, or default."),
        ("dry-sequence-breaker '", "expected texts, in quotes where needed, or default."),
        ("top-p 2", "error: top_p = 2.0, expected a number above 0, at most 1"),
        ("samplers x;y", "error: samplers name"),
        ("temp -1", "error: temp = -1.0, expected a number from 0 to 1e+06; 0 is greedy"),
        ("mirostat-lr -1", "error: mirostat_eta = -1.0, expected a number from 0 to 1e+06"),
        ("n-predict -2", "error: /set n-predict -2: expected a number of tokens, or -1 until the context is full, or"),
        ("max-tokens x", "error: /set n-predict x: expected a number of tokens"),
        ("heat 1", "error: there is no setting heat. /set lists them."),
        ("heat", "error: there is no setting heat. /set lists them."),
        ("logit-bias 300=1", "error: logit_bias names token 300, the vocabulary has 300 tokens"),
        ("logit-bias x", "expected ID=BIAS"),
    ],
)
def test_what_cannot_be_is_one_line_and_changes_nothing(
    line: str, says: str, chat: ChatSession, capsys: pytest.CaptureFixture[str]
) -> None:
    before = chat.conversation.params, chat.sampling, chat.conversation.max_tokens
    said = told(chat, f"/set {line}", capsys)
    assert says in said and said.count("\n") == 1
    assert (chat.conversation.params, chat.sampling, chat.conversation.max_tokens) == before
    assert chat.conversation.settings == {}


def test_a_setting_can_be_the_models_again(chat: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    told(chat, "/set top-k 7", capsys)
    assert told(chat, "/set top-k default", capsys) == "top-k  30\n"
    told(chat, "/set greedy on", capsys)
    assert told(chat, "/set temp 0.5", capsys) == "temp  0.5  (set)\n" and not chat.conversation.params.greedy
    assert told(chat, "/set greedy on", capsys) == "greedy  on  (set)\n"
    assert told(chat, "/set greedy off", capsys) == "greedy  off\n"
    assert chat.conversation.params == SamplingParams(top_k=30), "temp was taken back by greedy"


def test_what_the_model_is_told_first(chat: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(chat, "/system", capsys).startswith("there is no system message")
    assert told(chat, "/system Be brief.", capsys) == "Be brief.\n"
    told(chat, "hello", capsys)
    assert chat.conversation.model.seq.prefills == ["<s><sys>Be brief.</s><user>hello</s><bot>"]  # type: ignore[attr-defined]
    told(chat, "/system off", capsys)
    told(chat, "again", capsys)
    assert [m["role"] for m in chat.conversation.messages] == ["user", "assistant"] * 2


def test_the_length_of_answers(chat: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(chat, "/set n-predict", capsys) == "n-predict  -1\n"
    assert told(chat, "/set max-tokens 2", capsys) == "max-tokens  2  (set)\n"
    assert told(chat, "hello", capsys) == "the answer ended at the limit of 2 tokens (/set n-predict N)\n"
    assert told(chat, "/set n-predict default", capsys) == "n-predict  -1\n" and chat.conversation.max_tokens == -1


def test_settings_are_saved_with_the_chat(chat: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "temp 0.3", "greedy on", "top-k 7", "seed 5", "n-predict 9", "min-p 0.2", "min-p default", "logit-bias 5=-1"
    for line in (*(f"/set {line}" for line in lines), "hello", "/save f"):
        told(chat, line, capsys)
    model, state = chat.conversation.model, chat.conversation.sampler.state()
    settings = {"greedy": "on", "top-k": "7", "seed": "5", "n-predict": "9", "logit-bias": "5=-1"}
    assert model.files[Path("f")][1]["chat"]["settings"] == settings  # type: ignore[attr-defined]

    other = ChatSession(talk(model, Template()), lambda prompt: "", COMMANDS, sampling=Sampling(temp=0.9, min_p=0.4))  # type: ignore[arg-type]
    other.conversation.draw_by(other.sampling.params({}))
    said = told(other, "/load f", capsys)
    assert "settings of this chat: greedy on, top-k 7, seed 5, n-predict 9, logit-bias 5=-1\n" in said
    params = other.conversation.params
    assert (params.top_k, params.seed, params.logit_bias, other.conversation.max_tokens) == (7, 5, {5: -1}, 9)
    assert (params.temp, params.min_p) == (0.9, 0.4), "the command line's own, which --temp 0.9 and --greedy exclude"
    assert other.conversation.sampler.state() == state, "the random numbers go on"
    assert other.conversation.settings == settings, "they stay in the file"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"heat": "1"}, "error: f: its setting heat cannot be used: there is no setting heat."),
        ({"temp": "hot"}, "error: f: its setting temp cannot be used: /set temp hot: expected a number, or default."),
        ({"temp": 0.5}, "error: f is damaged: its chat has no turns."),
        (["temp"], "error: f is damaged: its chat has no turns."),
    ],
)
def test_damaged_settings_leave_an_empty_chat(
    settings: object, says: str, chat: ChatSession, capsys: pytest.CaptureFixture[str]
) -> None:
    told(chat, "hello", capsys)
    told(chat, "/save f", capsys)
    chat.conversation.model.files[Path("f")][1]["chat"]["settings"] = settings  # type: ignore[attr-defined]
    assert told(chat, "/load f", capsys).startswith(says)
    assert not chat.conversation.turns.all and not chat.conversation.settings
