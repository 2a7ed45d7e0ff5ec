"""How a model writes thoughts and calls of tools: found by probing.py in what its template renders, never by its name.

    format = probed(template)                      # once per model
    reader = AnswerReader(format, tools)           # once per answer: text in, thoughts, text and calls out
    grammar = call_grammar(format, tools, choice)  # what may be drawn, so that arguments fit their schema

A section of calls is

    begin  call  (between  call)*  end

and a call is one of the kinds below. Marks are as the template writes them, white space included. Models write white
space otherwise at times: readers take any between marks; grammars allow what the template writes.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class JsonCall:
    """{"name": "f", "arguments": {...}}, in marks of its own or in none.

    opening, closing  around each call; "" where the marks of the section are all there is
    id_key            None: the template writes no id
    Brackets of a list of objects are in the marks of the section.
    """

    opening: str = ""
    closing: str = ""
    name_key: str = "name"
    arguments_key: str = "arguments"
    id_key: str | None = None


@dataclass(frozen=True)
class NamedCall:
    """The name between marks, then the arguments as one JSON object: <function=f>{...}</function>.

    A template that writes an id or a number beside the name has it in `before_arguments` or `opening` as the text that
    the probe found; a reader takes digits and word characters for it.
    """

    opening: str
    before_arguments: str
    closing: str


@dataclass(frozen=True)
class XmlCall:
    """Name and parameters between marks; values are texts, or JSON where the tool's schema says another type.

    <tool_call>\\n<function=NAME>\\n<parameter=KEY>\\nVALUE\\n</parameter>\\n</function>\\n</tool_call> is
    opening "<tool_call>\\n<function=", after_name ">\\n", before_key "<parameter=", after_key ">\\n",
    after_value "\\n</parameter>\\n", closing "</function>\\n</tool_call>".
    """

    opening: str
    after_name: str
    before_key: str
    after_key: str
    after_value: str
    closing: str


@dataclass(frozen=True)
class PythonCall:
    """f(a="x", b=1): Python's literals, JSON's true, false and null too. Read by `ast`, nothing is evaluated."""

    opening: str = ""
    closing: str = ""


Call = JsonCall | NamedCall | XmlCall | PythonCall


@dataclass(frozen=True)
class CallFormat:
    """How calls of tools are written.

    mark        what tells that calls follow: the first of what stands before a name that no text would have, without
                white space: "<tool_call>", "<TOOLCALL>", "<|tool_call_start|>"; "" where there is none (a JSON object
                alone: an answer is calls when it begins as one)
    between     of two calls in one section; None: a section has one call, and several calls are several sections, one
                behind the other, `again` between them
    as_text     arguments go to the template as JSON text, not as an object
    """

    mark: str
    begin: str
    end: str
    call: Call
    between: str | None = None
    again: str = ""
    as_text: bool = False


FALLBACK = CallFormat("<tool_call>", "", "", JsonCall("<tool_call>\n", "\n</tool_call>"), again="\n")
"""Of models that were not taught any: the form that most of them have seen."""


@dataclass(frozen=True)
class ThoughtFormat:
    """How thoughts are written, and how they are asked for.

    opening, closing  the marks, without white space around them: "<think>", "</think>"
    is_opened         whether the prompt for an answer ends behind the opening mark unless they are switched off
    field             of a message that comes back: "reasoning_content", "thinking"...; None: the template takes none,
                      and thoughts that come back are left out
    variable          of the template that switches them: "enable_thinking", "thinking"; None: there is none
    on, off           words of the system message that switch them ("/think", "/no_think"), where there is no variable
    """

    opening: str
    closing: str
    is_opened: bool = False
    field: str | None = None
    variable: str | None = None
    on: str = ""
    off: str = ""


@dataclass(frozen=True)
class ChatFormat:
    """What is known of a model's template.

    thoughts  None: nothing in it is about thoughts
    calls     how calls are written; FALLBACK where the template knows no tools, which then are described to the model
              by us (takes_tools False)
    takes_tools     the template writes `tools`
    takes_calls     it writes `tool_calls` of messages; where not, calls are text in the content
    takes_results   it takes messages of the role "tool"
    tools_variable  under which it takes them: "tools" but for a few
    calls_alone     content of a message that has calls and no text: some write the calls of "", some only of None
    """

    thoughts: ThoughtFormat | None = None
    calls: CallFormat = FALLBACK
    takes_tools: bool = False
    takes_calls: bool = False
    takes_results: bool = False
    tools_variable: str = "tools"
    calls_alone: str | None = ""
