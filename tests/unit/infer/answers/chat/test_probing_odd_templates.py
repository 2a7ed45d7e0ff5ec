"""Odd, broken and hostile templates: an unknown format means no tools, never an error."""

import time
from dataclasses import replace

import pytest

from hybrid.infer.answers.chat.format import FALLBACK, CallFormat, ChatFormat, JsonCall, NamedCall
from hybrid.infer.answers.chat.probing import probed
from hybrid.infer.text.chat_template import ChatTemplate

CHATML = """{% if tools %}<tools>{{ tools | tojson }}</tools>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% if m.tool_calls %}CALLS{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
EACH = "{% for c in m.tool_calls %}<call>{{ BODY }}</call>{% endfor %}"


def chatml(calls: str) -> ChatFormat:
    """The format found in a ChatML template in which `calls` writes the calls."""
    return probed(ChatTemplate(CHATML.replace("CALLS", calls)))


def each(body: str) -> ChatFormat:
    return chatml(EACH.replace("BODY", body))


def test_templates_that_write_arguments_as_they_like() -> None:
    ours = CallFormat("<call>", "", "", JsonCall("<call>", "</call>"))
    whole = "{'name': c.function.name, 'arguments': c.function.arguments}"
    assert each(f"{whole} | tojson") == ChatFormat(None, ours, True, True, True)
    assert each(f"{whole} | tojson(sort_keys=true, indent=1)") == ChatFormat(None, ours, True, True, True)
    assert each(f"{whole} | tojson(ensure_ascii=true)") == ChatFormat(None, ours, True, True, True)
    name_first = '\'{"name": "\' ~ c.function.name ~ \'", "arguments": \' ~ ARGUMENTS ~ "}"'
    assert each(name_first.replace("ARGUMENTS", "c.function.arguments | tojson")) == ChatFormat(
        None, ours, True, True, True
    )
    # str() of an object is not JSON, so the template wants text
    assert each(name_first.replace("ARGUMENTS", "c.function.arguments")) == ChatFormat(
        None, replace(ours, as_text=True), True, True, True
    )
    assert each(name_first.replace("ARGUMENTS", "(c.function.arguments + '')")) == ChatFormat(
        None, replace(ours, as_text=True), True, True, True
    )
    nested = JsonCall('<call>{"type": "function", "function": ', "}</call>")
    assert each("{'type': 'function', 'function': c.function} | tojson").calls == CallFormat("<call>", "", "", nested)
    more = NamedCall('<call>{"name": "', '", "strict": true, "arguments": ', "}</call>")
    with_more = each("{'name': c.function.name, 'strict': true, 'arguments': c.function.arguments} | tojson")
    assert with_more.calls == CallFormat("<call>", "", "", more)
    # HTML's escapes change the written text
    assert each(f"{whole} | tojson | e") == ChatFormat()


def test_calls_before_the_content() -> None:
    source = CHATML.replace("{{ m.content }}", "").replace("CALLS", EACH.replace("BODY", "c.function | tojson"))
    source = source.replace("{% endif %}<|im_end|>", "{% endif %}{{ m.content }}<|im_end|>")
    assert probed(ChatTemplate(source)).calls == CallFormat("<call>", "", "", JsonCall("<call>", "</call>"))


def test_templates_that_want_no_content_beside_calls() -> None:
    source = CHATML.replace("m.content", "m.content or ''").replace("if m.tool", "if m.content is none and m.tool")
    found = probed(ChatTemplate(source.replace("CALLS", EACH.replace("BODY", "c.function | tojson"))))
    assert (found.takes_calls, found.calls_alone) == (True, None)


HOSTILE = {
    "raises always": "{{ raise_exception('no') }}",
    "raises for tools": CHATML.replace("{% if tools %}", "{% if tools %}{{ raise_exception('no') }}"),
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "loops for calls": CHATML.replace("CALLS", "{% for a in range(9**9) %}x{% endfor %}"),
    "writes without end": "{% for a in range(99999) %}{{ 'kq_first kq_second' * 999 }}{% endfor %}",
    "braces": CHATML.replace("CALLS", "{{ '{' * 50000 }}{{ m.tool_calls[0].function.name }}{{ '{[' * 50000 }}"),
    "brackets": CHATML.replace("CALLS", "{{ m.tool_calls[0].function.name }}{{ '(' * 3000 }}{{ ')' * 3000 }}"),
    "the same again": "{{ messages | tojson }}" * 30 + CHATML.replace("CALLS", "{{ 'a' * 90000 }}"),
    "nothing": "",
    "no messages": "kq_first kq_second",
    "other messages": "{{ messages[7].content.nothing.there }}",
    "backwards": "{{ (messages | tojson)[::-1] }}{{ (tools | tojson)[::-1] }}",
    "upper case": CHATML.replace("CALLS", "{{ m.tool_calls | tojson | upper }}"),
    "numbers": "{{ 10 ** 50 * messages | length }}",
    "recursion": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_templates_have_no_tools(what: str) -> None:
    begin = time.perf_counter()
    found = probed(ChatTemplate(HOSTILE[what]))
    assert (found.calls, found.takes_tools, found.takes_calls) == (FALLBACK, False, False)
    assert time.perf_counter() - begin < 60  # without bounds: minutes
