"""`hybrid run --n-probs`: the same numbers as the server, for one answer and a file of prompts; refused options."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from end_to_end.outcomes import Cli, failed, ok
from http_server import WAIT, Server

from hybrid.infer import LoadedModel

pytestmark = pytest.mark.exhaustive

PROMPT = "State space models keep what they have read"
SCHEMA = json.dumps({"enum": ["constant", "state"]})
SETTINGS: list[tuple[dict[str, Any], dict[str, object]]] = [
    ({"temperature": 0.9, "seed": 7}, {"--temp": 0.9, "--seed": 7}),
    ({"temperature": 0, "seed": 1}, {"--temp": 0, "--seed": 1}),
    (
        {"temperature": 1.2, "seed": 3, "top_k": 0, "typical_p": 0.7},
        {"--temp": 1.2, "--seed": 3, "--top-k": 0, "--typical": 0.7},
    ),
    (
        {"seed": 2, "mirostat": 2, "logit_bias": {"300": False}},
        {"--seed": 2, "--mirostat": 2, "--logit-bias": "300=-inf"},
    ),
]


@pytest.fixture(scope="module")
def server(files: dict[str, Path]) -> Iterator[Server]:
    with LoadedModel.load(files["q8_0"], n_ctx=256, n_seq_max=4) as model:
        server = Server(model)
        yield server
        server.close()


def of_server(server: Server, **body: Any) -> Any:
    response = server.http.post("/completion", json={"prompt": PROMPT, "n_predict": 12, **body}, timeout=WAIT)
    assert response.status_code == 200, response.text
    return response.json()["completion_probabilities"]


@pytest.mark.parametrize("sampled", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("body", "options"), SETTINGS, ids=str)
def test_the_numbers_are_those_of_the_server(
    server: Server, cli: Cli, files: dict[str, Path], body: dict[str, Any], options: dict[str, object], sampled: bool
) -> None:
    want = of_server(server, **body, n_probs=4, post_sampling_probs=sampled)
    asked = ["run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 12, "--n-probs", 4, "--json"]
    asked += [part for option in options.items() for part in option]
    asked += ["--post-sampling-probs"] if sampled else []
    for more in ([], ["--spec", "none"]):
        data = json.loads(ok(cli(*asked, *more)))
        assert data["completion_probabilities"] == want
        assert [one["id"] for one in want] == data["ids"] and len(want) == 12
    assert "completion_probabilities" not in json.loads(ok(cli(*asked[:7], "--json")))


@pytest.mark.parametrize("sampled", [False, True], ids=["before", "after"])
def test_a_token_without_a_choice_is_certain_after_the_samplers(
    server: Server, cli: Cli, files: dict[str, Path], sampled: bool
) -> None:
    """A token that the form forces is not sampled: it must not repeat the numbers of the last sampled one."""
    asked = [
        "run",
        files["q8_0"],
        "--raw",
        "-p",
        PROMPT,
        "-n",
        12,
        "--n-probs",
        2,
        "--json",
        "--json-schema",
        SCHEMA,
        "--seed",
        1,
    ]
    known = json.loads(ok(cli(*asked, *(["--post-sampling-probs"] if sampled else []))))["completion_probabilities"]
    name, top = ("prob", "top_probs") if sampled else ("logprob", "top_logprobs")
    assert all(one[name] == (1.0 if sampled else one[name]) and one[name] > -1e30 for one in known[-2:])
    if sampled:
        assert [len(one[top]) for one in known[-2:]] == [1, 1] and known[-1][top][0]["id"] == known[-1]["id"]
    body = {"json_schema": json.loads(SCHEMA), "seed": 1, "n_probs": 2, "post_sampling_probs": sampled}
    assert of_server(server, **body) == known


def test_a_file_of_prompts_has_them_in_its_lines(
    server: Server, cli: Cli, files: dict[str, Path], tmp_path: Path
) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "answers.jsonl"
    prompts.write_text(f'{{"prompt": "{PROMPT}"}}\n{{"prompt": "Another"}}\n')
    asked = ["run", files["q8_0"], "-f", prompts, "-n", 12, "--seed", 7, "-o", out]
    for more, sampled in ([], False), (["--post-sampling-probs"], True):
        ok(cli(*asked, "--n-probs", 3, *more))
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert lines[0]["completion_probabilities"] == of_server(server, seed=7, n_probs=3, post_sampling_probs=sampled)
        assert [len(line["completion_probabilities"]) for line in lines] == [line["tokens"] for line in lines]
        assert "other prompts or settings" in failed(cli(*asked, "--n-probs", 4, *more), code=2)
        assert "other prompts or settings" in failed(cli(*asked), code=2)
        out.unlink()
    assert all("completion_probabilities" not in line for line in ok(cli(*asked[:-2])).splitlines())


def test_a_table_beside_the_text(cli: Cli, files: dict[str, Path]) -> None:
    asked = ["run", files["q8_0"], "--raw", "-p", PROMPT, "-n", 5, "--temp", 0]
    code, out, err = cli(*asked, "--n-probs", 3)
    assert code == 0 and out == ok(cli(*asked))
    lines = err.splitlines()
    head = next(i for i, line in enumerate(lines) if line.split() == ["token", "sampled", "most", "likely"])
    data = json.loads(ok(cli(*asked, "--n-probs", 3, "--json")))
    for line, one in zip(lines[head + 1 :], data["completion_probabilities"], strict=False):
        assert line.startswith(json.dumps(one["token"], ensure_ascii=False)) and line.count("%") == 4
        # greedy: the sampled token is the most likely
        assert line.count(json.dumps(one["token"], ensure_ascii=False)) == 2
    assert len(lines) == head + 1 + 5 + 1


def test_more_than_there_are_is_all(cli: Cli, files: dict[str, Path]) -> None:
    data = json.loads(ok(cli("run", files["q8_0"], "--raw", "-p", "A", "-n", 1, "--n-probs", 10**6, "--json")))
    [one] = data["completion_probabilities"]
    assert len({top["id"] for top in one["top_logprobs"]}) == len(one["top_logprobs"]) > 1000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-p", "a", "--post-sampling-probs"], "needs --n-probs N"),
        (["-p", "a", "--n-probs", "-1"], "--n-probs"),
        (["-p", "a", "--n-probs", "some"], "--n-probs"),
    ],
)
def test_what_cannot_be(cli: Cli, files: dict[str, Path], options: list[str], says: str) -> None:
    assert says in failed(cli("run", files["q8_0"], "--raw", *options), code=2)


def test_a_chat_shows_none(cli: Cli, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "a chat shows no probabilities" in failed(cli("run", files["q8_0"], "--n-probs", 2), code=2)
