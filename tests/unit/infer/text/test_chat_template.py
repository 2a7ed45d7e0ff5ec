"""Chat templates get transformers' names, and none can escape, or run or grow without end."""

import time
from typing import Any

import pytest
from reference.tokenizer_files import FakeGGUF

from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.infer.text.stops import GoneError, stopped_by
from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.quant.ggml.errors import Remedy, TemplateError

MESSAGES = [
    {"role": "user", "content": "a < b"},
    {"role": "assistant", "content": "é"},
    {"role": "user", "content": ""},
]


def render(source: str, **more: Any) -> str:
    return ChatTemplate(source).render(MESSAGES, **more)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "{% for m in messages %}\n  {% if true %}\n{{ m.role }};\n  {% endif %}\n{% endfor %}",
            "user;\nassistant;\nuser;\n",
        ),
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "a < b"}'),
        ("{{ messages[1].content | tojson }}", '"é"'),
        ("{{ [1, {'b': 2, 'a': [] }] | tojson(indent=1) }}", '[\n 1,\n {\n  "b": 2,\n  "a": []\n }\n]'),
        ("{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ loop.index }}{% endfor %}", "12"),
        (
            "{% for m in messages %}{{ loop.length }}{{ loop.revindex0 }}{{ loop.last }},{% endfor %}",
            "32False,31False,30True,",
        ),
        (
            "{% for m in messages if m.role == 'user' %}{{ loop.index0 }}{{ m.role }}{% else %}none{% endfor %}",
            "0user1user",
        ),
        ("{% for m in nothing %}x{% else %}none{% endfor %}{{ nothing }}", "none"),
        ("{% for key, value in {'x': 1, 'y': 2}.items() %}{{ key }}{{ value }}{% endfor %}", "x1y2"),
        ("{% generation %}inside{% endgeneration %}", "inside"),
        ("{{ 'a' ~ 1 ~ none ~ 'b' + 'c' }}{{ 2 * 'x' }}{{ 2 ** 3 }}{{ '%s-%d' % ('z', 4) }}", "a1Nonebcxx8z-4"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "3"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f('q') }}", "[q]"),
        (
            "{{ messages | map(attribute='role') | join('|') }}{{ 'abc'[::-1] }}{{ 'A-{}'.format(3) }}",
            "user|assistant|usercbaA-3",
        ),
        ("{{ add_generation_prompt }}{{ tools is none }}{{ extra }}", "TrueTrue7"),
        ("a\n", "a"),
    ],
)
def test_what_templates_use(source: str, expected: str) -> None:
    assert render(source, extra=7) == expected


def test_dates() -> None:
    assert render("{{ strftime_now('%Y') }}") == time.strftime("%Y")


def test_tokens_and_arguments() -> None:
    template = ChatTemplate(
        "{{ bos_token }}{{ messages | length }}{{ add_generation_prompt }}", tokens={"bos_token": "<s>"}
    )
    assert template.render([], add_generation_prompt=False) == "<s>0False"
    assert template.render(MESSAGES, bos_token="") == "3True"


def test_from_a_file() -> None:
    metadata: dict[str, Any] = {
        "model": "gpt2",
        "tokens": ["<s>", "</s>", "a"],
        "token_type": [3, 3, 1],
        "merges": [],
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    gguf = FakeGGUF({f"tokenizer.ggml.{key}": value for key, value in metadata.items()})
    tok = load_tokenizer(gguf)
    assert ChatTemplate.from_gguf(gguf, tok) is None
    gguf.metadata["tokenizer.chat_template.default"] = "d{{ eos_token }}{{ pad_token }}"
    gguf.metadata["tokenizer.chat_template.tools"] = "t{{ bos_token }}"
    default, tools = ChatTemplate.from_gguf(gguf, tok), ChatTemplate.from_gguf(gguf, tok, "tools")
    assert default is not None
    assert tools is not None
    assert (default.render([]), tools.render([])) == ("d</s>", "t<s>")
    assert ChatTemplate.from_gguf(gguf, tok, "rag") is None
    gguf.metadata["tokenizer.chat_template"] = 3
    with pytest.raises(TemplateError, match=r"tokenizer\.chat_template is int, expected a string"):
        ChatTemplate.from_gguf(gguf, tok)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('only\nuser') }}", "only user"),
        ("{{ messages[9].role }}", "has no element 9"),
        ("{{ nothing.x }}", "'nothing' is undefined"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 'a' + 1 }}", "cannot be rendered"),
        ("{% for m in none %}{% endfor %}", "'NoneType' object is not iterable"),
    ],
)
def test_refusals_are_one_line(source: str, message: str) -> None:
    with pytest.raises(TemplateError) as error:
        render(source)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{", "{% for %}", "{{ a | nofilter }}", "{{" + "(" * 3000, "{% include 'x' %}{{"]
)
def test_what_cannot_be_parsed(source: str) -> None:
    with pytest.raises(TemplateError, match=r"chat template: ") as refused:
        ChatTemplate(source)
    assert refused.value.remedy is Remedy.WITHOUT_TEMPLATE


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ self.__init__.__globals__.x }}",
        "{% include '/etc/passwd' %}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ lipsum(n=5) }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source)


DOUBLE = "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = DOUBLED %}{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99) %}{% for k in [1] %}{% endfor %}{% endfor %}{% endfor %}",
        "{% for i in range(999999) %}{% endfor %}",
        "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{%- for m in messages recursive %}{{ loop([m]) }}{% endfor %}",
        *(
            DOUBLE.replace("DOUBLED", grown)
            for grown in (
                "ns.x ~ ns.x",
                "ns.x + ns.x",
                "ns.x * 2",
                "[ns.x, ns.x] | join",
                "ns.x | replace('a', 'aa')",
                "ns.x.replace('a', 'aa')",
                "'%s%s' % (ns.x, ns.x)",
                "'{}{}'.format(ns.x, ns.x)",
            )
        ),
        "{{ 'a' * 10 ** 12 }}",
        "{{ [0] * 10 ** 12 }}",
        "{{ 10 ** 10000000 }}",
        "{{ 'a' | center(10 ** 11) }}",
        "{{ 'a' | indent(10 ** 11) }}",
        "{{ 'a'.ljust(10 ** 11) }}",
        "{{ 'a'.center(10 ** 11) }}",
        "{{ '{:>10000000000}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 10 ** 11) }}",
        "{{ '%10000000000d' % 1 }}",
        "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
    ],
)
def test_nothing_runs_or_grows_without_end(source: str) -> None:
    begin = time.process_time()
    with pytest.raises(TemplateError, match="cannot be rendered"):
        render(source)
    assert time.process_time() - begin < 20


def test_one_rendering_does_not_use_up_the_next() -> None:
    template = ChatTemplate("{% for i in range(90000) %}{% endfor %}ok")
    assert {template.render([]) for _ in range(15)} == {"ok"}


def test_a_rendering_looks_whether_anybody_waits() -> None:
    template = ChatTemplate("{% for m in messages %}{% for i in range(40) %}{% endfor %}{{ m.content }}{% endfor %}")
    messages, looks = [{"role": "user", "content": "a"}] * 2000, []

    def gone() -> bool:
        looks.append(1)
        return len(looks) == 3

    with stopped_by(gone), pytest.raises(GoneError):
        template.render(messages)
    assert len(looks) == 3 and template.render(messages) == "a" * 2000
