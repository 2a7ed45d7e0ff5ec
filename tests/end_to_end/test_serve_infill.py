"""Answers between two texts: /infill as editors ask it, and `suffix` of /v1/completions by OpenAI's client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from filling_models import by_keys, by_text
from http_server import WAIT, Server, serving

from hybrid.cli.serve.jobs import Maker, ServerDefaults
from hybrid.infer import LoadedModel

pytestmark = pytest.mark.exhaustive

GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
GAP: dict[str, Any] = {"input_prefix": "int a = 1;\n", "input_suffix": "\nreturn a;\n", "n_predict": 6, **GREEDY}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    path = by_text().write(tmp_path_factory.mktemp("filling") / "model.gguf")
    with LoadedModel.load(path, n_ctx=512, n_seq_max=5, checkpoint_budget=32 << 20) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def server(model: LoadedModel) -> Iterator[Server]:
    with serving(model) as server:
        yield server


def post(server: Server, path: str, **body: Any) -> dict[str, Any]:
    response = server.http.post(path, json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def ids_of(server: Server, text: str) -> list[int]:
    """The tokens of a text in which the names of control tokens are tokens."""
    return server.model.tokenizer.encode(text, add_special=False, parse_special=True)


def test_infill(server: Server) -> None:
    """The answer is that to the same tokens in /completion."""
    before = "<|repo_name|>myproject\n<|file_sep|>a.h\nint f();\n<|file_sep|>filename\n<|fim_prefix|>int a = 1;\n  int"
    ids = ids_of(server, f"{before}<|fim_suffix|>\nreturn a;\n<|fim_middle|>")
    asked = {**GAP, "prompt": "  int", "input_extra": [{"text": "int f();\n", "filename": "a.h"}]}
    answer = post(server, "/infill", **asked)
    assert answer["content"] == post(server, "/completion", prompt=ids, n_predict=6, **GREEDY)["content"] != ""
    assert answer["tokens_evaluated"] == len(ids) and answer["tokens_predicted"] == 6
    lines = server.http.post("/infill", json={**asked, "stream": True}).text
    assert lines.count("data: {") >= 6 and '"stop": true' in lines
    assert len(post(server, "/infill", **{**asked, "n_cmpl": 2})) == 2
    again = post(server, "/infill", **{**asked, "response_fields": ["content", "timings/prompt_n", "truncated"]})
    assert again["content"] == answer["content"] and again["timings/prompt_n"] <= 1, "the prompt is known"


def test_what_editors_send(server: Server) -> None:
    """llama.vim's request, with a sampler and an indentation that this server does not have."""
    sent = {
        **GAP,
        "id_slot": 0,
        "input_extra": [{"text": "x", "filename": "f", "time": [1, 2]}],
        "prompt": "",
        "stop": [],
        "n_indent": 4,
        "top_k": 40,
        "top_p": 0.9,
        "samplers": ["top_k", "top_p", "infill"],
        "stream": False,
        "cache_prompt": True,
        "t_max_prompt_ms": 500,
        "t_max_predict_ms": 5000,
    }
    assert post(server, "/infill", **sent)["generation_settings"]["samplers"] == ["top_k", "top_p"]
    assert post(server, "/infill", **{**sent, "n_predict": 0})["content"] == "", "an editor that only warms the cache"
    assert post(server, "/infill", **{**sent, "samplers": ["infill"]})["content"]


def test_long_files_are_cut(server: Server) -> None:
    """To three quarters and one quarter of the room, less twice the answer."""
    long = {**GAP, "input_prefix": "a" * 1000, "input_suffix": "b" * 1000, "n_predict": 16}
    around = 512 - 2 * 16
    n = post(server, "/infill", **long)["tokens_evaluated"]
    assert n == 3 * around // 4 + around // 4 - 2 + 3
    assert "too long" not in str(server.error(400, "/infill", {**GAP, "prompt": "c" * 600})["message"])


def test_what_infill_refuses(server: Server) -> None:
    for wrong, param in (
        ({"input_prefix": None}, "input_prefix"),
        ({"input_suffix": 3}, "input_suffix"),
        ({"input_extra": [{"filename": "ok"}]}, "input_extra.0.text"),
        ({"input_extra": [{"filename": 1, "text": "x"}]}, "input_extra.0.filename"),
        ({"prompt": [1]}, "prompt"),
    ):
        assert server.error(400, "/infill", {**GAP, **wrong})["param"] == param
    n = server.model.n_vocab
    assert f"token {n} is outside" in str(server.error(400, "/infill", {**GAP, "input_prefix": [n]})["message"])
    assert "characters" in str(server.error(400, "/infill", {**GAP, "input_prefix": "a" * (512 * 256 + 1)})["message"])


def test_suffix_by_openais_client(server: Server) -> None:
    from openai import BadRequestError

    create = server.openai.completions.create
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 6, "temperature": 0, "extra_body": {"ignore_eos": True}}
    ids = ids_of(server, "<|fim_prefix|>int a = 1;<|fim_suffix|>return a;<|fim_middle|>")
    want = create(prompt=ids, **asked).choices[0].text
    answer = create(prompt="int a = 1;", suffix="return a;", **asked)
    assert answer.choices[0].text == want and answer.usage is not None and answer.usage.prompt_tokens == len(ids)
    other = ids_of(server, "int a = 1;")
    for prompt, n in ((["int a = 1;", "x"], 2), (other, 1), ([other, other], 2)):
        choices = create(prompt=prompt, suffix="return a;", **asked).choices  # type: ignore[arg-type]
        assert choices[0].text == want and len(choices) == n
    assert create(prompt="int", suffix="", **asked).usage.prompt_tokens == 1  # type: ignore[union-attr]
    # names of control tokens in a file are text
    marked = create(prompt="<|fim_middle|>", suffix="x", **asked).usage
    assert marked is not None and marked.prompt_tokens == 4 + len("<|fim_middle|>")
    for more in ({"echo": True}, {"prompt": []}):
        with pytest.raises(BadRequestError) as refused:
            create(**{"prompt": "a", "suffix": "b", **asked, **more})  # type: ignore[arg-type]
        assert refused.value.param in ("suffix", "prompt")


def test_suffix_by_ollamas_client(server: Server) -> None:
    ollama = pytest.importorskip("ollama")
    ids = ids_of(server, "<|fim_prefix|>int a = 1;<|fim_suffix|>return a;<|fim_middle|>")
    want = post(server, "/completion", prompt=ids, n_predict=6, **GREEDY)["content"]
    asked: dict[str, Any] = {"model": "tiny", "prompt": "int a = 1;", "suffix": "return a;"}
    options = {"num_predict": 6, **GREEDY}
    with ollama.Client(host=server.url, timeout=WAIT) as client:
        answer = client.generate(**asked, options=options)
        assert answer.response == want and answer.prompt_eval_count == len(ids) and answer.context is None
        assert "".join(part.response for part in client.generate(**asked, options=options, stream=True)) == want
        template = "<|fim_prefix|>{{ .Prompt }}<|fim_suffix|>{{ .Suffix }}<|fim_middle|>{{ .Response }}"
        assert client.generate(**asked, template=template, options=options).response == want
        assert "insert" in client.show("tiny").capabilities
        with pytest.raises(ollama.ResponseError, match="suffix and system exclude each other"):
            client.generate(**asked, system="Be brief.")


def test_the_text_after_the_gap_first(model: LoadedModel) -> None:
    maker = Maker(model, None, 6, defaults=ServerDefaults(suffix_first=True))
    with serving(model, maker=maker) as server:
        ids = ids_of(server, "<|fim_suffix|>b<|fim_prefix|>a<|fim_middle|>")
        want = post(server, "/completion", prompt=ids, n_predict=5, **GREEDY)["content"]
        asked = {"prompt": "a", "suffix": "b", "max_tokens": 5, **GREEDY}
        assert post(server, "/v1/completions", **asked)["choices"][0]["text"] == want


def test_models_without_such_tokens(tmp_path: Path) -> None:
    """A model with some of them names the others."""
    some = by_keys()
    some.drop("tokenizer.ggml.suffix_token_id")
    some.drop("tokenizer.ggml.fim_mid_token_id")
    for tiny, missing in ((tiny_models.llama(), "prefix, suffix and middle"), (some, "suffix and middle")):
        with (
            LoadedModel.load(tiny.write(tmp_path / "model.gguf"), n_ctx=64, n_seq_max=4) as model,
            serving(model) as server,
        ):
            says = f"this model fills in no gaps: its vocabulary has no token for {missing} "
            assert str(server.error(400, "/infill", GAP)["message"]).startswith(says)
            error = server.error(400, "/v1/completions", {"prompt": "a", "suffix": "b"})
            assert str(error["message"]).startswith(f"suffix: {says}") and error["param"] == "suffix"
