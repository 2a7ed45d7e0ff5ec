"""How a model writes thoughts and tool calls: found by probing.py in its template's renderings, never by its name.

    format = probed(template)                                   # once per model
    reader = AnswerReader(format, tools)                        # once per answer: text in, thoughts, text and calls out
    grammar = answer_grammar(format, tokenizer, tools, choice)  # makes arguments fit their schema

A section of calls is

    begin  call  (between  call)*  end

and a call is one of the kinds below. Tags are as the template writes them, whitespace included. Models sometimes write
other whitespace: readers accept any between tags; grammars allow only the template's.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class JsonCall:
    """{"name": "f", "arguments": {...}}, with or without tags of its own.

    opening, closing  around each call; "" if only the section has tags
    id_key            None: the template writes no id
    Brackets around a list of objects belong to the tags of the section.
    """

    opening: str = ""
    closing: str = ""
    name_key: str = "name"
    arguments_key: str = "arguments"
    id_key: str | None = None


@dataclass(frozen=True)
class NamedCall:
    """The name between tags, then the arguments as one JSON object: <function=f>{...}</function>.

    If a template writes an id or a number beside the name, `before_arguments` or `opening` contains the one that the
    probe found; readers accept any word in its place.
    """

    opening: str
    before_arguments: str
    closing: str


@dataclass(frozen=True)
class XmlCall:
    """Name and parameters between tags; values are bare text, or JSON if the tool's schema has a type other than
    string.

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
    """f(a="x", b=1): Python literals, and JSON's true, false and null. Parsed by `ast`, never evaluated."""

    opening: str = ""
    closing: str = ""


Call = JsonCall | NamedCall | XmlCall | PythonCall


@dataclass(frozen=True)
class CallFormat:
    """How tool calls are written.

    mark        the tag that announces calls, without whitespace: the first one before a name that no ordinary text
                would contain: "<tool_call>", "<TOOLCALL>", "<|tool_call_start|>"; "" for bare JSON objects: an answer
                is calls if it begins like one
    between     text between two calls in one section; None: a section has one call, and several calls are several
                sections with `again` between them
    as_text     the template gets arguments as JSON text, not as an object
    """

    mark: str
    begin: str
    end: str
    call: Call
    between: str | None = None
    again: str = ""
    as_text: bool = False


FALLBACK = CallFormat("<tool_call>", "", "", JsonCall("<tool_call>\n", "\n</tool_call>"), again="\n")
"""For models that were not taught a format: the one that most of them have seen."""


@dataclass(frozen=True)
class ThoughtFormat:
    """How thoughts are written, and how they are switched on and off.

    opening, closing  the tags, without whitespace around them: "<think>", "</think>"
    is_opened         whether the prompt of an answer ends after the opening tag, unless thoughts are switched off
    field             of a message in the conversation: "reasoning_content", "thinking"...; None: the template takes no
                      thoughts, and the thoughts of earlier answers are left out
    variable          of the template, which switches thoughts: "enable_thinking", "thinking"; or None
    on, off           words of the system message that switch thoughts ("/think", "/no_think") if there is no variable
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
    """The features of a model's template.

    thoughts  None: the template has no thoughts
    calls     how calls are written; FALLBACK if the template has no tools: then we describe them to the model
              (takes_tools False)
    takes_tools     the template writes `tools`
    takes_calls     it writes `tool_calls` of messages; if not, calls become text in the content
    takes_results   it accepts messages of the role "tool"
    tools_variable  its variable for the tools: nearly always "tools"
    calls_alone     content of a message that has only calls: some templates write the calls only beside "", some beside
                    None
    takes_parts     it accepts a message's content as a list of texts and pictures
    needs_parts     it leaves out content that is not such a list
    """

    thoughts: ThoughtFormat | None = None
    calls: CallFormat = FALLBACK
    takes_tools: bool = False
    takes_calls: bool = False
    takes_results: bool = False
    tools_variable: str = "tools"
    calls_alone: str | None = ""
    takes_parts: bool = False
    needs_parts: bool = False
