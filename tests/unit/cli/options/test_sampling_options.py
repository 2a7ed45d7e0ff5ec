"""Every sampling option reaches the library, in a command that has them."""

import re
from dataclasses import fields

import pytest
import typer
from typer.testing import CliRunner

from hybrid.cli.options.groups import takes_groups
from hybrid.cli.options.sampling_options import Sampling
from hybrid.infer.answers.sampling import SAMPLERS, SamplingParams
from hybrid.quant.ggml.errors import UsageError

GIVEN: dict[str, tuple[list[str], object]] = {
    "seed": (["--seed", "5"], 5),
    "temp": (["--temp", "0.5"], 0.5),
    "dynatemp_range": (["--dynatemp-range", "0.2"], 0.2),
    "dynatemp_exponent": (["--dynatemp-exp", "2"], 2.0),
    "top_k": (["--top-k", "7"], 7),
    "top_p": (["--top-p", "0.7"], 0.7),
    "min_p": (["--min-p", "0.2"], 0.2),
    "typ_p": (["--typical", "0.8"], 0.8),
    "top_n_sigma": (["--top-n-sigma", "2"], 2.0),
    "min_keep": (["--min-keep", "3"], 3),
    "xtc_probability": (["--xtc-probability", "0.4"], 0.4),
    "xtc_threshold": (["--xtc-threshold", "0.3"], 0.3),
    "repeat_penalty": (["--repeat-penalty", "1.1"], 1.1),
    "presence_penalty": (["--presence-penalty", "0.1"], 0.1),
    "frequency_penalty": (["--frequency-penalty", "0.3"], 0.3),
    "repeat_last_n": (["--repeat-last-n", "-1"], -1),
    "dry_multiplier": (["--dry-multiplier", "0.8"], 0.8),
    "dry_base": (["--dry-base", "2"], 2.0),
    "dry_allowed_length": (["--dry-allowed-length", "4"], 4),
    "dry_last_n": (["--dry-penalty-last-n", "-1"], -1),
    "dry_breakers": (["--dry-sequence-breaker", "\\n", "--dry-sequence-breaker", "x"], ("\n", "x")),
    "mirostat": (["--mirostat", "2"], 2),
    "mirostat_tau": (["--mirostat-ent", "3"], 3.0),
    "mirostat_eta": (["--mirostat-lr", "0.3"], 0.3),
    "adaptive_target": (["--adaptive-target", "0.3"], 0.3),
    "adaptive_decay": (["--adaptive-decay", "0.5"], 0.5),
    "samplers": (["--samplers", "top_k;temperature"], ("top_k", "temperature")),
    "logit_bias": (["--logit-bias", "3=-1.5", "--logit-bias", "4=-inf"], {3: -1.5, 4: -float("inf")}),
}


def params_of(*options: str) -> SamplingParams:
    seen: list[SamplingParams] = []
    app = typer.Typer()

    @app.command()
    @takes_groups
    def command(file: str, *, sampling: Sampling, other: int = 3) -> None:
        assert (file, other) == ("f", 4)
        seen.append(sampling.params({}))

    result = CliRunner().invoke(app, ["f", *options, "--other", "4"])
    if isinstance(result.exception, UsageError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return seen[0]


@pytest.mark.parametrize("name", GIVEN)
def test_an_option_reaches_the_library(name: str) -> None:
    options, value = GIVEN[name]
    assert params_of(*options).changed == {name: value}


def test_none_is_missing() -> None:
    assert GIVEN.keys() == {f.name for f in fields(SamplingParams)}
    assert {f.name for f in fields(Sampling)} == GIVEN.keys() | {"greedy"}
    assert params_of().changed == {}


def test_short_forms() -> None:
    assert params_of("--greedy").temp == 0
    assert params_of("--samplers", "kt").samplers == ("top_k", "temperature")
    letters = "".join(SAMPLERS.values())
    assert params_of("--samplers", letters) == SamplingParams()
    assert params_of("--samplers", "top-k; Temp ;adaptive_p").samplers == ("top_k", "temperature")
    assert params_of("--dry-sequence-breaker", "none").dry_breakers == ()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--greedy", "--temp", "1"], "--greedy and --temp 1.0 are both given"),
        (["--samplers", "top_k;luck"], "samplers name luck, expected some of penalties, dry"),
        (["--samplers", "top_k;top-k"], "samplers name top_k twice"),
        (["--logit-bias", "dog"], "--logit-bias dog, expected ID=BIAS"),
        (["--logit-bias", "3=nan"], "logit_bias of token 3 = nan"),
        (["--top-p", "7"], "top_p = 7.0, expected a number above 0"),
    ],
)
def test_what_cannot_be_is_named(options: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        params_of(*options)
