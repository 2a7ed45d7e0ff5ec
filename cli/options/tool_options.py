"""Options for tools and thoughts."""

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.errors import UsageError, shown

from . import text_options

if TYPE_CHECKING:
    from hybrid.infer.answers.chat import tools as chat_tools
    from hybrid.infer.answers.chat.dialect import ChatOptions
    from hybrid.infer.answers.chat.tools import Tool

PANEL = "Tools and thoughts, in the model's chat template"


class Think(StrEnum):
    """Values of --think."""

    ON = "on"
    OFF = "off"
    AUTO = "auto"

    @property
    def asked(self) -> bool | None:
        """The value as the library has it; None: the template decides."""
        return {Think.ON: True, Think.OFF: False, Think.AUTO: None}[self]


@dataclass(frozen=True, eq=False, repr=False)
class Tools:
    """The tools that the model may call."""

    tools: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Tools that the model may call: a JSON file in OpenAI's format. Calls are printed, not carried out.",
            rich_help_panel=PANEL,
        ),
    ] = None
    tool_choice: Annotated[
        str | None,
        typer.Option(
            metavar="auto|required|none|NAME",
            help="required: the model must call a tool; NAME: it must call this tool; none: it must not.  "
            "[default: auto]",
            rich_help_panel=PANEL,
        ),
    ] = None


@dataclass(frozen=True, eq=False, repr=False)
class Thoughts:
    """Whether and how long the model thinks."""

    think: Annotated[
        Think | None,
        typer.Option(
            help="Whether the model thinks before it answers; auto: as its template decides.  [default: auto]",
            rich_help_panel=PANEL,
        ),
    ] = None
    think_budget: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Maximum tokens of thoughts.", rich_help_panel=PANEL)
    ] = None


@dataclass(frozen=True)
class Asking:
    """The values of these options; None: not given. parse_special: see ChatOptions."""

    tools: "tuple[Tool, ...] | None" = None
    choice: str | None = None
    think: Think | None = None
    budget: int | None = None
    parse_special: bool = False

    @property
    def given(self) -> str | None:
        """The name of the first option that was given, or None."""
        values = {
            "--tools": self.tools, "--tool-choice": self.choice, "--think": self.think, "--think-budget": self.budget
        }  # fmt: skip
        return next((name for name, value in values.items() if value is not None), None)

    def over(self, before: "ChatOptions | None" = None) -> "ChatOptions":
        """`before` (the options of a saved chat), with the given options replaced. UsageError: --tool-choice names an
        unknown tool."""
        from hybrid.infer.answers.chat.dialect import ChatOptions

        asked = before or ChatOptions()
        if self.tools is not None:
            asked = replace(asked, tools=self.tools)
        if self.choice is not None:
            asked = replace(asked, choice=_choice(self.choice, asked.tools))
        if self.think is not None:
            asked = replace(asked, think=self.think.asked)
        asked = replace(asked, parse_special=self.parse_special)
        return asked if self.budget is None else replace(asked, budget=self.budget)


def asking(thoughts: Thoughts, tools: Tools | None = None) -> Asking:
    """Parses the options. UsageError: the file of tools cannot be used, or options contradict each other."""
    tools = tools or Tools()
    think, budget, choice = thoughts.think, thoughts.think_budget, tools.tool_choice
    if think is Think.OFF and budget:
        raise UsageError(f"--think off and --think-budget {budget} are both given. Use one of them.")
    if think is Think.ON and budget == 0:
        raise UsageError("--think on and --think-budget 0 are both given. Use one of them.")
    if choice is not None and not choice:
        raise UsageError("--tool-choice is empty, expected auto, required, none or the name of a tool.")
    given = Asking(None if tools.tools is None else read_tools(tools.tools), choice, think, budget)
    if given.tools is not None and choice is not None:
        _choice(choice, given.tools)
    return given


def read_tools(path: Path) -> "tuple[Tool, ...]":
    """The tools of a JSON file. UsageError: unreadable, not JSON, or not a list of tools."""
    from hybrid.infer.answers.chat.tools import tools_of

    try:
        value = json.loads(text_options.read_text(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{shown(path)} is not JSON: {shown(error)}. Give a list of tools, as OpenAI has it."
        ) from None
    try:
        tools = tuple(tools_of(value))
    except UsageError as error:
        raise UsageError(f"{shown(path)}: {error}") from None
    if not tools:
        raise UsageError(f"{shown(path)} holds no tools.")
    return tools


def _choice(text: str, tools: "tuple[Tool, ...]") -> "chat_tools.ToolChoice":
    from hybrid.infer.answers.chat import tools as chat_tools

    if text in ("auto", "none"):
        return chat_tools.ToolChoice(text)  # type: ignore[arg-type]
    if not tools:
        raise UsageError(
            f"--tool-choice {shown(text)} asks for a call, and there are no tools. Give some with --tools."
        )
    if text != "required" and all(tool.name != text for tool in tools):
        names = shown(", ".join(tool.name for tool in tools))
        raise UsageError(f"--tool-choice {shown(text)}: there is no such tool. There are: {names}.")
    return chat_tools.ToolChoice("required", None if text == "required" else text)
