"""Thoughts over HTTP: separate from the text, switched, limited, and their cost when they are sent back."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from http_server import Server
from scripted_chat import (
    CALL,
    TOOLS,
    WITH_THOUGHTS,
    WITH_TOOLS,
    Loop,
    Script,
    call_text,
    events,
    post,
    served,
)

from hybrid.cli.serve.jobs import ServerDefaults
from hybrid.infer import LoadedModel

if TYPE_CHECKING:
    import anthropic

pytestmark = pytest.mark.exhaustive

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
THOUGHT, TEXT = "It is a greeting.\nI greet.", "Hello there."
SAID = f"{THOUGHT}\n</think>\n\n{TEXT}"  # the prompt has already opened the thoughts


@pytest.fixture(scope="module")
def server(chat_model: LoadedModel) -> Iterator[Server]:
    server = served(chat_model, WITH_THOUGHTS)
    yield server
    server.close()


def chat(server: Server, **more: Any) -> Any:
    return post(server, "/v1/chat/completions", **{"messages": HELLO, "max_tokens": 200, **more})


def n_tokens(server: Server, script: str) -> int:
    """The number of tokens that the scripted model needs for the script."""
    ids: list[int] = []
    while (token := Script().next_token(server.model.tokenizer, script, ids)) != server.model.tokenizer.eos:
        ids.append(token)
    return len(ids)


# --- OpenAI's chats ---
def test_thoughts_are_told_apart_whole_and_streamed(server: Server, script: Script) -> None:
    script.say(SAID, SAID, SAID)
    answer = chat(server)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": TEXT, "reasoning_content": THOUGHT}
    n = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert n == n_tokens(server, f"{THOUGHT}\n</think>")
    told = events(
        server, "/v1/chat/completions", messages=HELLO, max_tokens=200, stream_options={"include_usage": True}
    )
    deltas = [event["choices"][0]["delta"] for event in told if event["choices"]]
    thoughts = [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta]
    assert "".join(thoughts) == THOUGHT and len(thoughts) > 5
    assert "".join(delta.get("content") or "" for delta in deltas) == TEXT
    assert told[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == n
    message: Any = server.openai.chat.completions.create(model="tiny", messages=HELLO).choices[0].message
    assert message.content == TEXT and message.reasoning_content == THOUGHT


def test_where_thoughts_go(server: Server, script: Script) -> None:
    """reasoning_format none leaves them in the text; include_reasoning false drops them."""
    script.say(SAID, SAID, SAID, SAID)
    for more in ({"reasoning_format": "auto"}, {"reasoning_format": "deepseek"}):
        assert chat(server, **more)["choices"][0]["message"]["reasoning_content"] == THOUGHT
    assert chat(server, reasoning_format="none")["choices"][0]["message"] == {"role": "assistant", "content": SAID}
    assert chat(server, include_reasoning=False)["choices"][0]["message"] == {"role": "assistant", "content": TEXT}
    assert server.error(400, "/v1/chat/completions", {"messages": HELLO, "reasoning_format": "x"})["param"] == (
        "reasoning_format"
    )


def test_thoughts_are_switched(server: Server, script: Script) -> None:
    for more in (
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
    ):
        prompt = post(server, "/apply-template", messages=HELLO, **more)["prompt"]
        assert prompt.endswith("<think>\n\n</think>\n\n")
        script.say(TEXT)
        answer = chat(server, **more)
        assert answer["choices"][0]["message"] == {"role": "assistant", "content": TEXT}
        assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0
    assert post(server, "/apply-template", messages=HELLO)["prompt"].endswith("<think>\n")


def test_a_budget_closes_thoughts(server: Server) -> None:
    """The model's own tag is forced, whatever the model would think next; under all three names."""
    for name in ("reasoning_budget_tokens", "thinking_budget_tokens", "thinking_token_budget"):
        answer = chat(server, **{name: 9}, max_tokens=40, temperature=0)
        message = answer["choices"][0]["message"]
        n = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert 9 <= n <= 9 + 8, "the mark counts"
        assert "reasoning_content" in message and message["content"] and "</think>" not in message["content"]
    free = chat(server, max_tokens=40, temperature=0)["choices"][0]["message"]
    assert free["reasoning_content"].startswith(message["reasoning_content"]), "the same draws up to there"
    none = chat(server, thinking_budget_tokens=0, max_tokens=20, temperature=0)["choices"][0]["message"]
    assert "reasoning_content" not in none and none["content"]


def test_what_a_server_says_of_thoughts(chat_model: LoadedModel) -> None:
    """The server's options are defaults for requests."""
    quiet = served(chat_model, WITH_THOUGHTS, ServerDefaults(think=False))
    try:
        off, on = "<think>\n\n</think>\n\n", "<think>\n"
        for more, end in (
            ({}, off),
            ({"chat_template_kwargs": {"enable_thinking": True}}, on),
            ({"reasoning_effort": "none"}, off),
            ({"reasoning_effort": "high"}, on),
        ):
            assert post(quiet, "/apply-template", messages=HELLO, **more)["prompt"].endswith(end)
        body = {"max_tokens": 9, "messages": HELLO}
        counts = [
            post(quiet, "/v1/messages/count_tokens", messages=HELLO, thinking=thinking)["input_tokens"]
            for thinking in (None, {"type": "enabled", "budget_tokens": 9}, {"type": "disabled"})
        ]
        assert counts[0] == counts[2] != counts[1]
        assert post(quiet, "/v1/messages", **body)["content"][0]["type"] == "text"
    finally:
        quiet.close()
    brief = served(chat_model, WITH_THOUGHTS, ServerDefaults(think_budget=9))
    try:
        told = chat(brief, max_tokens=40, temperature=0)["usage"]["completion_tokens_details"]["reasoning_tokens"]
        longer = chat(brief, max_tokens=40, temperature=0, thinking_budget_tokens=-1)["usage"]
        assert told <= 9 + 8 < longer["completion_tokens_details"]["reasoning_tokens"]
    finally:
        brief.close()


def test_thoughts_that_are_cut_off(server: Server, script: Script) -> None:
    script.say(SAID)
    (choice,) = chat(server, max_tokens=5)["choices"]
    assert choice["finish_reason"] == "length" and choice["message"]["content"] == ""
    assert THOUGHT.startswith(choice["message"]["reasoning_content"])


def test_stop_strings_are_for_content(server: Server, script: Script) -> None:
    said = f"One STOP two\n</think>\n\n{TEXT} STOP more"
    script.say(said, said, said)
    (choice,) = chat(server, stop=["STOP"])["choices"]
    assert choice["message"] == {"role": "assistant", "content": f"{TEXT} ", "reasoning_content": "One STOP two"}
    assert choice["finish_reason"] == "stop"
    told = events(server, "/v1/chat/completions", messages=HELLO, max_tokens=200, stop="STOP")
    deltas = [event["choices"][0]["delta"] for event in told if event["choices"]]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "One STOP two"
    assert "".join(delta.get("content") or "" for delta in deltas) == f"{TEXT} "
    (choice,) = chat(server, stop=["STOP"], thinking_budget_tokens=50)["choices"]
    assert choice["message"]["content"] == f"{TEXT} "


def test_a_form_is_behind_the_thoughts(server: Server, script: Script) -> None:
    script.say(f'{THOUGHT}\n</think>\n\n{{"x": 5}}')
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    message = chat(server, json_schema=schema)["choices"][0]["message"]
    assert message["reasoning_content"] == THOUGHT and json.loads(message["content"]) == {"x": 5}


def test_a_model_without_thoughts_answers_as_before(chat_model: LoadedModel, script: Script) -> None:
    """The response has no additional fields."""
    plain = served(chat_model, WITH_TOOLS)
    try:
        script.say(SAID)
        answer = chat(plain)
        assert answer["choices"][0]["message"] == {"role": "assistant", "content": SAID}
        assert "completion_tokens_details" not in answer["usage"]
    finally:
        plain.close()


def test_an_answer_that_is_continued_behind_its_thoughts(server: Server, script: Script) -> None:
    """Also within its thoughts: the response has only the new text."""
    begun = {"role": "assistant", "content": "Hello", "reasoning_content": THOUGHT}
    script.say(" there.", " I greet.\n</think>\n\nHello there.")
    told = chat(server, messages=[*HELLO, begun])["choices"][0]["message"]
    assert told == {"role": "assistant", "content": " there."}
    thinking = {"role": "assistant", "content": "", "reasoning_content": "It is a greeting."}
    assert post(server, "/apply-template", messages=[*HELLO, thinking])["prompt"].endswith("It is a greeting.")
    told = chat(server, messages=[*HELLO, thinking])["choices"][0]["message"]
    assert told == {"role": "assistant", "content": TEXT, "reasoning_content": " I greet."}


# --- thoughts sent back ---
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_a_loop_with_thoughts_reads_only_what_is_new(server: Server, script: Script, field: str) -> None:
    messages: list[Any] = [{"role": "user", "content": f"Add up, and look around; {field}."}]
    loop = Loop()
    for turn in range(6):
        script.say(f"{THOUGHT} {turn}\n</think>\n\n{call_text(turn)}")
        answer = chat(server, messages=messages, tools=TOOLS)
        usage, message = answer["usage"], answer["choices"][0]["message"]
        loop.count(usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"])
        thoughts = message.pop("reasoning_content")
        assert thoughts == f"{THOUGHT} {turn}"
        (call,) = message["tool_calls"]
        messages += [{**message, field: thoughts}, {"role": "tool", "tool_call_id": call["id"], "content": "done"}]
    loop.check()
    # after another question the template leaves out all these thoughts: the text before them is still reused
    first = len(
        server.model.tokenizer.encode(
            post(server, "/apply-template", messages=messages[:1], tools=TOOLS, add_generation_prompt=False)["prompt"],
            add_special=False,
            parse_special=True,
        )
    )
    script.say(SAID)
    usage = chat(server, messages=[*messages, {"role": "user", "content": "Next."}], tools=TOOLS)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= first


def test_thoughts_that_the_template_leaves_out_cost_the_tail(server: Server, script: Script) -> None:
    """Only the next question and the previous answer without its thoughts are processed."""
    messages: list[Any] = [{"role": "user", "content": "Say it in one word. " * 20}]
    for turn in range(3):
        script.say(SAID)
        answer = chat(server, messages=messages)
        usage = answer["usage"]
        if turn:
            read = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
            tail = post(server, "/tokenize", content=f"<|bom|><|assistant|> {TEXT}<|eom|><|bom|><|user|> Next.<|eom|>")
            assert read <= len(tail["tokens"]) + 12, (turn, usage)
        messages += [answer["choices"][0]["message"], {"role": "user", "content": "Next."}]


# --- Anthropic's ---
def test_thinking_blocks(server: Server, claude: "anthropic.Anthropic", script: Script) -> None:
    said = f"{THOUGHT}\n</think>\n\n{TEXT}\n{CALL}"
    script.say(said, said, TEXT, TEXT)
    tool: Any = {"name": "add", "input_schema": TOOLS[0]["function"]["parameters"]}
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 300, "messages": HELLO, "tools": [tool]}
    enabled: Any = {"type": "enabled", "budget_tokens": 200}
    answer = claude.messages.create(**asked, thinking=enabled)
    assert [block.type for block in answer.content] == ["thinking", "text", "tool_use"]
    assert answer.content[0].model_dump() == {"type": "thinking", "thinking": THOUGHT, "signature": ""}
    with claude.messages.stream(**asked, thinking=enabled) as stream:
        told = [event.type for event in stream]
        final = stream.get_final_message()
    assert [(b.type, getattr(b, "thinking", None)) for b in final.content] == [
        ("thinking", THOUGHT),
        ("text", None),
        ("tool_use", None),
    ]
    assert final.stop_reason == "tool_use" and "thinking" in told and "signature" in told
    call: Any = final.content[-1]
    back = [
        *HELLO,
        {"role": "assistant", "content": final.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "10"}]},
    ]
    after = claude.messages.create(**{**asked, "messages": back}, thinking={"type": "disabled"})
    assert [block.type for block in after.content] == ["text"]
    known = final.usage.input_tokens + (final.usage.cache_read_input_tokens or 0) + final.usage.output_tokens
    assert (after.usage.cache_read_input_tokens or 0) >= known - 1
    claude.messages.create(**asked, thinking={"type": "disabled"})


# --- /v1/responses ---
def test_reasoning_items(server: Server, script: Script) -> None:
    script.say(SAID, SAID, SAID, TEXT)
    asked: Any = {"model": "tiny", "input": "Hello", "max_output_tokens": 200}
    whole = server.openai.responses.create(**asked)
    reasoning, message = whole.output
    assert reasoning.type == "reasoning" and reasoning.content and reasoning.content[0].text == THOUGHT
    assert message.type == "message" and whole.output_text == TEXT
    assert whole.usage is not None and whole.usage.output_tokens_details.reasoning_tokens > 5
    told = events(server, "/v1/responses", **asked)
    assert "".join(e["delta"] for e in told if e["type"] == "response.reasoning_text.delta") == THOUGHT
    (done,) = (e for e in told if e["type"] == "response.reasoning_text.done")
    assert done["text"] == THOUGHT and done["output_index"] == 0
    assert [item["type"] for item in told[-1]["response"]["output"]] == ["reasoning", "message"]
    with server.openai.responses.stream(**asked) as stream:
        list(stream)
        final = stream.get_final_response()
    assert final.output_text == TEXT and final.output[0].content[0].text == THOUGHT  # type: ignore[union-attr,index]
    items: Any = [*HELLO, *(item.model_dump(exclude_none=True) for item in final.output), *HELLO]
    again = server.openai.responses.create(**{**asked, "input": items}, reasoning={"effort": "none"})
    assert again.output_text == TEXT and [item.type for item in again.output] == ["message"]
