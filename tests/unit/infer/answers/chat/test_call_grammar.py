"""Texts that the grammar of calls allows and refuses, for every type of token that a vocabulary has for the tags."""

import json
from typing import Any

import pytest
from chat_vocabulary import CONTROL, NORMAL, USER_DEFINED, chat_tokenizer

from hybrid.infer.answers.chat.call_grammar import answer_grammar
from hybrid.infer.answers.chat.format import (
    FALLBACK,
    CallFormat,
    ChatFormat,
    JsonCall,
    NamedCall,
    PythonCall,
    ThoughtFormat,
    XmlCall,
)
from hybrid.infer.answers.chat.marks import mark_pieces, shown_tokens
from hybrid.infer.answers.chat.tools import Tool, ToolChoice
from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import HybridError, UsageError


def tool(name: str, **parameters: Any) -> Tool:
    return Tool(name, "", parameters, {})


WEATHER = tool(
    "get_weather",
    type="object",
    properties={"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    required=["city"],
)
TOOLS = [WEATHER, tool("now"), tool("get", type="object", properties={})]
AUTO, REQUIRED = ToolChoice("auto"), ToolChoice("required")
THINKS = ThoughtFormat("<think>", "</think>", is_opened=True)
MAY_THINK = ThoughtFormat("<think>", "</think>")
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "a\u00e9"}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "now", "arguments": {"x": [1]}}\n</tool_call>'


def constraint_of(tokenizer: Tokenizer, format: ChatFormat, choice: ToolChoice = AUTO, **options: Any) -> Constraint:
    grammar = answer_grammar(format, tokenizer, options.pop("tools", TOOLS), choice, **options)
    assert grammar is not None
    return Constraint(Grammar.from_json(json.loads(json.dumps(grammar.to_json()))), tokenizer)


def fits(constraint: Constraint, tokenizer: Tokenizer, text: str | list[int]) -> bool:
    """Whether the constraint allows the whole answer, with its tags as their tokens."""
    state = constraint.copy()
    ids = (
        tokenizer.encode(text, add_special=False, continues=True, parse_special=True) if isinstance(text, str) else text
    )
    try:
        for token in ids:
            state.accept(token)
    except HybridError:
        return False
    return state.may_end


def check(constraint: Constraint, tokenizer: Tokenizer, right: list[str], wrong: list[str]) -> None:
    for text in right:
        assert fits(constraint, tokenizer, text), text
    for text in wrong:
        assert not fits(constraint, tokenizer, text), text


@pytest.fixture(params=[NORMAL, USER_DEFINED, CONTROL], ids=["text", "own tokens", "control tokens"], scope="session")
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return chat_tokenizer(request.param)


TEXTS = ["", "hello", "\U0001f600 <tool_call, 5 < 6 </s", '{"name": "now"}', "a<|im_start|>b", "</tool_call>"]
BAD_CALLS = [
    CALL[:-1],
    CALL + "x",
    CALL + CALL.replace("<tool_call>", "<tool_call>\n"),
    CALL.replace("city", "cit"),
    CALL.replace('"a\u00e9"', "1"),
    CALL.replace('"a\u00e9"', '"a", "days": 0'),
    CALL.replace('"a\u00e9"', '"a", "more": 1'),
    CALL.replace('"city": "a\u00e9"', ""),
    CALL.replace("get_weather", "get_wether"),
    CALL.replace("get_weather", "get"),
    "<tool_call>",
    "<tool_call>hello",
]


def test_auto_is_any_text_then_calls_that_fit(tokenizer: Tokenizer) -> None:
    check(
        constraint_of(tokenizer, ChatFormat()),
        tokenizer,
        [*TEXTS, CALL, NOW, f"text\n\n{CALL}", f"{CALL}\n{NOW}\n{CALL}", f"a<|im_start|>{CALL}", f"<think>{CALL}"],
        [*BAD_CALLS, f"text {BAD_CALLS[3]}", f"{CALL} {CALL}", f"{CALL}\n{BAD_CALLS[4]}", f"{CALL}\n"],
    )


def test_required_is_calls_at_once(tokenizer: Tokenizer) -> None:
    constraint = constraint_of(tokenizer, ChatFormat(), REQUIRED)
    check(constraint, tokenizer, [CALL, NOW, f"{CALL}\n{NOW}"], [*TEXTS, *BAD_CALLS, f"a{CALL}", f"\n{CALL}"])
    assert tokenizer.decode(constraint.forced()).startswith("<tool_call>")
    named = constraint_of(tokenizer, ChatFormat(), ToolChoice("required", "now"))
    check(named, tokenizer, [NOW, f"{NOW}\n{NOW}"], [CALL, "now", ""])


def test_without_parallel_there_is_one_call(tokenizer: Tokenizer) -> None:
    listed = CallFormat("<TOOLCALL>", "<TOOLCALL>[", "]</TOOLCALL>", JsonCall(), between=", ")
    call = '{"name":"now","arguments":{}}'
    two = f"<TOOLCALL>[{call}, {call}]</TOOLCALL>"
    for choice in (AUTO, REQUIRED):
        check(constraint_of(tokenizer, ChatFormat(), choice, parallel=False), tokenizer, [CALL], [f"{CALL}\n{CALL}"])
        format = ChatFormat(calls=listed)
        check(constraint_of(tokenizer, format, choice), tokenizer, [two], [f"{two}{two}", two.replace(", ", "")])
        one = constraint_of(tokenizer, format, choice, parallel=False)
        check(one, tokenizer, [two.replace(f", {call}", "")], [two])


def test_thoughts_that_the_model_opens(tokenizer: Tokenizer) -> None:
    format = ChatFormat(MAY_THINK)
    thoughts = "<think>a <tool_call> b<|im_start|>\U0001f600</think>"
    check(
        constraint_of(tokenizer, format),
        tokenizer,
        [
            *TEXTS,
            CALL,
            thoughts,
            f"{thoughts}\n\nhello",
            f"{thoughts}{CALL}",
            f"\n{thoughts}<think></think>",
            "<think>a",
        ],
        [*BAD_CALLS, f"{thoughts}<tool_call>hello", f"hello {thoughts}"],
    )
    right = [CALL, f"{thoughts}{CALL}", f"{thoughts}\n\n{CALL}"]
    check(
        constraint_of(tokenizer, format, REQUIRED),
        tokenizer,
        right,
        [*TEXTS, thoughts, f"{thoughts} a{CALL}", "<think>"],
    )


def test_thoughts_that_the_prompt_opened(tokenizer: Tokenizer) -> None:
    """The tag of a call ends the thoughts."""
    format = ChatFormat(THINKS)
    right = [f"a\n</think>\n\n{CALL}", f"a{CALL}", f"</think>{NOW}\n{CALL}", CALL]
    auto = constraint_of(tokenizer, format, thinks=True)
    check(
        auto,
        tokenizer,
        [*TEXTS, *right, "a</think>b"],
        [*BAD_CALLS, "a<tool_call>b</think>", f"a</think>{BAD_CALLS[3]}"],
    )
    required = constraint_of(tokenizer, format, REQUIRED, thinks=True)
    check(required, tokenizer, right, [*TEXTS, *BAD_CALLS, "a</think>", f"a</think>b{CALL}"])
    off = constraint_of(tokenizer, format, REQUIRED)
    check(off, tokenizer, [CALL], [f"<think></think>{CALL}", f"</think>{CALL}"])


FORMS = [
    (
        Grammar.json_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
        '{"a": 1}',
        "{}",
    ),
    (Grammar.regex("[ab]{2,3}"), "aba", "a"),
    (Grammar.choice(["yes", "no"]), "yes", "yesno"),
    (Grammar.of_text('root ::= "a" | "(" root ")"'), "((a))", "(a"),
    (Grammar.of_text('start: "a" rest\nrest: /[0-9]+/'), "a007", "a"),
]


@pytest.mark.parametrize(("form", "right", "wrong"), FORMS, ids=[form.kind for form, _, _ in FORMS])
def test_a_form_stands_behind_the_thoughts(form: Grammar, right: str, wrong: str, tokenizer: Tokenizer) -> None:
    none = ToolChoice("none")
    assert answer_grammar(ChatFormat(), tokenizer, TOOLS, none, form=form) is form
    assert answer_grammar(ChatFormat(THINKS), tokenizer, [], none, form=form) is form, "they are switched off"
    opened = constraint_of(tokenizer, ChatFormat(THINKS), none, thinks=True, form=form)
    check(
        opened, tokenizer, [f"x</think>\n\n{right}", f"</think>{right}"], [right, f"x</think>{wrong}", "x</think>", "x"]
    )
    may = constraint_of(tokenizer, ChatFormat(MAY_THINK), none, form=form)
    check(may, tokenizer, [right, f"<think>x</think>\n{right}"], [wrong, f"<think>x</think>{wrong}", "<think>"])
    both = constraint_of(tokenizer, ChatFormat(THINKS), AUTO, thinks=True, form=form)
    check(
        both, tokenizer, [f"x</think>\n{right}", f"x</think>{CALL}", f"x{CALL}"], [right, CALL[:-1], "x</think>x", ""]
    )
    calls = constraint_of(tokenizer, ChatFormat(), REQUIRED, form=form)
    check(calls, tokenizer, [CALL], [right])


def test_nothing_to_constrain(tokenizer: Tokenizer) -> None:
    assert answer_grammar(ChatFormat(THINKS), tokenizer, [], AUTO, thinks=True) is None
    assert answer_grammar(ChatFormat(THINKS), tokenizer, TOOLS, ToolChoice("none"), thinks=True) is None


def test_calls_without_a_mark(tokenizer: Tokenizer) -> None:
    """An answer is a call if it begins like one."""
    format = ChatFormat(calls=CallFormat("", "", "", JsonCall(arguments_key="parameters")))
    call = '{"name": "now", "parameters": {}}'
    wrong = ["{", '{"name": "never", "parameters": {}}', '[{"name"', '{"a": 1}', '{"parameters": {}, "name": "now"}']
    check(constraint_of(tokenizer, format), tokenizer, ["", "hello {", "[1] a", call], wrong)
    check(constraint_of(tokenizer, format, REQUIRED), tokenizer, [call], ["", "hello", *wrong])
    thinks = constraint_of(tokenizer, ChatFormat(THINKS, format.calls), thinks=True)
    check(thinks, tokenizer, [f"{{</think>\n{call}", "a</think>b", "{"], ['a</think>{"b"', f"</think>{call}x"])
    with pytest.raises(UsageError, match="no tag tells this model's calls from text"):
        answer_grammar(format, tokenizer, TOOLS, AUTO, form=Grammar.any_json())


def test_named_calls(tokenizer: Tokenizer) -> None:
    plain = ChatFormat(calls=CallFormat("<function=", "", "", NamedCall("<function=", ">", "</function>")))
    call = '<function=get_weather>{"city": "a"}</function>'
    check(
        constraint_of(tokenizer, plain),
        tokenizer,
        ["hello", call, f"hm {call}<function=now>{{}}</function>"],
        [call.replace('"a"', "1"), "<function=", call.replace("_", "-"), f"{call} "],
    )
    numbered = CallFormat(
        "<|tool_call_start|>",
        "<|tool_call_start|>",
        "<|tool_call_end|>",
        NamedCall("functions.", ":0|", "|"),
        between="",
    )
    text = '<|tool_call_start|>functions.now:0|{"a": 1}|functions.get:1|{}|<|tool_call_end|>'
    check(constraint_of(tokenizer, ChatFormat(calls=numbered)), tokenizer, [text], [text.replace("{}", '{"a": 1}')])


def test_ids_in_calls(tokenizer: Tokenizer) -> None:
    format = ChatFormat(calls=CallFormat("[TOOL_CALLS]", "[TOOL_CALLS][", "]", JsonCall(id_key="id"), between=", "))
    call = '[TOOL_CALLS][{"name": "now", "arguments": {}, "id": "abcDEF123"}]'
    first = '[TOOL_CALLS][{"id": "abcDEF123", "name": "now", "arguments": {}}]'
    check(constraint_of(tokenizer, format), tokenizer, [call, first, "[TOOL"], [call.replace("abc", "a b")])


def test_a_mark_that_is_a_token_is_drawn_as_one() -> None:
    for kind in (USER_DEFINED, CONTROL):
        tokenizer = chat_tokenizer(kind)
        for choice in (AUTO, REQUIRED):
            constraint = constraint_of(tokenizer, ChatFormat(), choice)
            spelled = [i for char in "<tool_call>" for i in tokenizer.encode(char, add_special=False, continues=True)]
            rest = tokenizer.encode(CALL[11:], add_special=False, continues=True, parse_special=True)
            assert not fits(constraint, tokenizer, [*spelled, *rest])
            assert fits(constraint, tokenizer, [tokenizer.encode("<tool_call>", parse_special=True)[-1], *rest])


def test_any_token_but_ends_may_stand_in_text(tokenizer: Tokenizer) -> None:
    """End tokens end an answer, and are forbidden in thoughts before a required call."""
    import numpy as np

    zeros = np.zeros(tokenizer.n_vocab, np.float32)
    auto = np.isfinite(constraint_of(tokenizer, ChatFormat()).masked(zeros))
    unlike_text = {
        i for i in range(tokenizer.n_vocab) if tokenizer.piece(i)[0] >= 0x80 and len(tokenizer.piece(i)) == 1
    }
    refused = {tokenizer.piece(int(i)) for i in np.flatnonzero(~auto)}
    assert refused == {bytes([b]) for b in (*range(0x80, 0xC2), *range(0xF5, 0x100))} and unlike_text
    thinks = np.isfinite(constraint_of(tokenizer, ChatFormat(THINKS), REQUIRED, thinks=True).masked(zeros))
    assert {tokenizer.piece(int(i)) for i in np.flatnonzero(auto & ~thinks)} == {b"</s>"}


def test_what_the_compiler_refuses_is_named(tokenizer: Tokenizer) -> None:
    """The error names the tool and the place; wider_tools.py widens such schemas."""
    bad = tool(
        "bad", type="object", properties={"a/b": {"type": "array", "minItems": 2, "maxItems": 1}}, required=["a/b"]
    )
    says = r"the schema of the tool 'bad' cannot be used: .*'a/b' is unsatisfiable \(at /properties/a~1b\)"
    with pytest.raises(UsageError, match=says):
        constraint_of(tokenizer, ChatFormat(), tools=[WEATHER, bad])


def test_a_schema_that_is_too_deep_is_any_object(tokenizer: Tokenizer) -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(120):
        deep = {"type": "array", "items": deep}
    made = constraint_of(tokenizer, ChatFormat(), tools=[tool("deep", properties={"a": deep})])
    assert made.grammar.notes == (
        "tool `deep`: the schema is nested deeper than 100 levels. Use $ref and $defs. "
        "Any value is accepted at parameters.",
    )
    check(made, tokenizer, ['<tool_call>\n{"name": "deep", "arguments": {"b": 1}}\n</tool_call>'], [BAD_CALLS[-1]])


def test_marks_and_what_is_shown() -> None:
    control, text = chat_tokenizer(CONTROL), chat_tokenizer(NORMAL)
    token = control.encode("<tool_call>", add_special=False, parse_special=True)[0]
    assert mark_pieces("\n<tool_call>\n{", control) == ["\n", token, "\n{"]
    assert mark_pieces("\n<tool_call>\n{", text) == ["\n<tool_call>\n{"]
    shown = {control.piece(i).decode() for i in shown_tokens(ChatFormat(THINKS, FALLBACK), control)}
    assert shown == {"<tool_call>", "</tool_call>", "<think>", "</think>"}
    assert shown_tokens(ChatFormat(THINKS, FALLBACK), text) == frozenset()
    ends = CallFormat("<tool_call>", "<tool_call>", "</s>", JsonCall())
    assert {control.piece(i).decode() for i in shown_tokens(ChatFormat(None, ends), control)} == {"<tool_call>"}


XML = CallFormat(
    "<tool_call>",
    "",
    "",
    XmlCall("<tool_call>\n<function=", ">\n", "<parameter=", ">\n", "\n</parameter>\n", "</function>\n</tool_call>"),
    again="\n",
)


def xml(name: str, **values: str) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


MANY = tool(
    "f",
    type="object",
    properties={
        "s": {"type": "string"},
        "n": {"type": "integer", "minimum": 3},
        "e": {"enum": ["a", "b c"]},
        "o": {"type": "object", "properties": {"x": {"type": "boolean"}}, "additionalProperties": False},
        "u": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
        "m": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 5}]},
        "p": {"type": "string", "pattern": "^[a-c]{2}$"},
        "a": {},
    },
    required=["s"],
)


def test_xml_calls(tokenizer: Tokenizer) -> None:
    format = ChatFormat(calls=XML)
    right = [
        xml("f", s=""),
        xml("f", s="a\n\n<b> \U0001f600 </parm>"),
        f"hm\n{xml('f', s='12')}",
        f"{xml('f', s='x')}\n{xml('now')}",
        xml("f", s="x", n="3", e="b c", o='{"x": true}', u="abc", m="x1", p="ab", a="[1"),
        xml("f", s="x", m="5"),
        xml("f", s="x", u="null"),
        xml("f", s="x").removeprefix("<tool_call>\n"),
    ]
    wrong = [
        xml("f"),
        xml("f", n="3", s="x"),
        *(
            xml("f", s="x", **{key: value})
            for key, value in {
                "n": "2",
                "e": "b",
                "o": "{}}",
                "u": "abcd",
                "m": "4",
                "p": "abc",
                "z": "1",
            }.items()
        ),
        xml("f", s="a</parameter>b"),
        xml("g"),
        "<function=",
    ]
    check(constraint_of(tokenizer, format, tools=[MANY, tool("now")]), tokenizer, right, wrong)
    required = constraint_of(tokenizer, format, REQUIRED, tools=[MANY, tool("now")])
    check(required, tokenizer, [text for text in right if text.startswith("<tool_call>")], [*wrong, right[2]])


def test_python_calls(tokenizer: Tokenizer) -> None:
    start, end = "<|tool_call_start|>[", "]<|tool_call_end|>"
    format = ChatFormat(calls=CallFormat(start[:-1], start, end, PythonCall(), ", "))
    optional = tool("g", type="object", properties={key: {"type": "boolean"} for key in "xyz"})
    calls = [
        'f(s="a\\n\\"")',
        'f(s="", n=3, e="b c", o={"x": true}, p="ab")',
        "g()",
        "g(y=True)",
        "g(x=false, z=true)",
        "now()",
    ]
    right = ["hello", *(start + call + end for call in calls), f"{start}{', '.join(calls)}{end}"]
    bad = [
        "f()",
        "f(n=3)",
        'f(s="", n=2)',
        "f(s='a')",
        "f(s=1)",
        "g(z=true, x=false)",
        "g(y=true,)",
        "g(y=null)",
        "h()",
        "g(",
        "",
    ]
    wrong = [start + call + end for call in bad]
    tools = [MANY, optional, tool("now")]
    check(constraint_of(tokenizer, format, tools=tools), tokenizer, right, wrong)
    check(
        constraint_of(tokenizer, format, REQUIRED, tools=tools, parallel=False),
        tokenizer,
        right[1:-1],
        [*wrong, right[-1], "a"],
    )


def a_of(**schema: Any) -> dict[str, Any]:
    return {"properties": {"a": schema}}


LEFT_OUT = "cannot be enforced in this model's calls: its name cannot be told from tags, it is left out"


@pytest.mark.parametrize(
    ("parameters", "right", "wrong", "says"),
    [
        ({"allOf": [a_of(type="string"), {"required": ["a"]}]}, [{"a": "x"}], [{}, {"b": "x"}], []),
        (
            {"anyOf": [{**a_of(type="integer"), "required": ["a"]}, a_of(const="x")]},
            [{"a": "1"}, {"a": "x"}, {}],
            [{"a": "y"}],
            ["`anyOf` at parameters cannot be enforced in this model's calls: a call may have parameters of several"],
        ),
        ({"$ref": "#/$defs/d", "$defs": {"d": {**a_of(type="null"), "required": ["a"]}}}, [{"a": "null"}], [{}], []),
        (a_of(type="string", format="nonsense"), [{"a": "x"}], [{"b": "x"}], []),
        (a_of(type="string", pattern="^a|b$"), [{"a": "c"}], [{"b": "x"}], ["`pattern` at parameters.a cannot be"]),
        (a_of(type=["string", "integer"], **{"x-order": 1}), [{"a": "2 dollars"}], [{"b": "x"}], []),
        (a_of(oneOf=[{"type": "string"}, {"type": "string", "maxLength": 3}]), [{"a": "2"}, {"a": "abcd"}], [], []),
        ({"properties": {"a\nb": {}, "c": {}}}, [{"c": "1"}], [{"a\nb": "1"}], [LEFT_OUT]),
        (
            {"properties": {"a": False}, "required": ["a"]},
            [{"a": "1"}],
            [{}],
            ["`required` at parameters.a cannot be enforced in this model's calls: no value fits it, any is accepted"],
        ),
        (a_of(type="string", allOf=[False]), [{"a": "x"}], [], ["`enum` at parameters.a cannot be enforced"]),
    ],
)
def test_what_xml_cannot_hold_is_noted(
    parameters: dict[str, Any],
    right: list[dict[str, str]],
    wrong: list[dict[str, str]],
    says: list[str],
    tokenizer: Tokenizer,
) -> None:
    made = constraint_of(tokenizer, ChatFormat(calls=XML), REQUIRED, tools=[tool("odd", **parameters)])
    check(made, tokenizer, [xml("odd", **values) for values in right], [xml("odd", **values) for values in wrong])
    notes = made.grammar.notes
    assert len(notes) == len(says) and all(part in note for part, note in zip(says, notes, strict=True)), notes


def test_python_leaves_out_what_it_cannot_write(tokenizer: Tokenizer) -> None:
    format = ChatFormat(calls=CallFormat("", "[", "]", PythonCall(), ", "))
    odd = tool("odd", properties={"a-b": {}, "c": {"type": "integer"}}, required=["a-b", "c"])
    made = constraint_of(tokenizer, format, REQUIRED, tools=[odd])
    check(made, tokenizer, ["[odd(c=1)]"], ["[odd(a-b=1, c=1)]", "[odd()]"])
    assert "`properties` at parameters.a-b cannot be enforced in this model's calls: Python" in made.grammar.notes[0]


@pytest.mark.parametrize(
    ("format", "right", "wrong"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("time", "10:00:00Z", "24:00:00Z"),
        ("date-time", "2024-02-29T10:00:00.5+01:00", "2024-02-29"),
        ("duration", "P1DT2H", "1D"),
        ("email", "a.b@c.de", "a@b@c.de"),
        ("hostname", "a-b.c", "-a.b"),
        ("ipv4", "1.2.3.255", "1.2.3.256"),
        ("ipv6", "1:2:3:4:5:6:7:8", "1:2:3"),
        ("uri", "https://a.b/c%20d?e=f#g", "a/b"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
    ],
)
def test_formats_of_bare_text(format: str, right: str, wrong: str) -> None:
    tokenizer = chat_tokenizer(NORMAL)
    tools = [tool("f", type="object", properties={"s": {"type": "string", "format": format}}, required=["s"])]
    constraint = constraint_of(tokenizer, ChatFormat(calls=XML), REQUIRED, tools=tools)
    check(constraint, tokenizer, [xml("f", s=right)], [xml("f", s=wrong), xml("f", s=""), xml("f", s=right + " ")])
