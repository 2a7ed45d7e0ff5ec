"""Invalid sampler settings give one line and exit code 2 in `hybrid run`, and status 400 over HTTP, for every field."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from http_server import Server

from hybrid.cli.serve.samplers import SamplerFields
from hybrid.infer import LoadedModel
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.answers.sampling.names import OTHER_NAMES

pytestmark = pytest.mark.exhaustive

HUGE = 10**30
# field -> invalid options of the command line, invalid values of a request
BAD: dict[str, tuple[list[list[str]], list[Any]]] = {
    "temp": ([["--temp", "nan"], ["--temp", "1e308"], ["--temp", "warm"]], [1e308, -1e308, "warm"]),
    "dynatemp_range": ([["--dynatemp-range", "-1"]], [-1, 1e308, "wide"]),
    "dynatemp_exponent": ([["--dynatemp-exp", "-1"]], [-1, 1e308, []]),
    "top_k": ([["--top-k", "some"], ["--top-k", "1.5"]], ["some", 1.5]),
    "top_p": ([["--top-p", "0"], ["--top-p", "1.1"]], [-0.1, 1.1, {}]),
    "min_p": ([["--min-p", "-0.1"], ["--min-p", "1.1"]], [-0.1, 1.1, "p"]),
    "typ_p": ([["--typical", "0"], ["--typical", "nan"]], [0, 1.5, "p"]),
    "top_n_sigma": ([["--top-n-sigma", "inf"]], [-1e300, 1e39]),
    "min_keep": ([["--min-keep", "-1"], ["--min-keep", str(HUGE)]], [-1, HUGE, 0.5]),
    "xtc_probability": ([["--xtc-probability", "1.1"]], [1.1, -0.1]),
    "xtc_threshold": ([["--xtc-threshold", "-1"]], [1.1, "low"]),
    "repeat_penalty": ([["--repeat-penalty", "0"], ["--repeat-penalty", "1e308"]], [0, -1, 1e-300]),
    "presence_penalty": ([["--presence-penalty", "inf"]], [1e300, [1]]),
    "frequency_penalty": ([["--frequency-penalty", "nan"]], [-1e300, "often"]),
    "repeat_last_n": ([["--repeat-last-n", "-2"], ["--repeat-last-n", str(HUGE)]], [-2, HUGE, 2.5]),
    "dry_multiplier": ([["--dry-multiplier", "-1"]], [-1, 1e300]),
    "dry_base": ([["--dry-base", "inf"]], [-1, 1e300]),
    "dry_allowed_length": ([["--dry-allowed-length", "-1"]], [-1, HUGE]),
    "dry_last_n": ([["--dry-penalty-last-n", "-2"], ["--dry-penalty-last-n", str(HUGE)]], [-2, HUGE]),
    "dry_breakers": ([["--dry-sequence-breaker", "x" * 41], ["--dry-sequence-breaker", ""]], ["x", ["x"] * 33, [""]]),
    "mirostat": ([["--mirostat", "3"]], [3, -1, "two"]),
    "mirostat_tau": ([["--mirostat-ent", "-1"]], [-1, 1e300]),
    "mirostat_eta": ([["--mirostat-lr", "nan"]], [-1e300, 1e300]),
    "adaptive_target": ([["--adaptive-target", "1.5"]], [1.5, "p"]),
    "adaptive_decay": ([["--adaptive-decay", "1"]], [1, -0.1]),
    "samplers": ([["--samplers", "top_k;luck"], ["--samplers", "kk"]], [["infill"], "kk", "q", [3], {"top_k": 1}]),
    "seed": ([["--seed", "-1"], ["--seed", str(2**64)], ["--seed", "x"]], [-(2**63) - 1, 2**64, "x"]),
    "logit_bias": (
        [
            ["--logit-bias", "5"],
            ["--logit-bias", "5=inf"],
            ["--logit-bias", "5=nan"],
            ["--logit-bias", f"{HUGE}=1"],
            ["--logit-bias", "5=1e300"],
            ["--logit-bias", "-1=1"],
        ],
        [{"5": 1e300}, {"5": "a"}, {"5": True}, [[5]], [[5.5, 1]], [["9", "a"]], {"-1": 1}, {str(10**18): 1}, 7],
    ),
}


def test_no_field_is_missing() -> None:
    assert BAD.keys() == {f.name for f in fields(SamplingParams)}


@pytest.mark.parametrize("name", BAD)
def test_one_line_and_code_2(refused: Any, files: dict[str, Path], name: str) -> None:
    for options in BAD[name][0]:
        says = refused("run", files["q8_0"], "--raw", "-p", "a", "-n", 1, *options, code=2)
        assert name in says or options[0] in says, says


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--greedy", "--temp", "1"], "--greedy and --temp 1.0 are both given"),
        (["--greedy", "--dynatemp-range", "0.5"], "--greedy does not go with --dynatemp-range"),
        (["--greedy", "--samplers", "top_k"], "--greedy does not go with samplers without temperature"),
        (["--mirostat", "2", "--adaptive-target", "0.5"], "mirostat and adaptive_target both choose the token"),
        (["--samplers", "top_k;top-k"], "samplers name top_k twice"),
    ],
)
def test_what_contradicts_itself(refused: Any, files: dict[str, Path], options: list[str], says: str) -> None:
    assert says in refused("run", files["q8_0"], "--raw", "-p", "a", "-n", 1, *options, code=2)


@pytest.fixture(scope="module")
def server(files: dict[str, Path]) -> Iterator[Server]:
    with LoadedModel.load(files["q8_0"], n_ctx=64, n_seq_max=4) as model:
        server = Server(model)
        yield server
        server.close()


@pytest.mark.parametrize("name", BAD)
def test_400_that_names_the_field(server: Server, name: str) -> None:
    theirs = next((request for request, field in OTHER_NAMES.items() if field == name), name)
    assert theirs in SamplerFields.model_fields
    for path, prompt in (
        ("/completion", {"prompt": "a", "n_predict": 1}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
    ):
        for value in BAD[name][1]:
            error = server.error(400, path, {**prompt, theirs: value})
            assert theirs in str(error["message"]) and "\n" not in str(error["message"]), error
            assert error["param"] is None or str(error["param"]).startswith(theirs), error
    assert server.http.get("/health").status_code == 200


def test_two_that_contradict_each_other_over_http(server: Server) -> None:
    error = server.error(400, "/completion", {"prompt": "a", "mirostat": 2, "adaptive_target": 0.5})
    assert "mirostat and adaptive_target both choose the token" in str(error["message"])


def test_numbers_that_json_does_not_have(server: Server) -> None:
    for text in (b"NaN", b"Infinity", b"1e999"):
        server.error(400, "/completion", b'{"prompt": "a", "temperature": ' + text + b"}")
    assert server.http.get("/health").status_code == 200
