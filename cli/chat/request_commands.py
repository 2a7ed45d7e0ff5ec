"""Commands for tools, thoughts and the system message."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid.infer.answers.chat.prompting import AUTO
from hybrid.quant.ggml.errors import UsageError

from .. import console
from ..options.tool_options import Think, read_tools
from ..terminal.line_editing import Words
from .session import ChatSession

if TYPE_CHECKING:
    from hybrid.infer.answers.chat.dialect import ChatOptions

OFF = "off"


def tools(chat: ChatSession, argument: str) -> None:
    """Lists the tools, or sets others."""
    conversation = chat.conversation
    if argument:
        chosen = conversation.asked.choice if argument != OFF else AUTO
        given = () if argument == OFF else read_tools(Path(argument).expanduser())
        conversation.ask(replace(conversation.asked, tools=given, choice=chosen))
    console.note(tools_text(conversation.asked))


def skip(chat: ChatSession, _: str) -> None:
    if chat.call is None:
        raise UsageError("no call waits for a result.")
    chat.skipped = chat.conversation.turns.head
    console.paragraph("the model gets no result; your next message is a question")


def think(chat: ChatSession, argument: str) -> None:
    """Prints the last thoughts, or turns thoughts on or off."""
    conversation = chat.conversation
    if argument:
        if argument not in [*Think]:
            raise UsageError(f"/think {argument}: expected on, off or auto, or nothing to see the last thoughts.")
        conversation.ask(replace(conversation.asked, think=Think(argument).asked))
        console.note(f"thoughts: {argument}")
        return
    head = conversation.turns.head
    if head is None or not head.answer.thoughts:
        raise UsageError("the last answer has no thoughts.")
    console.out(console.dim(console.harmless(head.answer.thoughts)))


def system(chat: ChatSession, argument: str) -> None:
    """Prints or changes the system message; after a change the conversation is read again once."""
    conversation = chat.conversation
    if argument:
        conversation.system = "" if argument == OFF else argument
    if conversation.system:
        console.note(console.harmless(conversation.system))
    else:
        console.paragraph("there is no system message (/system TEXT sets one)")


def files_of_tools(chat: ChatSession, typed: str) -> Words:
    return Words(typed, [OFF], files=(".json",))


def thinking(chat: ChatSession, typed: str) -> Words:
    return Words(typed, [*Think])


def system_text(chat: ChatSession, typed: str) -> Words:
    """Completion: the current system message, for editing."""
    return Words(typed, [OFF, *([chat.conversation.system] if chat.conversation.system else [])])


def tools_text(asked: "ChatOptions") -> str:
    """The text of /tools."""
    if not asked.tools:
        return "no tools (/tools FILE gives some)"
    called = {
        "auto": "",
        "none": "; none is to be called",
        "required": f"; {asked.choice.name or 'one'} has to be called",
    }
    calls = [
        console.one_line(f"{tool.name}({', '.join(tool.parameters.get('properties', {}))})") for tool in asked.tools
    ]
    width = max(map(len, calls))
    told = [console.one_line(tool.description) for tool in asked.tools]
    lines = [f"{call.ljust(width)}  {text}".rstrip() for call, text in zip(calls, told, strict=True)]
    return "\n".join([*lines, f"{len(lines)} tool{'s' * (len(lines) != 1)}{called[asked.choice.mode]}"])
