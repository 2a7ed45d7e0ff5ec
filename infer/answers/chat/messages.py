"""Converts OpenAI's messages for one template: calls, thoughts and tool results go into its fields, or become text."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hybrid.quant.ggml.errors import UsageError

from .call_text import Called, as_object, written_calls
from .format import ChatFormat
from .picture_parts import Content, has_pictures, is_picture, joined

Message = dict[str, Any]
THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # the fields in which clients send them
ID_LENGTH = 9  # letters and digits: what the strictest templates take

MOST_DEPTH = 100  # of the objects and lists in arguments


def for_template(messages: Sequence[Mapping[str, Any]], form: ChatFormat, short_ids: bool = False) -> list[Message]:
    """The messages as this template accepts them.

    short_ids  ids of calls become nine letters and digits; equal ids stay equal
    Raises UsageError if a message, or a call in one, is not in OpenAI's format.
    """
    names: dict[str, str] = {}
    made: list[Message] = []
    joins = False  # the last message was made of results, and a user message right after belongs to it
    for i, message in enumerate(messages):
        role, where = message.get("role"), f"messages/{i}/content"
        if not isinstance(role, str):
            raise UsageError(f"messages/{i}/role is no text. Use system, user, assistant or tool.")
        as_text = role == "tool" and not form.takes_results
        if role == "tool":
            new = _result(message, content_of(message, where) or "", form, names, short_ids)
        elif role == "assistant":
            new = _answer(message, form, names, short_ids, f"messages/{i}")
        else:
            content = (content_of if role == "user" else _without_pictures)(message, where)
            new = {"role": "system" if role == "developer" else role, "content": content or ""}
            if isinstance(message.get("name"), str):
                new["name"] = message["name"]
        if joins and new["role"] == "user":
            made[-1]["content"] = joined(made[-1]["content"], "\n", new["content"])
        else:
            made.append(new)
        joins = as_text
    return made


def told_to_system(messages: list[Message], said: list[str]) -> list[Message]:
    """The messages with `said` appended to the system message."""
    if not said:
        return messages
    first = messages[0] if messages and messages[0]["role"] == "system" else None
    parts = [first["content"], *said] if first else said
    return [{"role": "system", "content": _paragraphs(parts)}, *messages[1 if first else 0 :]]


def told_to_user(messages: list[Message], said: list[str]) -> list[Message]:
    """The same for templates without a system role: its text and `said` go before the first message of the user."""
    if messages and messages[0]["role"] == "system":
        said, messages = [messages[0]["content"], *said], messages[1:]
    at = next((i for i, message in enumerate(messages) if message["role"] == "user"), None)
    if not said or at is None:
        return messages
    told = {**messages[at], "content": _paragraphs([*said, messages[at]["content"]])}
    return [*messages[:at], told, *messages[at + 1 :]]


def _paragraphs(parts: Sequence[Content]) -> Content:
    return joined(*parts, between="\n\n")


def without_text_as_arguments(messages: list[Message], form: ChatFormat) -> list[Message]:
    """For templates that accept only objects as arguments: arguments cut off become an object that holds their text."""

    def changed(call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        return {**call, "function": {**function, "arguments": as_object(function["arguments"])}}

    if form.calls.as_text:
        return messages
    return [
        {**message, "tool_calls": [changed(call) for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in messages
    ]


def one_call_each(messages: list[Message]) -> list[Message]:
    """For templates that accept one call per message: each call gets its own message, followed by its result."""
    made: list[tuple[Message, list[Message]]] = []  # each with its results, which are written last first
    asked: dict[str, int] = {}  # index in `made` of the message with this call
    for message in messages:
        calls = message.get("tool_calls", [])
        if message["role"] == "tool" and message["tool_call_id"] in asked:
            made[asked[message["tool_call_id"]]][1].append(message)
            continue
        each = [{**message, "tool_calls": calls[:1]}] if len(calls) > 1 else [message]
        each += [{"role": "assistant", "content": "", "tool_calls": [call]} for call in calls[1:]]
        for one in each:
            asked.update((call["id"], len(made)) for call in one.get("tool_calls", []))
            made.append((one, []))
    return [each for message, results in made for each in (message, *reversed(results))]


def thoughts_in(message: Mapping[str, Any]) -> str:
    """The thoughts in an assistant message, in any of the fields that clients use, or ""."""
    return next((message[key] for key in THOUGHTS if isinstance(message.get(key), str)), "")


def has_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the messages contain calls or results of tools."""
    return any(message.get("tool_calls") or message.get("role") == "tool" for message in messages)


def content_of(message: Mapping[str, Any], where: str) -> Content | None:
    """A message's content: a list if it has pictures, else a string. Raises UsageError if it contains anything else."""
    content = message.get("content")
    if not isinstance(content, list) or not has_pictures(content):
        return text_of(content, where)
    return joined(*([part] if is_picture(part) else text_of([part], where) or "" for part in content))


def _without_pictures(message: Mapping[str, Any], where: str) -> str | None:
    """The content of a message that has no pictures. Raises UsageError otherwise."""
    if has_pictures(message.get("content")):
        raise UsageError(f"{where} has a picture: only messages of the user and results of tools may have some.")
    return text_of(message.get("content"), where)


def text_of(content: object, where: str) -> str | None:
    """A message's content as a string; it may be a list of texts. Raises UsageError if it contains anything else."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return "".join(str(part.get("text", "")) for part in content)
    raise UsageError(f"{where} is neither a text nor a list of texts: these models read text.")


def _answer(message: Mapping[str, Any], form: ChatFormat, names: dict[str, str], short: bool, where: str) -> Message:
    content = _without_pictures(message, f"{where}/content")
    calls = [
        _called(call, f"{where}/tool_calls/{i}", short)
        for i, call in enumerate(_list(message.get("tool_calls"), where))
    ]
    names.update({identifier: name for identifier, name, _ in calls})
    made: Message = {"role": "assistant", "content": content or ""}
    if form.thoughts and form.thoughts.field and (thoughts := thoughts_in(message)):
        made[form.thoughts.field] = thoughts
    if calls and form.takes_calls:
        made["content"] = content or form.calls_alone
        made["tool_calls"] = [_call_for_template(call, form.calls.as_text) for call in calls]
    elif calls:
        made["content"] = "\n".join(filter(None, (content, written_calls(form.calls, calls))))
    return made


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list | None):
        raise UsageError(f"{where}/tool_calls is no list.")
    return value or []


def _called(call: object, where: str, short: bool) -> Called:
    """Parses OpenAI's call. Arguments stay text if they are not a JSON object: `max_tokens` cuts off some calls."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise UsageError(
            f'{where} is no call: expected {{"id", "type": "function", "function": {{"name", "arguments"}}}}.'
        )
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = object_in(arguments)
    elif not isinstance(arguments, dict):
        raise UsageError(f"{where}/function/arguments is neither text nor an object. Send a JSON object as text.")
    if _is_deeper(arguments, MOST_DEPTH):
        raise UsageError(f"{where}/function/arguments is nested deeper than {MOST_DEPTH} levels.")
    return _id(call.get("id"), short), function["name"], arguments


def object_in(text: str) -> dict[str, Any] | str:
    """The JSON object in a text; the text itself if it contains anything else."""
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _is_deeper(value: object, most: int) -> bool:
    level = [value]
    for _ in range(most):
        inner = [list(one.values()) if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [one for some in inner for one in some]
    return bool(level)


def _call_for_template(call: Called, as_text: bool) -> dict[str, Any]:
    identifier, name, arguments = call
    given = json.dumps(arguments, ensure_ascii=False) if as_text and not isinstance(arguments, str) else arguments
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": given}}


def _result(
    message: Mapping[str, Any], content: Content, form: ChatFormat, names: dict[str, str], short: bool
) -> Message:
    if not form.takes_results:
        return {"role": "user", "content": joined("<tool_response>\n", content, "\n</tool_response>")}
    identifier = _id(message.get("tool_call_id"), short)
    name = names.get(identifier) or message.get("name")
    made = {"role": "tool", "content": content, "tool_call_id": identifier}
    return {**made, "name": name} if isinstance(name, str) else made


def _id(given: object, short: bool) -> str:
    given = given if isinstance(given, str) else ""
    if not short or (len(given) == ID_LENGTH and given.isascii() and given.isalnum()):
        return given
    return hashlib.sha256(given.encode(errors="replace")).hexdigest()[:ID_LENGTH]
