"""Tools over HTTP, with other people's clients: calls, whole and streamed, and the cost of a loop."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from http_server import WAIT, Server
from scripted_chat import (
    ADD,
    CALL,
    LOOK,
    SECOND,
    TOOLS,
    WITH_TOOLS,
    Loop,
    Script,
    call_text,
    events,
    function,
    post,
    served,
)

from hybrid.cli.serve.request_log import RequestLog
from hybrid.infer import LoadedModel
from hybrid.infer.answers.constraints.forms import Forms

if TYPE_CHECKING:
    import anthropic

pytestmark = pytest.mark.exhaustive

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def server(chat_model: LoadedModel) -> Iterator[Server]:
    server = served(chat_model, WITH_TOOLS)
    yield server
    server.close()


# --- OpenAI's chats ---
def test_a_call_whole(server: Server, script: Script) -> None:
    script.say(CALL)
    create: Any = server.openai.chat.completions.create
    answer = create(model="tiny", messages=HELLO, tools=TOOLS, max_tokens=200)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name, json.loads(call.function.arguments)) == (
        "function",
        "add",
        {"a": 5, "b": True},
    )
    assert len(call.id) == 9 and call.id.isalnum()


def test_text_then_two_calls_streamed_as_whole(server: Server, script: Script) -> None:
    """Every delta has OpenAI's format, and together they equal the whole answer."""
    said = f"I look.\n{CALL}\n{SECOND}"
    script.say(said, said, said)
    body: dict[str, Any] = {"messages": HELLO, "tools": TOOLS, "max_tokens": 300}
    whole = post(server, "/v1/chat/completions", **body)["choices"][0]
    assert whole["message"]["content"] == "I look." and whole["finish_reason"] == "tool_calls"
    names = [call["function"]["name"] for call in whole["message"]["tool_calls"]]
    assert names == ["add", "look"]

    told = [event["choices"][0] for event in events(server, "/v1/chat/completions", **body)]
    assert told[0]["delta"] == {"role": "assistant", "content": None} and told[-1]["finish_reason"] == "tool_calls"
    assert "".join(choice["delta"].get("content") or "" for choice in told) == "I look."
    deltas = [delta for choice in told for delta in choice["delta"].get("tool_calls", ())]
    heads = [delta for delta in deltas if "id" in delta]
    assert [(head["index"], head["type"], head["function"]) for head in heads] == [
        (0, "function", {"name": "add", "arguments": ""}),
        (1, "function", {"name": "look", "arguments": ""}),
    ]
    for index, call in enumerate(whole["message"]["tool_calls"]):
        pieces = [d["function"]["arguments"] for d in deltas if d["index"] == index and "id" not in d]
        assert "".join(pieces) == call["function"]["arguments"] and len(pieces) > 3, "while they are drawn"

    with server.openai.chat.completions.stream(model="tiny", **body) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls" and final.message.content == "I look."
    assert [c.function.arguments for c in final.message.tool_calls or ()] == [
        c["function"]["arguments"] for c in whole["message"]["tool_calls"]
    ]


def test_functions_are_tools_of_an_older_name(server: Server, script: Script) -> None:
    """One call, whole and streamed, in the request's format; it is sent back with its result."""
    script.say(CALL, CALL)
    functions = [tool["function"] for tool in TOOLS]
    body: dict[str, Any] = {"messages": HELLO, "functions": functions, "function_call": "auto", "max_tokens": 200}
    answer = post(server, "/v1/chat/completions", **body)
    (choice,), call = answer["choices"], answer["choices"][0]["message"]["function_call"]
    assert choice["finish_reason"] == "function_call" and "tool_calls" not in choice["message"]
    assert call["name"] == "add" and json.loads(call["arguments"]) == {"a": 5, "b": True}
    assert "warnings" not in answer["usage"]
    told = [event["choices"][0] for event in events(server, "/v1/chat/completions", **body)]
    deltas = [choice["delta"]["function_call"] for choice in told if "function_call" in choice["delta"]]
    assert deltas[0] == {"name": "add", "arguments": ""} and told[-1]["finish_reason"] == "function_call"
    assert "".join(delta["arguments"] for delta in deltas) == call["arguments"]

    result = {"role": "function", "name": "add", "content": "6"}
    script.say("It is 6.")
    body["messages"] = [*HELLO, choice["message"], result]
    (choice,) = post(server, "/v1/chat/completions", **body)["choices"]
    assert choice["message"]["content"] == "It is 6." and choice["finish_reason"] == "stop"


def test_which_function_is_called(server: Server, script: Script) -> None:
    functions = [tool["function"] for tool in TOOLS]
    body: dict[str, Any] = {"messages": HELLO, "functions": functions, "max_tokens": 200}
    script.say(CALL, SECOND, CALL)
    (choice,) = post(server, "/v1/chat/completions", **body, function_call="none")["choices"]
    assert choice["message"] == {"role": "assistant", "content": CALL}
    (choice,) = post(server, "/v1/chat/completions", **body, function_call={"name": "look"})["choices"]
    assert choice["message"]["function_call"]["name"] == "look"
    answer = post(server, "/v1/chat/completions", **body, tools=TOOLS[:1], function_call="none")
    assert answer["choices"][0]["finish_reason"] == "tool_calls", "tools win"
    assert answer["usage"]["warnings"] == [
        "functions is ignored: tools is given",
        "function_call is ignored: tools is given",
    ]
    answer = post(server, "/v1/chat/completions", messages=HELLO, function_call="auto", max_tokens=1)
    assert answer["usage"]["warnings"] == ["function_call is ignored: there are no functions"]
    twice = {"messages": HELLO, "functions": functions[:1] * 2}
    assert "is the name of functions/0 already" in str(server.error(400, "/v1/chat/completions", twice)["message"])


def test_what_is_no_call_is_text(server: Server, script: Script) -> None:
    """Without tools, or with tool_choice none, call tags are text."""
    for more in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        script.say(CALL)
        (choice,) = post(server, "/v1/chat/completions", messages=HELLO, max_tokens=200, **more)["choices"]
        assert choice["message"] == {"role": "assistant", "content": CALL} and choice["finish_reason"] == "stop"


def test_several_answers_and_their_logprobs(server: Server, script: Script) -> None:
    script.say(CALL, "Hello there.", CALL, "Hello there.")
    body: dict[str, Any] = {"messages": HELLO, "tools": TOOLS, "max_tokens": 200, "n": 2, "logprobs": True}
    choices = post(server, "/v1/chat/completions", **body)["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["tool_calls", "stop"]
    assert choices[1]["message"] == {"role": "assistant", "content": "Hello there."}
    told = [event["choices"][0] for event in events(server, "/v1/chat/completions", **body)]
    for index, choice in enumerate(choices):
        known = [
            one for c in told if c["index"] == index and c["logprobs"] is not None for one in c["logprobs"]["content"]
        ]
        assert "".join(one["token"] for one in known).endswith("</tool_call>" if index == 0 else "there.")
        assert len(known) == len(choice["logprobs"]["content"]), "one for each token"


def test_a_stop_string_and_the_limit_cut_calls_off(server: Server, script: Script) -> None:
    body: dict[str, Any] = {"messages": HELLO, "tools": TOOLS}
    script.say(CALL, CALL, CALL)
    (cut,) = post(server, "/v1/chat/completions", **body, max_tokens=200, stop=["true"])["choices"]
    assert cut["finish_reason"] == "stop" and cut["message"]["tool_calls"][0]["function"]["name"] == "add"
    (short,) = post(server, "/v1/chat/completions", **body, max_tokens=30)["choices"]
    assert short["finish_reason"] == "length"
    (behind,) = post(server, "/v1/chat/completions", **body, max_tokens=200, stop=["\n</tool"])["choices"]
    assert behind["finish_reason"] == "tool_calls", "the call is whole"


def test_what_has_to_be_called(server: Server) -> None:
    """Sampled by the model at a temperature at which it says anything: arguments are valid, however the call is
    required."""
    body: dict[str, Any] = {"messages": HELLO, "tools": TOOLS, "max_tokens": 300, "temperature": 2.0, "top_k": 0}
    for seed in range(3):
        (choice,) = post(
            server, "/v1/chat/completions", **body, seed=seed, tool_choice="required", parallel_tool_calls=False
        )["choices"]
        (call,) = choice["message"]["tool_calls"]
        check_call(call)
        told = events(
            server, "/v1/chat/completions", **body, seed=seed, tool_choice="required", parallel_tool_calls=False
        )
        deltas = [delta for event in told for delta in event["choices"][0]["delta"].get("tool_calls", ())]
        assert "".join(delta["function"]["arguments"] for delta in deltas) == call["function"]["arguments"]
        named = {"type": "function", "function": {"name": "look"}}
        (choice,) = post(server, "/v1/chat/completions", **body, seed=seed, tool_choice=named)["choices"]
        assert choice["finish_reason"] in ("tool_calls", "length")
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "look"


def check_call(call: Any) -> None:
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "add":
        assert arguments.keys() == {"a", "b"} and 0 <= arguments["a"] <= 99 and isinstance(arguments["b"], bool)
    else:
        assert call["function"]["name"] == "look" and arguments["what"] in ("here", "there")


def test_tools_and_a_form(server: Server, script: Script) -> None:
    """The answer is a text in the form, or calls; a grammar for the whole answer excludes calls."""
    schema = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 9}}, "required": ["x"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body: dict[str, Any] = {"messages": HELLO, "tools": TOOLS, "max_tokens": 200}
    script.say('{"x": 5}', CALL)
    (choice,) = post(server, "/v1/chat/completions", **body, response_format=wanted)["choices"]
    assert json.loads(choice["message"]["content"]) == {"x": 5} and "tool_calls" not in choice["message"]
    (choice,) = post(server, "/v1/chat/completions", **body, response_format=wanted)["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "add"
    for field, value in (("grammar", 'root ::= "a"'), ("guided_choice", ["a"])):
        error = server.error(400, "/v1/chat/completions", {**body, field: value})
        assert error["param"] == field and "exclude each other" in str(error["message"])


# --- a loop ---
def test_a_loop_of_twenty_turns_by_openais_client(server: Server, script: Script) -> None:
    """The client keeps parsed calls and serializes their arguments anew."""
    messages: list[Any] = [{"role": "user", "content": "Add up, and look around, whatever it takes."}]
    loop, create = Loop(), server.openai.chat.completions.create
    for turn in range(20):
        script.say(call_text(turn))
        answer: Any = create(model="tiny", messages=messages, tools=TOOLS, max_tokens=300)
        usage, message = answer.usage, answer.choices[0].message
        loop.count(usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens, usage.completion_tokens)
        calls = []
        for call in message.tool_calls:
            function = {
                "name": call.function.name,
                "arguments": json.dumps(json.loads(call.function.arguments), indent=1),
            }
            calls.append({"id": call.id, "type": "function", "function": function})
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": f"done {turn}"} for call in calls]
    script.say("That is all.")
    answer = create(model="tiny", messages=messages, tools=TOOLS, max_tokens=300)
    usage = answer.usage
    loop.count(usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens, usage.completion_tokens)
    assert answer.choices[0].message.content == "That is all."
    loop.check()


def test_a_loop_of_twenty_turns_by_anthropics_client(
    server: Server, claude: "anthropic.Anthropic", script: Script
) -> None:
    tools: Any = [
        {
            "name": t["function"]["name"],
            "description": t["function"]["description"],
            "input_schema": t["function"]["parameters"],
        }
        for t in TOOLS
    ]
    messages: list[Any] = [{"role": "user", "content": "Add up, and look around."}]
    loop = Loop()
    for turn in range(20):
        script.say(("" if turn % 3 else "I will.\n") + call_text(turn))
        asked: Any = {"model": "tiny", "max_tokens": 300, "messages": messages, "tools": tools}
        if turn % 2:
            with claude.messages.stream(**asked) as stream:
                answer = stream.get_final_message()
        else:
            answer = claude.messages.create(**asked)
        assert answer.stop_reason == "tool_use"
        assert [block.type for block in answer.content] == ["text", "tool_use"][bool(turn % 3) :]
        usage, call = answer.usage, answer.content[-1]
        assert call.type == "tool_use"
        assert call.input == ({"a": turn, "b": True} if turn % 2 else {"what": "here"})
        loop.count(
            usage.input_tokens + (usage.cache_read_input_tokens or 0),
            usage.cache_read_input_tokens or 0,
            usage.output_tokens,
        )
        result = {"type": "tool_result", "tool_use_id": call.id, "content": f"done {turn}"}
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    loop.check()


def test_a_loop_of_responses(server: Server, script: Script) -> None:
    tools: Any = [{"type": "function", "strict": True, **tool["function"]} for tool in TOOLS]
    items: list[Any] = [{"role": "user", "content": "Add up, and look around; respond."}]
    loop = Loop()
    for turn in range(6):
        script.say(call_text(turn))
        asked: Any = {"model": "tiny", "input": items, "tools": tools, "max_output_tokens": 300}
        if turn % 2:
            with server.openai.responses.stream(**asked) as stream:
                list(stream)
                answer: Any = stream.get_final_response()
        else:
            answer = server.openai.responses.create(**asked)
        (call,) = answer.output
        assert call.type == "function_call" and call.status == answer.status == "completed"
        assert json.loads(call.arguments) == ({"a": turn, "b": True} if turn % 2 else {"what": "here"})
        usage = answer.usage
        loop.count(usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens)
        items += [
            {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.call_id, "output": f"done {turn}"},
        ]
    loop.check()


def test_events_of_responses(server: Server, script: Script) -> None:
    script.say(f"I add.\n{CALL}")
    tools: Any = [{"type": "function", **ADD["function"]}]
    body = {"model": "tiny", "input": "Hello", "tools": tools, "max_output_tokens": 300}
    told = events(server, "/v1/responses", **body)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    kinds = [event["type"].removeprefix("response.") for event in told]
    once = [kind for i, kind in enumerate(kinds) if i == 0 or kinds[i - 1] != kind]
    assert once == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    done = told[-1]["response"]
    message, call = done["output"]
    assert message["content"][0]["text"] == "I add." and call["name"] == "add"
    deltas = [event["delta"] for event in told if event["type"].endswith("arguments.delta")]
    assert "".join(deltas) == call["arguments"] == told[-3]["arguments"]
    assert done["tools"][0]["name"] == "add" and done["parallel_tool_calls"] is True


# --- Anthropic's ---
def test_blocks_of_anthropics_streams(server: Server, script: Script) -> None:
    script.say(f"I add.\n{CALL}\n{SECOND}")
    tool = {"name": "add", "input_schema": ADD["function"]["parameters"]}
    look = {"name": "look", "input_schema": LOOK["function"]["parameters"]}
    told = events(server, "/v1/messages", messages=HELLO, max_tokens=300, tools=[tool, look])
    starts = [event for event in told if event["type"] == "content_block_start"]
    assert [(e["index"], e["content_block"]["type"]) for e in starts] == [(0, "text"), (1, "tool_use"), (2, "tool_use")]
    assert starts[1]["content_block"]["input"] == {} and starts[1]["content_block"]["name"] == "add"
    inputs = [
        "".join(e["delta"]["partial_json"] for e in told if e["type"] == "content_block_delta" and e["index"] == i)
        for i in (1, 2)
    ]
    assert [json.loads(one) for one in inputs] == [{"a": 5, "b": True}, {"what": "there"}]
    assert [e["index"] for e in told if e["type"] == "content_block_stop"] == [0, 1, 2]
    assert told[-2]["delta"]["stop_reason"] == "tool_use"


def test_anthropics_choices(server: Server, claude: "anthropic.Anthropic", script: Script) -> None:
    from anthropic import BadRequestError

    tool: Any = {"name": "add", "input_schema": ADD["function"]["parameters"]}
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 300, "messages": HELLO, "tools": [tool]}
    for choice in ({"type": "any"}, {"type": "tool", "name": "add", "disable_parallel_tool_use": True}):
        script.say(CALL)
        answer = claude.messages.create(**asked, tool_choice=choice)
        assert answer.stop_reason == "tool_use"
    script.say(CALL)
    answer = claude.messages.create(**asked, tool_choice={"type": "none"})
    assert answer.stop_reason == "end_turn" and answer.content[0].type == "text" and answer.content[0].text == CALL
    for more, says in (
        ({"tools": [{**tool, "name": "a b"}]}, "tools/0/name"),
        ({"tool_choice": {"type": "tool", "name": "missing"}}, "missing"),
    ):
        with pytest.raises(BadRequestError, match=says):
            claude.messages.create(**{**asked, **more})


# --- other clients ---
@pytest.mark.matrix
def test_langchain_binds_tools(server: Server, script: Script) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    from pydantic import BaseModel

    class Place(BaseModel):
        """A place."""

        name: str
        number: int

    chat = ChatOpenAI(base_url=f"{server.url}/v1", api_key="none", model="tiny", max_retries=0, max_tokens=300)  # type: ignore[call-arg,arg-type]
    bound, talk = chat.bind_tools(TOOLS), [HumanMessage("Hello")]
    script.say(CALL, "Done.", CALL)
    answer: Any = bound.invoke(talk)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("add", {"a": 5, "b": True})
    assert bound.invoke([*talk, answer, ToolMessage("10", tool_call_id=call["id"])]).content == "Done."
    parts: Any = None
    for part in bound.stream(talk):
        parts = part if parts is None else parts + part
    assert parts.tool_calls[0]["args"] == {"a": 5, "b": True}
    place = '{"name": "here", "number": 3}'
    script.say(f'<tool_call>\n{{"name": "Place", "arguments": {place}}}\n</tool_call>', place)
    for method in ("function_calling", "json_schema"):
        given = chat.with_structured_output(Place, method=method).invoke(talk)  # type: ignore[arg-type]
        assert given == Place(name="here", number=3)


@pytest.mark.matrix
def test_llm_runs_tools(server: Server, script: Script, tmp_path: Path) -> None:
    """Simon Willison's `llm`, in a process of its own: it calls the function and sends its result."""
    model = f"- model_id: tiny\n  model_name: tiny\n  api_base: {server.url}/v1\n  supports_tools: true\n"
    (tmp_path / "extra-openai-models.yaml").write_text(model)
    functions = "def add(a: int, b: bool) -> str:\n    return f'{a + 1} {b}'\n"
    for more in ([], ["--no-stream"]):
        script.say(CALL, "It is done.")
        command = [sys.executable, "-m", "llm", "-m", "tiny", "--functions", functions, "--td", "--key", "none", *more]
        env = {**os.environ, "LLM_USER_PATH": str(tmp_path)}
        done = subprocess.run([*command, "Hello"], env=env, capture_output=True, text=True, timeout=WAIT)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip().endswith("It is done.") and "6 True" in done.stderr


# --- refusals ---
def test_bad_tools_are_refused_by_their_place(server: Server) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"tools": [ADD, LOOK, {"type": "function", "function": {"name": "a b"}}]}, "tools/2/function/name"),
        ({"tools": [ADD, ADD]}, "tools/1/function/name"),
        ({"tools": [{"type": "function"}]}, "tools/0/function"),
        ({"tools": [{"type": 5}]}, "tools/0/type"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice/function/name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "a b"}]}, "functions/0/name"),
        ({"functions": [ADD["function"], ADD["function"]]}, "functions/1/name"),
        ({"functions": [ADD["function"]], "function_call": "always"}, "function_call"),
        ({"functions": [ADD["function"]], "function_call": {"name": "g"}}, "function_call/name"),
    ]
    for more, param in bad:
        error = server.error(400, "/v1/chat/completions", {"messages": HELLO, **more})
        assert error["param"] == param and "\n" not in str(error["message"]), error
    ended = [*HELLO, {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "add", "arguments": "{}"}}]}]
    assert "continued" in str(server.error(400, "/v1/chat/completions", {"messages": ended, "tools": TOOLS})["message"])


def test_odd_schemas_and_cut_calls_are_taken(server: Server) -> None:
    odd = function("odd", x={"not": {}}, y={"type": "array", "minItems": 2, "maxItems": 1})
    asked = {"messages": HELLO, "tools": [odd], "tool_choice": "required", "max_tokens": 4}
    taken = server.http.post("/v1/chat/completions", json=asked)
    assert taken.status_code == 200, "no schema is refused"
    notes = [each for each in taken.json()["usage"]["warnings"] if each.startswith("tool `odd`: `not` at ")]
    assert len(notes) == 1, "it is said what calls are not held to"
    schema = {"type": "object", "properties": {"x": {"not": {}}}}
    message = {"messages": HELLO, "max_tokens": 4, "tools": [{"name": "odd", "input_schema": schema}]}
    warnings = server.http.post("/v1/messages", json=message).json()["usage"]["warnings"]
    assert [each.partition(" at ")[0] for each in warnings] == ["tool `odd`: `not`"]
    broken = {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"a": 5'}}
    talk = [
        *HELLO,
        {"role": "assistant", "tool_calls": [broken]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ]
    taken = server.http.post("/v1/chat/completions", json={"messages": talk, "tools": TOOLS, "max_tokens": 1})
    assert taken.status_code == 200, "a call that was cut off comes back as text"
    items = [{"role": "user", "content": "Hello"}, {"type": "function_call", "call_id": "a", **broken["function"]}]
    items += [{"type": "function_call_output", "call_id": "a", "output": "1"}]
    taken = server.http.post("/v1/responses", json={"input": items, "max_output_tokens": 16})
    assert taken.status_code == 200, taken.text
    blocks = [{"type": "tool_use", "id": "a", "name": "add", "input": '{"a": 5'}]
    result = [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]
    talk = [*HELLO, {"role": "assistant", "content": blocks}, {"role": "user", "content": result}]
    taken = server.http.post("/v1/messages", json={"messages": talk, "max_tokens": 1})
    assert taken.status_code == 200, taken.text


def test_large_tools(server: Server, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 kB are compiled, 1 MB is refused, and other requests are answered meanwhile."""
    begun, go, made = threading.Event(), threading.Event(), Forms._made

    def held(*args: Any) -> Any:
        begun.set()
        go.wait(WAIT)
        return made(*args)

    monkeypatch.setattr(Forms, "_made", held)
    word = {"type": "string", "maxLength": 20}
    many = [function(f"tool_{i}", **{f"parameter_{j}": word for j in range(20)}) for i in range(100)]
    assert 100_000 < len(json.dumps(many)) < 400_000
    refused: list[dict[str, object]] = []
    body = {"messages": HELLO, "tools": many, "tool_choice": "required"}
    asking = threading.Thread(target=lambda: refused.append(server.error(400, "/v1/chat/completions", body)))
    asking.start()
    assert begun.wait(WAIT)
    script.say("Here.")
    assert post(server, "/v1/chat/completions", messages=HELLO)["choices"][0]["message"]["content"] == "Here."
    assert asking.is_alive(), "neither the loop nor the engine compiles"
    go.set()
    asking.join()
    assert str(server.model.n_ctx) in str(refused[0]["message"]), "compiled; only the prompt is too long"
    huge = [{**ADD, "function": {**ADD["function"], "description": "x" * (1 << 20)}}]
    error = server.error(400, "/v1/chat/completions", {"messages": HELLO, "tools": huge})
    assert error["param"] == "tools"
    from openai import BadRequestError

    with pytest.raises(BadRequestError, match="tools"):
        server.openai.responses.create(model="tiny", input="a", tools=[{"type": "function", "name": "a b"}])  # type: ignore[list-item]


# --- tags that are special tokens ---
def test_special_tokens_that_mark_calls_reach_the_reader(chat_model: LoadedModel, script: Script) -> None:
    """They are sampled as tokens, and hidden as before without tools; calls sent back are reused."""

    def marked(text: str) -> str:
        return text.replace("<tool_call>\n", "<|pad|>").replace("\n</tool_call>", "<|system|>")

    special = served(chat_model, marked(WITH_TOOLS).replace("<|bom|><|system|>", "<|bom|><|user|>"))
    try:
        loop, messages = Loop(), list(HELLO)
        for turn in range(4):
            script.say("I will. " + marked(call_text(turn)))
            body: dict[str, Any] = {"messages": messages, "tools": TOOLS, "max_tokens": 200}
            answer = post(special, "/v1/chat/completions", **body)
            usage, message = answer["usage"], answer["choices"][0]["message"]
            assert message["content"] == "I will." and answer["choices"][0]["finish_reason"] == "tool_calls"
            loop.count(
                usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"]
            )
            (call,) = message["tool_calls"]
            messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": "done"}]
        loop.check()
        for seed in range(2):
            body = {"messages": HELLO, "tools": TOOLS, "tool_choice": "required", "max_tokens": 200}
            (choice,) = post(special, "/v1/chat/completions", **body, seed=seed, temperature=2.0)["choices"]
            for call in choice["message"]["tool_calls"][:-1]:
                check_call(call)
        script.say(marked(CALL))
        (plain,) = post(special, "/v1/chat/completions", messages=HELLO, max_tokens=200)["choices"]
        assert plain["message"]["content"] == '{"name": "add", "arguments": {"a": 5, "b": true}}'
    finally:
        special.close()


# --- a model without tools in its template ---
def test_tools_of_a_model_whose_template_has_none(chat_model: LoadedModel, script: Script) -> None:
    """The system message describes the tools, and answers are parsed in the default format."""
    plain = Server(chat_model)
    try:
        prompt = post(plain, "/apply-template", messages=HELLO, tools=TOOLS)["prompt"]
        assert '"name": "add"' in prompt and prompt.endswith("<|bom|><|assistant|>")
        script.say(CALL, "Fine.")
        body: dict[str, Any] = {"tools": TOOLS, "max_tokens": 200}
        (choice,) = post(plain, "/v1/chat/completions", **body, messages=HELLO)["choices"]
        (call,) = choice["message"]["tool_calls"]
        talk = [*HELLO, choice["message"], {"role": "tool", "tool_call_id": call["id"], "content": "10"}]
        after = post(plain, "/v1/chat/completions", **body, messages=talk)
        assert after["choices"][0]["message"]["content"] == "Fine."
        assert after["usage"]["prompt_tokens_details"]["cached_tokens"] > 100
    finally:
        plain.close()


def test_the_log_counts_calls(chat_model: LoadedModel, script: Script) -> None:
    entries: list[RequestLog] = []
    logged = served(chat_model, WITH_TOOLS, log=entries.append)
    try:
        script.say(f"{CALL}\n{SECOND}", "Fine.")
        for _ in range(2):
            post(logged, "/v1/chat/completions", messages=HELLO, tools=TOOLS, max_tokens=200)
    finally:
        logged.close()
    assert [entry.n_calls for entry in entries] == [2, 0]
    assert "(eos), 2 calls;" in entries[0].line() and "call" not in entries[1].line()


def test_documents_are_the_templates_own(chat_model: LoadedModel, server: Server) -> None:
    documents = [{"title": "One", "text": "It is."}, {"title": "Two", "text": "It was."}]
    source = "{% for d in documents or [] %}[{{ d.title }}: {{ d.text }}]{% endfor %}" + WITH_TOOLS
    other = served(chat_model, source)
    try:
        prompt = post(other, "/apply-template", messages=HELLO, documents=documents)["prompt"]
        assert prompt.startswith("[One: It is.][Two: It was.]")
    finally:
        other.close()
    error = server.error(400, "/v1/chat/completions", {"messages": HELLO, "documents": documents})
    assert "does not use documents" in str(error["message"])


def test_props_say_what_the_template_can(server: Server) -> None:
    caps = server.http.get("/props").json()["chat_template_caps"]
    assert caps["supports_tools"] and caps["supports_tool_calls"] and not caps["supports_preserve_reasoning"]
    prompt = post(server, "/apply-template", messages=HELLO, tools=[ADD])["prompt"]
    assert prompt.count('"name": "add"') == 1 and "look" not in prompt
    n = post(server, "/v1/chat/completions/input_tokens", messages=HELLO, tools=[ADD])["input_tokens"]
    assert n == len(server.model.tokenizer.encode(prompt, add_special=False, parse_special=True))
