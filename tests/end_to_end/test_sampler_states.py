"""Every sampler with a state, stopped in the middle: `--state` of a run, /save and /load of a chat."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from end_to_end.outcomes import Cli, ok

from hybrid.cli.options.sampling_options import Sampling
from hybrid.infer import LoadedModel
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.infer.answers.sampling import SamplingParams

pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("own_cache")]

PROMPT = "A file that comes from somewhere else should"
KEPT = {"the random numbers", "penalties", "dry", "mirostat 2", "all at once"}
STATES: dict[str, dict[str, Any]] = {
    "the random numbers": {"temp": 1.2},
    "all tokens are candidates": {"temp": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "penalties": {"temp": 1.0, "repeat_penalty": 1.3, "presence_penalty": 0.2, "frequency_penalty": 0.3},
    "penalties of everything": {"temp": 0.0, "repeat_penalty": 1.2, "repeat_last_n": -1},
    "dry": {"temp": 0.3, "dry_multiplier": 2.0, "dry_base": 2.0, "dry_allowed_length": 1, "dry_last_n": 100},
    "dry without random numbers": {"temp": 0.0, "dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_last_n": -1},
    "xtc": {"temp": 1.0, "xtc_probability": 0.6, "xtc_threshold": 0.05},
    "mirostat 1": {"mirostat": 1, "mirostat_tau": 3.0, "mirostat_eta": 0.3},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.3},
    "adaptive_p": {"adaptive_target": 0.3, "adaptive_decay": 0.8, "temp": 1.0},
    "dynamic temperature": {"temp": 1.0, "dynatemp_range": 0.5, "typ_p": 0.9, "top_n_sigma": 3.0, "min_keep": 3},
    "all at once": {
        "temp": 1.1,
        "dynatemp_range": 0.2,
        "repeat_penalty": 1.2,
        "dry_multiplier": 1.0,
        "dry_allowed_length": 1,
        "xtc_probability": 0.3,
        "xtc_threshold": 0.05,
        "typ_p": 0.95,
        "adaptive_target": 0.4,
    },
}


# the others sample differently but store their state in the same way
CASES = [
    pytest.param(settings, id=name, marks=() if name in KEPT else pytest.mark.matrix)
    for name, settings in STATES.items()
]


def options_of(settings: dict[str, Any]) -> list[str]:
    """The settings as command line options."""
    names = {f.name: "--" + f.name.replace("_", "-") for f in fields(Sampling)}
    names |= {"typ_p": "--typical", "dry_last_n": "--dry-penalty-last-n", "dynatemp_exponent": "--dynatemp-exp"}
    names |= {"mirostat_tau": "--mirostat-ent", "mirostat_eta": "--mirostat-lr"}
    return [part for name, value in settings.items() for part in (names[name], str(value))]


@pytest.mark.parametrize("settings", CASES)
def test_40_tokens_are_17_and_23(cli: Cli, files: dict[str, Path], tmp_path: Path, settings: dict[str, Any]) -> None:
    state = tmp_path / "middle.state"
    asked = ["run", files["q8_0"], "--raw", "--json", "--n-probs", 3, "--post-sampling-probs", *options_of(settings)]
    whole = json.loads(ok(cli(*asked, "-p", PROMPT, "-n", 40, "--seed", 5)))
    first = json.loads(ok(cli(*asked, "-p", PROMPT, "-n", 17, "--seed", 5, "--state", state)))
    rest = json.loads(ok(cli(*asked, "-p", "", "-n", 23, "--seed", 99, "--state", state)))
    assert len(whole["ids"]) == 40 and first["ids"] + rest["ids"] == whole["ids"]
    name = "completion_probabilities"
    assert first[name] + rest[name] == whole[name]


@pytest.mark.parametrize("settings", CASES)
def test_a_chat_goes_on_as_if_it_had_never_been_saved(
    files: dict[str, Path], tmp_path: Path, settings: dict[str, Any]
) -> None:
    path = tmp_path / "chat.state"
    with LoadedModel.load(files["q8_0"], n_ctx=512, n_seq_max=2) as model:

        def chat(seed: int) -> Conversation:
            return Conversation(model, SamplingParams(seed=seed, **settings), model.chat_template, 12)

        def answers(conversation: Conversation, *questions: str) -> list[str]:
            return ["".join(part.text for part in conversation.answer(question)) for question in questions]

        whole = chat(5)
        told = answers(whole, "Who?", "Where?")
        whole.save(path)
        told += answers(whole, "When?", "Why?")
        loaded = chat(99)
        answers(loaded, "Something else?")
        loaded.load(path)
        assert answers(loaded, "When?", "Why?") == told[2:]
        assert loaded.sampler.state() == whole.sampler.state()


def test_another_sampler_than_the_one_that_learnt_begins_anew(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    """Mirostat's state means nothing to adaptive_p, and vice versa."""
    mirostat, adaptive = options_of(STATES["mirostat 2"]), options_of(STATES["adaptive_p"])
    for first, second in ((mirostat, adaptive), (adaptive, mirostat), (mirostat, []), ([], adaptive)):
        state = tmp_path / "other.state"
        ok(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 5, "--seed", 5, "--state", state, *first))
        ok(cli("run", files["q8_0"], "--raw", "-p", "", "-n", 5, "--state", state, *second))
        state.unlink()
