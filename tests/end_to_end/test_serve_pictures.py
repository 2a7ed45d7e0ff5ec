"""Pictures in requests: every form of every API, and what is refused."""

import base64
import importlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from http_server import WAIT, serving
from seeing_server import FIRST, N_PICTURE, SECOND, TEXT, Seeing, data_url, image, picture, text_of, user

from hybrid.cli.serve.pictures.prompts import MARKER
from hybrid.cli.serve.pictures.sight import MOST_PICTURES
from hybrid.infer import LoadedModel

if TYPE_CHECKING:
    import anthropic

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def server(seeing_server: Seeing) -> Seeing:
    """The server for the fixture `claude`."""
    return seeing_server


# --- forms ---
def test_a_chat(server: Seeing) -> None:
    url, raw = data_url(FIRST), base64.b64encode(FIRST).decode()
    want = server.ask([user(image(), TEXT)])
    n_text = server.ask([user(TEXT)])["usage"]["prompt_tokens"]
    assert want["usage"]["prompt_tokens"] == n_text + N_PICTURE + 2, "the picture, and two marks"
    for part in (
        {"type": "image_url", "image_url": url},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": data_url(FIRST, "text/html")}},
        {"type": "image_url", "image_url": {"url": raw}},
        {"type": "input_image", "image_url": url},
    ):
        answer = server.ask([user(part, TEXT)])
        assert text_of(answer) == text_of(want) and answer["usage"]["cache"]["processed"] <= 1
        assert "warnings" not in answer["usage"]
    assert text_of(server.ask([user(image(SECOND), TEXT)])) != text_of(want), "another picture"
    assert text_of(server.ask([user(TEXT, image())])) != text_of(want), "another place"
    with server.http.stream(
        "POST",
        "/v1/chat/completions",
        json={"messages": [user(image(), TEXT)], "max_tokens": 6, "temperature": 0, "stream": True},
    ) as response:
        events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
    assert "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"]) == text_of(want)
    counted = server.http.post("/v1/chat/completions/input_tokens", json={"messages": [user(image(), TEXT)]}).json()
    assert counted["input_tokens"] == want["usage"]["prompt_tokens"]


def test_openais_client(server: Seeing) -> None:
    want = text_of(server.ask([user(image(), TEXT)]))
    asked: dict[str, Any] = {"model": "tiny", "temperature": 0}
    answer = server.openai.chat.completions.create(messages=[user(image(), TEXT)], max_tokens=6, **asked)  # type: ignore[list-item]
    assert answer.choices[0].message.content == want
    content = [
        {"type": "input_image", "image_url": data_url(FIRST), "detail": "auto"},
        {"type": "input_text", "text": "What is this?"},
    ]
    items: Any = [{"role": "user", "content": content}]
    response = server.openai.responses.create(input=items, max_output_tokens=6, **asked)
    assert response.output_text == want and response.usage is not None
    assert response.usage.input_tokens == server.ask([user(image(), TEXT)])["usage"]["prompt_tokens"]


def test_a_stored_picture(server: Seeing) -> None:
    """A response that continues one with a picture reads the picture from what is stored, and no token again."""
    client = server.openai.responses
    asked: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_output_tokens": 6}
    parts = [{"type": "input_image", "image_url": data_url(FIRST)}, {"type": "input_text", "text": "What is this?"}]
    items: list[Any] = [{"role": "user", "content": parts}]
    first = client.create(**asked, input=items)
    more: Any = client.create(**asked, input="And now?", previous_response_id=first.id)
    whole = client.create(**asked, input=[*items, *first.output, {"role": "user", "content": "And now?"}], store=False)
    assert more.output_text == whole.output_text and more.usage.input_tokens == whole.usage.input_tokens  # type: ignore[union-attr]
    assert first.usage is not None
    assert more.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 1
    listed: Any = client.input_items.list(more.id, order="asc").data[0]
    assert listed.content[0].image_url == data_url(FIRST)


def test_anthropics_client(server: Seeing, claude: "anthropic.Anthropic") -> None:
    messages = [user(image(), TEXT)]
    want = server.ask(messages)
    sources: tuple[Any, ...] = (
        {"type": "base64", "media_type": "image/webp", "data": base64.b64encode(FIRST).decode()},
        {"type": "url", "url": data_url(FIRST)},
    )
    for source in sources:
        talk: Any = [{"role": "user", "content": [{"type": "image", "source": source}, TEXT]}]
        answer = claude.messages.create(model="tiny", max_tokens=6, messages=talk, extra_body={"temperature": 0})
        assert answer.content[0].type == "text" and answer.content[0].text == text_of(want)
        n = claude.messages.count_tokens(model="tiny", messages=talk).input_tokens
        assert n == want["usage"]["prompt_tokens"]
        assert answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0) == n


def test_ollamas_client(server: Seeing) -> None:
    ollama = pytest.importorskip("ollama")
    want = server.ask([user(image(), TEXT)])
    options, raw = {"temperature": 0, "num_predict": 6}, base64.b64encode(FIRST).decode()
    with ollama.Client(host=server.url, timeout=WAIT) as client:
        for picture in (FIRST, raw):
            message = {"role": "user", "content": TEXT["text"], "images": [picture]}
            answer = client.chat("tiny", [message], options=options)
            assert answer.message.content == text_of(want)
            assert answer.prompt_eval_count == want["usage"]["prompt_tokens"]
        answer = client.generate("tiny", TEXT["text"], images=[FIRST], options=options)
        assert answer.response == text_of(want) and answer.context is None, "no client may name a picture's tokens"
        marked = client.generate("tiny", "Look: [img-0] there", images=[FIRST], raw=True, options=options).response
        before = client.generate("tiny", "there", images=[FIRST], raw=True, options=options).response
        assert "vision" in client.show("tiny").capabilities
    item = {"data": raw, "id": 7}
    for prompt, found in (("Look: [img-7] there", marked), ("[img-7]there", before)):
        body = {"prompt": prompt, "image_data": [item], "n_predict": 6, "temperature": 0}
        assert server.http.post("/completion", json=body).json()["content"] == found
    wrong = {"messages": [{"role": "user", "content": "", "images": ["@"]}]}
    error = server.http.post("/api/chat", json=wrong).json()["error"]
    assert error.startswith("the picture at messages.0.images.0: ")


def test_langchain(server: Seeing) -> None:
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI

    want = text_of(server.ask([user(image(), TEXT)]))
    raw = base64.b64encode(FIRST).decode()
    common: dict[str, Any] = {"base_url": f"{server.url}/v1", "api_key": "none", "model": "tiny", "max_retries": 0}
    chat = ChatOpenAI(**common, temperature=0, max_tokens=6)
    newer = ChatOpenAI(**common, temperature=0, max_tokens=6, use_responses_api=True)
    for part in (image(), {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": raw}):
        talk = [HumanMessage([part, TEXT])]
        assert chat.invoke(talk).content == want
        assert "".join(str(piece.content) for piece in chat.stream(talk)) == want
        assert newer.invoke(talk).text == want


def test_results_of_tools(server: Seeing) -> None:
    tool = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = [user("Look."), {"role": "assistant", "content": "", "tool_calls": [call]}]
    result = {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "Here: "}, image()]}
    want = server.ask([*said, result], tools=[tool])
    reordered = {"name": "look", "parameters": {"type": "object"}, "description": ""}  # as the Responses API has it
    server.ask([*said, result], tools=[{**tool, "function": reordered}])
    other = server.ask([*said, {**result, "content": [result["content"][0], image(SECOND)]}], tools=[tool])
    assert other["usage"]["prompt_tokens"] == want["usage"]["prompt_tokens"]
    block = {"type": "image", "source": {"type": "base64", "data": base64.b64encode(FIRST).decode()}}
    anthropic = {
        "max_tokens": 6, "temperature": 0, "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "Here: "}, block]}
            ]},
        ],
    }  # fmt: skip
    output = [{"type": "input_text", "text": "Here: "}, {"type": "input_image", "image_url": data_url(FIRST)}]
    openai = {
        "max_output_tokens": 6, "temperature": 0, "tools": [{"type": "function", **tool["function"]}],
        "input": [
            {"role": "user", "content": "Look."},
            {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": output},
        ],
    }  # fmt: skip
    for path, body in (("/v1/messages", anthropic), ("/v1/responses", openai)):
        usage = server.http.post(path, json=body).json()["usage"]
        assert usage["cache"]["processed"] <= 1, (path, usage)


def test_raw_prompts(server: Seeing) -> None:
    want = server.ask([user(image(), image(SECOND), TEXT)])
    first, second = (base64.b64encode(data).decode() for data in (FIRST, SECOND))
    begin, end = "<|im_start|>user\n", "What is this?<|im_end|>\n<|im_start|>assistant\n"
    asked = {"n_predict": 6, "temperature": 0}
    images = [{"data": second, "id": 12}, {"data": first, "id": 7}]
    with_object = {"prompt_string": f"{begin}{MARKER}{MARKER}{end}", "multimodal_data": [first, second]}
    for body in (
        {"prompt": f"{begin}[img-7][img-12]{end}", "image_data": images},
        {"prompt": with_object},
        {"prompt": [with_object, {"prompt_string": "a"}]},
    ):
        answer = server.http.post("/completion", json={**asked, **body}).json()
        answer = answer[0] if isinstance(answer, list) else answer
        assert answer["content"] == text_of(want), answer
        assert answer["tokens_evaluated"] == want["usage"]["prompt_tokens"]
        wrapped = f"<|vision_start|>{MARKER}<|vision_end|>" * 2
        assert answer["prompt"] == f"{begin}{wrapped}{end}"
    for body, says in (
        ({"prompt": "[img-1]", "image_data": images}, "image_data.0: the prompt has no [img-12]"),
        ({"prompt": ["[img-7]"], "image_data": images}, "a prompt that is one text"),
        ({"prompt": "[img-7]", "image_data": [images[1], images[1]]}, "the same id"),
        ({"prompt": "[img-7]", "image_data": [{"data": "?", "id": 7}]}, "the picture at image_data.0: its base64"),
        ({"prompt": "[img-7]", "image_data": [images[1]], "parse_special": False}, "parse_special = false"),
        ({"prompt": {**with_object, "prompt_string": MARKER}}, "prompt.multimodal_data: 2 pictures for 1 times"),
        ({"prompt": [{**with_object, "multimodal_data": [first, "!"]}]}, "the picture at prompt.0.multimodal_data.1:"),
        ({"prompt": "<|image_pad|>[img-7]", "image_data": [images[1]]}, "Leave <|image_pad|> out"),
    ):
        assert says in str(server.error(400, "/completion", body)["message"])


# --- what is refused ---
BAD = {
    "no base64": ("data:image/png;base64,A*", "its base64 is damaged"),
    "empty": ("data:image/png;base64,", "it is empty"),
    "not base64": ("data:image/svg+xml,<svg/>", "is not base64"),
    "text": (data_url(b"hello, this is no picture"), "at messages.1.content.1"),
    "SVG": (data_url(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/png"), "SVG"),
    "cut off": (data_url(FIRST[:-500]), "cut off"),
    "a bomb": (data_url(FIRST[:16] + b"\x00\x00\x80\x01" * 2 + FIRST[24:]), "expected at most"),
    "http": ("http://pictures.example/a.png", "--allow-image-urls"),
    "https": ("HTTPS://127.0.0.1/a.png", "--allow-image-urls"),
    "file": ("file:///etc/passwd", "neither data: nor http"),
    "ftp": ("ftp://pictures.example/a.png", "neither data: nor http"),
    "javascript": ("javascript:alert(1)", "neither data: nor http"),
    "nothing": ("", "it is empty"),
    "a path": ("/etc/hosts.allow", "its base64 is damaged"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_pictures(name: str, server: Seeing) -> None:
    url, says = BAD[name]
    n = server.eyes.n_encoded
    said = [{"role": "user", "content": "Hello"}]
    part = {"type": "image_url", "image_url": {"url": url}}
    error = server.error(400, "/v1/chat/completions", {"messages": [*said, user(TEXT, part)]})
    message = str(error["message"])
    assert says in message and "messages.1.content.1" in message and "\n" not in message and len(message) < 250
    assert error["param"] == "messages.1.content.1"
    content = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": url}]
    told = server.error(400, "/v1/responses", {"input": [*said, {"role": "user", "content": content}]})
    assert told["message"] == message.replace("messages.1", "input.1") and told["param"] == "input.1.content.1"
    blocks = [TEXT, {"type": "image", "source": {"type": "url", "url": url}}]
    response = server.http.post("/v1/messages", json={"max_tokens": 2, "messages": [*said, user(*blocks)]})
    assert response.status_code == 400
    assert response.json() == {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": blocks}
    response = server.http.post("/v1/messages", json={"max_tokens": 2, "messages": [*said, user(result)]})
    assert "messages.1.content.0.content.1" in response.json()["error"]["message"]
    assert server.eyes.n_encoded == n


def test_hostile_files(server: Seeing, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files that the decoder's own tests refuse; also many at a time."""
    monkeypatch.syspath_prepend(str(data_dir.parent / "unit" / "infer" / "pictures"))
    resident, hostile = (importlib.import_module(name) for name in ("resident", "test_decode_hostile"))
    n, files = server.eyes.n_encoded, [(make(), says) for _, make, says in hostile.HOSTILE]
    assert len(files) >= 40

    def refused(data: bytes) -> str:
        body = {"messages": [user(image(data), TEXT)]}
        response = server.http.post("/v1/chat/completions", json=body)
        assert response.status_code == 400, response.text
        return str(response.json()["error"]["message"])

    for data, says in files:
        said = refused(data)
        expected = "its base64 is empty|it is empty" if not data else says
        assert "the picture at messages.0.content.0" in said and re.search(expected, said), (said, expected)
        assert "\n" not in said and len(said) < 300
    with ThreadPoolExecutor(16) as pool, resident.Watch() as watch:
        small = [data for data, _ in files if len(data) < 1 << 20]
        assert len(list(pool.map(refused, small * 4))) == 4 * len(small)
    assert watch.growth < 200 << 20, "16 at a time"
    assert server.eyes.n_encoded == n


def test_other_kinds_of_content(server: Seeing) -> None:
    for kind in ("input_audio", "audio_url", "video_url", "input_video", "file", "input_file", "image_file"):
        part = {"type": kind, kind: {"url": "x", "data": "x"}, "file_id": "x"}
        for path, body in (
            ("/v1/chat/completions", {"messages": [user(part)]}),
            ("/v1/responses", {"input": [user(part)]}),
        ):
            assert f"found '{kind}'" in str(server.error(400, path, body)["message"])
    for kind in ("video", "audio", "document", "file"):
        block = {"type": kind, "source": {"type": "base64", "data": ""}}
        response = server.http.post("/v1/messages", json={"messages": [user(block)], "max_tokens": 2})
        assert response.status_code == 400 and f"found '{kind}'" in response.json()["error"]["message"]
    block = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
    response = server.http.post("/v1/messages", json={"messages": [user(block)], "max_tokens": 2})
    assert "source.type: expected 'base64', 'url'; found 'file'" in response.json()["error"]["message"]
    for path, name in (("/v1/responses", "input"), ("/v1/chat/completions", "messages")):
        error = server.error(400, path, {name: [user({"type": "input_image", "file_id": "file-1"})]})
        assert "file_id" in str(error["message"]) and "found 'file-1'" in str(error["message"])
        error = server.error(400, path, {name: [user({"type": "input_image"})]})
        assert error["message"] == f"{name}.0.content.0.image_url: expected the picture as a data URL"
    answered = [user("Hello"), {"role": "assistant", "content": [image()]}, user("And?")]
    assert "has a picture" in str(server.error(400, "/v1/chat/completions", {"messages": answered})["message"])


def test_tokens_of_pictures_cannot_be_named(server: Seeing) -> None:
    server.ask([user(image(), TEXT)])
    for path in ("/v1/completions", "/completion"):
        assert "outside this model's vocabulary" in str(server.error(400, path, {"prompt": [5, -7]})["message"])
    assert server.http.post("/detokenize", json={"tokens": [-7]}).status_code == 400
    body = {"messages": [user(image(), TEXT)], "truncate_prompt_tokens": 5}
    assert "exclude each other" in str(server.error(400, "/v1/chat/completions", body)["message"])
    written = user(image(), "What is <|image_pad|>?")
    assert server.ask([written])["usage"]["prompt_tokens"] > N_PICTURE, "the text of a user is no mark"


def test_too_many(server: Seeing) -> None:
    n = server.eyes.n_encoded
    large = [image(picture(seed, 126, 126)) for seed in range(30, 52)]  # 49 tokens each
    error = server.error(400, "/v1/chat/completions", {"messages": [user(*large)]})
    assert error["type"] == "exceed_context_size_error" and int(str(error["n_prompt_tokens"])) > 22 * 49
    raw = {
        "prompt_string": MARKER * 22,
        "multimodal_data": [one["image_url"]["url"].partition(",")[2] for one in large],
    }
    assert server.error(400, "/completion", {"prompt": raw})["type"] == "exceed_context_size_error"
    many = [image()] * (MOST_PICTURES + 1)
    assert f"{MOST_PICTURES + 1} pictures" in str(
        server.error(400, "/v1/chat/completions", {"messages": [user(*many)]})["message"]
    )
    assert server.eyes.n_encoded == n, "none was read"


def test_a_model_without_eyes(model_with_eyes: LoadedModel) -> None:
    block = {"type": "image", "source": {"type": "base64", "data": "iVBO"}}
    says = "content.0: this model takes no pictures: it reads text only"
    with serving(model_with_eyes) as blind:
        for path, body in (
            ("/v1/chat/completions", {"messages": [user(image())]}),
            ("/v1/chat/completions/input_tokens", {"messages": [user(image())]}),
            ("/apply-template", {"messages": [user(image())]}),
            ("/v1/responses", {"input": [user({"type": "input_image", "image_url": "x"})]}),
        ):
            assert says in str(blind.error(400, path, body)["message"])
        response = blind.http.post("/v1/messages", json={"messages": [user(block)], "max_tokens": 2})
        assert response.status_code == 400 and response.json()["type"] == "error"
        assert response.json()["error"]["message"] == f"messages.0.{says}"
        raw: tuple[dict[str, Any], ...] = (
            {"prompt": "[img-1]", "image_data": [{"data": "iVBO", "id": 1}]},
            {"prompt": {"prompt_string": MARKER, "multimodal_data": ["iVBO"]}},
        )
        for body in raw:
            assert "this model takes no pictures" in str(blind.error(400, "/completion", body)["message"])
        told = blind.http.get("/v1/models").json()
        assert told["data"][0]["architecture"] == {"input_modalities": ["text"], "output_modalities": ["text"]}
        assert told["models"][0]["capabilities"] == told["data"][0]["capabilities"] == ["completion"]
        props = blind.http.get("/props").json()
        assert props["modalities"] == {"vision": False, "video": False, "audio": False}
        assert "media_marker" not in props


# --- what the server says of itself ---
def test_what_a_model_takes(server: Seeing) -> None:
    told = server.http.get("/v1/models").json()
    assert told["data"][0]["architecture"] == {"input_modalities": ["text", "image"], "output_modalities": ["text"]}
    assert told["models"][0]["capabilities"] == told["data"][0]["capabilities"] == ["completion", "multimodal"]
    props = server.http.get("/props").json()
    assert props["modalities"] == {"vision": True, "video": False, "audio": False} and props["media_marker"] == MARKER
    schemas = server.http.get("/openapi.json").json()["components"]["schemas"]
    for name in ("PicturePart", "PictureObject", "ImageBlock", "Base64Source", "URLSource", "ImageItem"):
        assert name in schemas
    assert "GivenPicture" not in json.dumps(schemas)
    assert server.http.post("/tokenize", json={"content": MARKER}).json()["tokens"], "it stays text"


# --- what is read ---
def test_costs(server: Seeing) -> None:
    known, fresh = [user(image(), TEXT)], [user(image(picture(60)), TEXT)]
    n = server.ask(known)["usage"]["prompt_tokens"]
    before = server.eyes.n_encoded
    body = {"conversations": [{"messages": known}, {"messages": fresh}, {"messages": [user(image(b"x"))]}]}
    first, second, third = server.http.post("/page/costs", json=body).json()["costs"]
    assert first == {"tokens": n, "reused": n - 1, "read": 1} or first == {"tokens": n, "reused": n, "read": 0}
    assert second["tokens"] == n and second["read"] >= N_PICTURE and "error" in third
    assert server.eyes.n_encoded == before, "the tower reads nothing for it"


def test_time_of_pictures(server: Seeing) -> None:
    """What the tower read, and what was at hand."""
    known, new = image(picture(60)), image(picture(61))
    server.ask([user(known, TEXT)])
    told = server.ask([user(known, new, TEXT)])["usage"]["pictures"]
    assert [each["tokens"] for each in told] == [N_PICTURE] * 2 and told[0]["ms"] == 0 < told[1]["ms"]
    assert "pictures" not in server.ask([user(TEXT)])["usage"]


@pytest.mark.parametrize("stream", [False, True])
def test_time_of_pictures_in_other_formats(server: Seeing, stream: bool) -> None:
    data = picture(62 + stream)
    url, source = data_url(data), {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
    item = {"role": "user", "content": [{"type": "input_image", "image_url": url}]}
    message = {"role": "user", "content": [{"type": "image", "source": source}]}
    told = []
    for path, body in (
        ("/v1/responses", {"input": [item], "max_output_tokens": 1}),
        ("/v1/messages", {"messages": [message], "max_tokens": 1}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "What?"}], "max_tokens": 1}),
    ):
        response = server.http.post(path, json={**body, "stream": stream})
        assert response.status_code == 200, response.text
        lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")] or [response.text]
        events = [json.loads(line) for line in lines]
        found = [whole["usage"] for each in events if (whole := each.get("response") or each).get("usage")]
        told.append(found[-1].get("pictures"))
    first, second, third = told
    assert first[0]["tokens"] == N_PICTURE and first[0]["ms"] > 0
    assert second == [{"tokens": N_PICTURE, "ms": 0}], "it is known from the other format"
    assert third is None
