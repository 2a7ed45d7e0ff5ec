"""Other people's clients, unmodified, over a real socket."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from http_server import WAIT, Server

from hybrid.cli.serve.app import create_app
from hybrid.cli.serve.models.router import ModelRouter
from hybrid.infer import LoadedModel
from hybrid.infer.answers.drawing.drawing import Drawing
from hybrid.quant.ggml.errors import HybridError

if TYPE_CHECKING:
    import anthropic

pytestmark = pytest.mark.exhaustive

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
TALK: list[Any] = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "State space models"},
]


def wanted(server: Server, messages: list[Any], n: int, **more: Any) -> str:
    """The greedy answer of the chat route."""
    body = {"messages": messages, "max_tokens": n, "temperature": 0, **more}
    text: str = server.http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    assert text
    return text


# --- anthropic ---
def test_messages_by_anthropics_client(server: Server, claude: "anthropic.Anthropic") -> None:
    text = wanted(server, [{"role": "system", "content": "Be brief."}, *TALK], 12)
    ids = claude.messages.count_tokens(model="tiny", system="Be brief.", messages=TALK).input_tokens
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 12, "extra_body": {"temperature": 0}}
    blocks = [
        {"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "brief."},
    ]
    for system in ("Be brief.", blocks):
        answer = claude.messages.create(**asked, system=system, messages=TALK)
        assert answer.content[0].type == "text" and answer.content[0].text == text
        assert (answer.type, answer.role, answer.stop_reason, answer.stop_sequence) == (
            "message",
            "assistant",
            "max_tokens",
            None,
        )
        usage = answer.usage
        assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == ids and usage.output_tokens == 12
    assert usage.cache_read_input_tokens == ids, "read once"
    parts = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in TALK]
    more: dict[str, Any] = {"metadata": {"user_id": "me"}, "thinking": {"type": "disabled"}, "service_tier": "auto"}
    answer = claude.messages.create(**asked, **more, system="Be brief.", messages=parts, stop_sequences=[text[4:7]])  # type: ignore[arg-type]
    assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == text[4:7]
    assert answer.content[0].type == "text" and answer.content[0].text == text[: text.index(text[4:7])]


def test_anthropics_streams(server: Server, claude: "anthropic.Anthropic") -> None:
    text = wanted(server, HELLO, 10)
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 10, "messages": HELLO, "extra_body": {"temperature": 0}}
    with claude.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == text
        message = stream.get_final_message()
    assert message.content[0].type == "text" and message.content[0].text == text
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 10
    kinds = [event.type for event in claude.messages.create(**asked, stream=True)]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    body = {"max_tokens": 10, "temperature": 0, "messages": HELLO, "stream": True}
    raw = server.http.post("/v1/messages?beta=true", json=body).text
    names = [line.removeprefix("event: ") for line in raw.splitlines() if line.startswith("event: ")]
    assert "ping" in names and [name for name in names if name != "ping"] == kinds
    beta = claude.beta.messages.create(**asked, betas=["interleaved-thinking-2025-05-14"])
    assert beta.content[0].type == "text" and beta.content[0].text == text


def test_anthropics_errors(server: Server, claude: "anthropic.Anthropic", files: dict[str, Path]) -> None:
    import anthropic

    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 5}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
    for more, says in (
        ({"messages": HELLO, "thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens: "),
        ({"messages": [{"role": "user", "content": [image]}]}, "messages.0.content.0: this model takes no pictures"),
        ({"messages": []}, "messages: "),
        ({"messages": HELLO, "extra_body": {"temperature": -1}}, "temperature: "),
        ({"messages": [{"role": "user", "content": "word " * 600}]}, "512"),
    ):
        with pytest.raises(anthropic.BadRequestError) as refused:
            claude.messages.create(**{**asked, **more})
        error: Any = refused.value.body
        assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error"
        assert says in error["error"]["message"], error
    assert claude.models.list().data[0].id == claude.models.retrieve("tiny").id == "tiny"
    missing = server.http.post("/v1/messages", json={"max_tokens": 5}).json()
    assert missing["error"]["message"] == "messages: Field required; found dict"
    with LoadedModel.load(files["q8_0"], n_ctx=64, n_seq_max=4) as model:
        guarded = Server(model, keys=("secret",))
        try:
            with anthropic.Anthropic(api_key="other", base_url=guarded.url, max_retries=0) as wrong:
                with pytest.raises(anthropic.AuthenticationError) as told:
                    wrong.messages.create(**asked, messages=HELLO)
                assert "a key is needed" in told.value.message
            with anthropic.Anthropic(api_key="secret", base_url=guarded.url, max_retries=0) as right:
                assert right.messages.create(**asked, messages=HELLO).usage.output_tokens == 5
        finally:
            guarded.close()


# --- openai ---
def test_responses_by_openais_client(server: Server) -> None:
    create = server.openai.responses.create
    text = wanted(server, [{"role": "system", "content": "Be brief."}, *TALK], 12)
    asked: dict[str, Any] = {"model": "tiny", "max_output_tokens": 12, "temperature": 0, "instructions": "Be brief."}
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Hi.", "annotations": []}], "id": "msg_1"},
        TALK[-1],
    ]
    whole = create(**asked, input=items, store=True, metadata={"a": "b"}, user="me")  # type: ignore[call-overload]
    assert whole.output_text == text and whole.metadata == {"a": "b"}
    assert whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens"
    assert whole.usage.output_tokens == 12 and whole.usage.total_tokens == whole.usage.input_tokens + 12
    again = create(**asked, input=TALK)
    assert again.output_text == text
    assert again.usage is not None and again.usage.input_tokens_details.cached_tokens == again.usage.input_tokens
    known = create(**asked, input=TALK, include=["message.output_text.logprobs"], top_logprobs=2)
    entries: Any = known.output[0].content[0].logprobs  # type: ignore[union-attr,index]
    assert len(entries) == 12 and all(one.top_logprobs[0].token == one.token for one in entries)
    # output is sent back as input
    more = create(model="tiny", input=[*HELLO, *whole.output, *HELLO], max_output_tokens=3)
    assert more.output_text


def test_streams_of_responses(server: Server) -> None:
    text = wanted(server, HELLO, 10)
    asked: dict[str, Any] = {"model": "tiny", "max_output_tokens": 10, "temperature": 0, "input": "Hello"}
    with server.openai.responses.stream(**asked) as stream:
        events = list(stream)
    assert events[-1].type == "response.incomplete" and events[-1].response.output_text == text
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == text
    plain = list(server.openai.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in plain] == list(range(len(plain)))
    kinds = [event.type for event in plain]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]


def test_an_answer_that_comes_to_its_end(
    server: Server, claude: "anthropic.Anthropic", monkeypatch: pytest.MonkeyPatch
) -> None:
    """On all routes, whole and streamed."""
    draw = Drawing.draw

    def ending(self: Drawing, logits: np.ndarray) -> Any:
        if len(self.result.ids) == 4:
            logits = logits.copy()
            logits[server.model.tokenizer.eos] = 1e9
        return draw(self, logits)

    text = wanted(server, HELLO, 4)
    monkeypatch.setattr(Drawing, "draw", ending)
    asked: dict[str, Any] = {"model": "tiny", "temperature": 0, "input": "Hello"}
    whole = server.openai.responses.create(**asked)
    assert (whole.status, whole.output_text, whole.incomplete_details) == ("completed", text, None)
    with server.openai.responses.stream(**asked) as stream:
        assert stream.get_final_response().output_text == text
    greedy: dict[str, Any] = {"model": "tiny", "max_tokens": 9, "messages": HELLO, "extra_body": {"temperature": 0}}
    assert claude.messages.create(**greedy).stop_reason == "end_turn"
    with claude.messages.stream(**greedy) as told:
        message = told.get_final_message()
    assert message.stop_reason == "end_turn" and message.content[0].text == text  # type: ignore[union-attr]


def test_what_responses_refuse(server: Server) -> None:
    from openai import BadRequestError

    for name, value in (
        ("previous_response_id", 7),
        ("conversation", "conv_1"),
        ("background", "yes"),
        ("tools", [{"type": "function"}]),
        ("prompt", {"id": "x"}),
        ("text", {"format": {"type": "xml"}}),
        ("truncation", "middle"),
    ):
        with pytest.raises(BadRequestError, match=name):
            server.openai.responses.create(model="tiny", input="a", extra_body={name: value})
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]
    says = "input.0.content.0: this model takes no pictures"
    assert says in str(server.error(400, "/v1/responses", {"input": image})["message"])


def test_fields_that_are_passed_over(server: Server) -> None:
    """Each answer reports them in its usage, a stream at its end, and the log reports them once."""
    lines: list[str] = []
    settings = replace(server.served.settings, log=lambda entry: lines.extend(entry.notes))
    logged = create_app(ModelRouter.of(replace(server.served, settings=settings)))
    wanted = ["foo is ignored: this server has no such field"]

    async def ask() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(logged), base_url="http://localhost") as client:
            for path, body in (
                ("/v1/chat/completions", {"messages": HELLO, "stream_options": {"include_usage": True}}),
                ("/v1/completions", {"prompt": "a", "stream_options": {"include_usage": True}}),
                ("/v1/responses", {"input": "a"}),
                ("/v1/messages", {"messages": HELLO}),
            ):
                most = {"max_output_tokens" if "input" in body else "max_tokens": 2}
                for more, warnings in (({}, None), ({"foo": 1}, wanted)):
                    whole = (await client.post(path, json={**body, **most, **more})).json()
                    assert whole["usage"].get("warnings") == warnings, whole
                    stream = (await client.post(path, json={**body, **most, **more, "stream": True})).text
                    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
                    usages = [each.get("response", each).get("usage") for each in events]
                    assert [usage for usage in usages if usage][-1].get("warnings") == warnings, stream

    asyncio.run(ask())
    assert lines == wanted


def test_a_conversation_by_openais_client(server: Server) -> None:
    """Output is sent back as input, with other fields that clients send."""
    from openai import BadRequestError

    create: Any = server.openai.chat.completions.create
    asked = {"model": "tiny", "max_completion_tokens": 5, "temperature": 0}
    first = create(**asked, messages=HELLO, response_format={"type": "text"}, tools=[], parallel_tool_calls=False, n=1)
    said = first.choices[0].message
    again = create(**asked, messages=[*HELLO, said, {"role": "user", "content": "More"}])
    plain = [*HELLO, {"role": "assistant", "content": said.content}, {"role": "user", "content": "More"}]
    assert again.choices[0].message.content == wanted(server, plain, 5)
    assert again.usage.prompt_tokens_details.cached_tokens > first.usage.prompt_tokens
    brief = [{"role": "developer", "content": "Be brief."}, *HELLO]
    as_system = wanted(server, [{"role": "system", "content": "Be brief."}, *HELLO], 5)
    assert create(**asked, messages=brief).choices[0].message.content == as_system
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    for more, says in (
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}, {**tool, "function": 5}]}, "tools/1/function"),
        ({"functions": [{"name": "a b"}]}, "functions/0/name"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"modalities": ["text", "audio"], "audio": {"voice": "x"}}, "modalities.1: "),
    ):
        with pytest.raises(BadRequestError, match=says):
            create(**asked, messages=HELLO, extra_body=more)


def test_openais_async_client(server: Server) -> None:
    """Many requests at once: with the client's retries all get answers despite the short queue."""
    from openai import AsyncOpenAI

    async def ask() -> list[str]:
        async with AsyncOpenAI(api_key="none", base_url=f"{server.url}/v1", max_retries=20) as client:
            asked: Any = {"model": "tiny", "messages": HELLO, "max_tokens": 5, "temperature": 0}
            answers = await asyncio.gather(*(client.chat.completions.create(**asked) for _ in range(6)))
            return [answer.choices[0].message.content or "" for answer in answers]

    assert asyncio.run(ask()) == [wanted(server, HELLO, 5)] * 6


# --- others ---
@pytest.mark.matrix
def test_langchain(server: Server) -> None:
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    text = wanted(server, [{"role": "system", "content": "Be brief."}, *TALK], 8)
    talk = [SystemMessage("Be brief."), HumanMessage("Hello"), AIMessage("Hi."), HumanMessage("State space models")]
    common: dict[str, Any] = {"base_url": f"{server.url}/v1", "api_key": "none", "model": "tiny", "max_retries": 0}
    chat = ChatOpenAI(**common, temperature=0, max_tokens=8)
    answer = chat.invoke(talk)
    assert answer.content == text and answer.usage_metadata is not None and answer.usage_metadata["output_tokens"] == 8
    parts = list(chat.stream(talk))
    assert "".join(str(part.content) for part in parts) == text
    assert [answer.content for answer in chat.batch([talk, talk, talk])] == [text] * 3
    assert chat.bind(stop=[text[3:6]]).invoke(talk).content == text[: text.index(text[3:6])]
    assert chat.bind(logprobs=True, top_logprobs=1).invoke(talk).response_metadata["logprobs"]["content"]
    newer = ChatOpenAI(**common, temperature=0, max_tokens=8, use_responses_api=True)
    assert newer.invoke(talk).text == text
    assert "".join(part.text for part in newer.stream(talk)) == text
    vectors = OpenAIEmbeddings(**common, check_embedding_ctx_length=False).embed_documents(["a", "bc"])
    asked = server.http.post("/v1/embeddings", json={"input": ["a", "bc"]}).json()["data"]
    assert (np.array(vectors, np.float32) == np.array([one["embedding"] for one in asked], np.float32)).all()


@pytest.mark.matrix
def test_llm(server: Server, tmp_path: Path) -> None:
    """Simon Willison's `llm`, in a process of its own."""
    model = f"- model_id: tiny\n  model_name: tiny\n  api_base: {server.url}/v1\n"
    (tmp_path / "extra-openai-models.yaml").write_text(model)
    text = wanted(server, [{"role": "system", "content": "Be brief."}, *HELLO], 8)
    for more in ([], ["--no-stream"]):
        command = [sys.executable, "-m", "llm", "-m", "tiny", "-s", "Be brief.", "-o", "temperature", "0"]
        command += ["-o", "max_tokens", "8", "--key", "none", *more, "Hello"]
        env = {**os.environ, "LLM_USER_PATH": str(tmp_path)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=WAIT)
        assert done.returncode == 0, done.stderr
        assert done.stdout.rstrip("\n") == text.rstrip("\n")


def test_an_answer_that_fails_is_told_in_each_stream(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise HybridError("nothing to draw")

    monkeypatch.setattr(Drawing, "draw", fail)
    chat = {"messages": HELLO, "max_tokens": 5, "stream": True}
    for path, body, says in (
        ("/v1/messages", chat, 'event: error\ndata: {"type": "error", "error": {"type": "api_error"'),
        ("/v1/responses", {"input": "a", "stream": True}, "event: response.failed\n"),
        ("/v1/chat/completions", chat, 'data: {"error": {"message": "no answer could be generated'),
    ):
        response: httpx.Response = server.http.post(path, json=body)
        assert says in response.text and "nothing to draw" in response.text
