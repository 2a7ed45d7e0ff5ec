"""Fields of ollama's requests as OpenAI's."""

from typing import Any

import pytest
from pydantic import ValidationError

from hybrid.cli.serve.errors import RequestError
from hybrid.cli.serve.ollama.requests import ModelRequest, OllamaAnswerRequest, OllamaOptions


def openais(**body: Any) -> dict[str, Any]:
    """The fields that are not empty."""
    made = OllamaAnswerRequest.model_validate(body).as_openais()
    return {name: value for name, value in made.items() if value is not None}


def test_options() -> None:
    options = {
        "num_predict": 5, "num_keep": 4, "stop": ["a"], "seed": 42, "temperature": 0.5, "top_k": 20, "top_p": 0.9,
        "min_p": 0.1, "typical_p": 0.7, "repeat_last_n": 33, "repeat_penalty": 1.2, "presence_penalty": 1.5,
        "frequency_penalty": 1.0, "mirostat": 1, "mirostat_tau": 0.8, "mirostat_eta": 0.6,
    }  # fmt: skip
    made = openais(options=options)
    assert made.pop("max_tokens") == 5 and made.pop("n_keep") == 4
    assert made == {name: value for name, value in options.items() if name not in ("num_predict", "num_keep")}
    assert (
        openais(options={"num_predict": -2})["max_tokens"] == openais(options={"num_predict": -1})["max_tokens"] == -1
    )
    assert openais(options={"num_predict": 7.0, "top_k": None}) == {"max_tokens": 7}, "null is not given"
    assert openais() == {}


def test_options_without_effect() -> None:
    quiet = {"num_gpu": 1, "num_thread": 8, "main_gpu": 0, "use_mmap": True, "numa": False, "num_batch": 2}
    assert OllamaOptions.model_validate(quiet).warnings == []
    (told,) = OllamaOptions.model_validate({**quiet, "num_ctx": 1024}).warnings
    assert told == "num_ctx is ignored: the context has the size that the server was started with"
    (told,) = OllamaOptions.model_validate({"penalize_newline": True}).warnings
    assert told == "penalize_newline is ignored: this server has no such field"
    for wrong in ({"num_predict": -3}, {"stop": 5}, {"temperature": "0.5"}):
        with pytest.raises(ValidationError):
            OllamaOptions.model_validate(wrong)


def test_format_and_thoughts() -> None:
    assert openais(format="json") == {"response_format": {"type": "json_object"}}
    assert openais(format={"type": "array"}) == {"json_schema": {"type": "array"}}
    assert openais(format="") == {}
    with pytest.raises(RequestError, match=r'^format: expected "json" or a JSON schema; found \'yaml\'$'):
        openais(format="yaml")
    thinks = [OllamaAnswerRequest.model_validate({"think": given}).thinks for given in (None, "", False, True, "low")]
    assert thinks == [None, None, False, True, True]
    assert openais(think="low") == {"reasoning_effort": "low"} and openais(think=True) == openais(think=False) == {}


def test_logprobs() -> None:
    counts = [
        OllamaAnswerRequest.model_validate(given).n_top
        for given in ({}, {"top_logprobs": 3}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 3})
    ]
    assert counts == [None, None, 0, 3]


@pytest.mark.parametrize(
    ("keep_alive", "unloads"),
    [(None, False), (0, True), (0.0, True), ("0", True), ("0s", True), ("0ms", True), ("5m", False), ("10m", False),
     (-1, False), (300, False), ("-1", False), ("1h0m0s", False)],
)  # fmt: skip
def test_unloading(keep_alive: Any, unloads: bool) -> None:
    assert ModelRequest.model_validate({"keep_alive": keep_alive}).unloads == unloads
