"""Hostile templates take little time and memory, and end with an error that names the limit."""

import threading
from collections.abc import Iterator

import pytest
from address_space import at_most

from hybrid.infer.answers.chat.format import FALLBACK
from hybrid.infer.answers.chat.probing import probed
from hybrid.infer.text.chat_template import MAX_SOURCE, ChatTemplate
from hybrid.infer.text.template_budget import MAX_STEPS
from hybrid.quant.ggml.errors import TemplateError

MOST = 1 << 30  # bytes of address space that a hostile template may take: the limit of 256 MiB, and one more operation
CONTENT = "a b\n" * 200


def grows(doubled: str, then: str = "", start: str = "'ab'", times: int = 40) -> str:
    """A template whose `ns.x` becomes `doubled` again and again."""
    loop = f"{{% for i in range({times}) %}}{{% set ns.x = {doubled} %}}{{% endfor %}}"
    return f"{{% set ns = namespace(x={start}) %}}{loop}{then}"


DAG = {"list": "[ns.x, ns.x]", "dict": "{'a': ns.x, 'b': ns.x}", "tuple": "(ns.x, ns.x)"}
BIG = grows("ns.x * 2", times=23)  # 16 M characters
HOSTILE = {
    **{f"{kind} written": grows(twice, "{{ ns.x }}") for kind, twice in DAG.items()},
    **{f"{kind} as JSON": grows(twice, "{{ ns.x | tojson }}") for kind, twice in DAG.items()},
    **{f"{kind} joined": grows(twice, "{{ ns.x ~ 'a' }}") for kind, twice in DAG.items()},
    **{
        f"{kind} compared": grows(twice, "{% set y = ns.x %}") + grows(twice, "{{ y == ns.x }}").replace("ns", "other")
        for kind, twice in DAG.items()
    },
    "list formatted": grows(DAG["list"], "{{ '%s' % ns.x }}"),
    "list with format": grows(DAG["list"], "{{ '{}'.format(ns.x) }}"),
    "list with indent": grows(DAG["list"], "{{ ns.x | tojson(indent=4) }}"),
    "list by the filter format": grows(DAG["list"], "{{ '%s' | format(ns.x) }}"),
    "width by the filter format": "{{ '%*d' | format(10 ** 9, 1) }}",
    "list as text": grows(DAG["list"], "{{ ns.x | string | length }}"),
    "list sorted": grows(DAG["list"], "{{ [ns.x, [ns.x]] | sort }}"),
    "list in": grows(DAG["list"], "{{ [ns.x] in [ns.x, 1] }}"),
    "list counted": grows(DAG["list"], "{{ [ns.x, 1].count([ns.x]) }}"),
    "list tested": grows(DAG["list"], "{{ ns.x is lower }}"),
    "list raised": grows(DAG["list"], "{{ raise_exception(ns.x) }}"),
    "list times": grows("[ns.x] * 2", "{{ ns.x }}"),
    "dict by a call": grows("dict(a=ns.x, b=ns.x)", "{{ ns.x }}"),
    "dict by keys": grows("{}.fromkeys(['a', 'b'], ns.x)", "{{ ns.x | tojson }}"),
    "batch": grows("[1] | batch(3, ns.x) | list", "{{ ns.x | tojson }}"),
    "namespace": grows("namespace(a=ns.x, b=ns.x)", "{{ ns.x }}"),
    "cycler": grows("cycler(ns.x, ns.x).items", "{{ {ns.x: 1} }}"),
    "arguments": "{% macro f(t, n) %}{% if n %}{{ f(varargs, n - 1, t, t) }}{% else %}{{ {varargs: t} }}{% endif %}"
    "{% endmacro %}{{ f(1, 60, 2, 3) }}",
    "list plus": grows("ns.x + ns.x", start="[1]"),
    "list of a range": "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}"
    "{% set ns.x = [ns.x, range(99999) | list] %}{% endfor %}",
    "captured": "{% set a %}"
    + CONTENT
    + "{% endset %}"
    + "".join(f"{{% set a %}}{'{{ a }}' * 9}{{% endset %}}" for _ in range(9)),
    "macros": "{% macro f(n) %}" + CONTENT + "{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(40) }}",
    "filter block": BIG + "{% filter replace('a', 'aaaaaaaa') %}{{ ns.x }}{% endfilter %}",
    "variables": BIG + "{% set v = namespace() %}{% for i in [0] * 99 %}{% set v.x = [v.x, ns.x[1:]] %}{% endfor %}",
    "chain of variables": BIG + "".join(f"{{% set a{i} = ns.x[{i}:] %}}" for i in range(60)),
    "chain of calls": BIG + "".join(f"{{% set a{i} = ns.x.upper()[{i}:] %}}" for i in range(60)),
    "short variables": "{% set v = namespace(x=[]) %}{% for i in range(99999) %}{% for j in range(99) %}"
    "{% set v.x = [v.x, 'ab' * 2000] %}{% endfor %}{% endfor %}",
    "searched": BIG + "{% for i in range(99999) %}{{ 'c' in ns.x }}{% endfor %}",
    "searched from the end": BIG + "{{ ns.x.rfind('b' + ns.x[:8000000]) }}",
    "stripped": BIG + "{{ ns.x.strip(ns.x[:8000000]) }}",
    "compared often": BIG + "{% set y = ns.x[1:] %}{% for i in range(99999) %}{{ ns.x[1:] == y }}{% endfor %}",
    "in a list": BIG + "{% set y = [ns.x] * 999999 %}{{ ns.x[1:] in y }}",
    "characters": grows("ns.x * 2", "{{ ns.x | list | length }}", "'é\u4e00'", 23),
    "words": grows("ns.x * 2", "{{ ns.x.split() | length }}", "'a '", 23),
    "lines": grows("ns.x * 2", "{{ ns.x.splitlines() | length }}", "'a\\n'", 23),
    "titles": grows("ns.x * 2", "{{ ns.x | title }}", "'a '", 23),
    "counted words": grows("ns.x * 2", "{{ ns.x | wordcount }}", "'a '", 23),
    "tags": grows("ns.x * 2", "{{ ns.x | striptags }}", "'<b>'", 20),
    "indent": grows("ns.x * 2", "{{ ns.x | indent(9999) }}", "'a\\n'", 15),
    "indent by text": grows("ns.x * 2", "{{ ns.x | indent(ns.x) }}", "'a\\n'", 15),
    "joined by text": BIG + "{{ range(9999) | join(ns.x) }}",
    "joined attribute": BIG + "{{ ([namespace(a=ns.x)] * 999) | join(attribute='a') }}",
    "method join": BIG + "{{ ns.x.join(['a'] * 99999) }}",
    "tabs": grows("ns.x * 2", "{{ ns.x.expandtabs(9999) }}", "'\\t'", 16),
    "replaced": grows("ns.x * 2", "{{ ns.x.replace('a', ns.x) }}", "'a'", 14),
    "replaced nothing": grows("ns.x * 2", "{{ ns.x | replace('', ns.x) }}", "'a'", 14),
    "widths": "{{ '" + "%9999999d" * 50 + "' % (1" + ",1" * 49 + ") }}",
    "wide format": "{{ '" + "{:9999999}" * 50 + "'.format(1" + ",1" * 49 + ") }}",
    "the same argument": BIG + "{{ '" + "{0}" * 200 + "'.format(ns.x) }}",
    "the same key": BIG + "{{ '" + "%(a)s" * 200 + "' % {'a': ns.x} }}",
    "a width that is a value": "{{ '%*d' % (10 ** 9, 1) }}",
    "JSON indent": "{{ [[[1]]] | tojson(indent=10 ** 9) }}",
    "JSON separators": BIG + "{{ (range(9999) | list) | tojson(separators=[ns.x, ns.x]) }}",
    "rounded": "{{ 1.5 | round(10 ** 9, 'floor') }}",
    "powers": "{% set ns = namespace(x=9) %}{% for i in range(99) %}{% set ns.x = ns.x ** 60 %}{% endfor %}",
    "batch of many": "{{ [1] | batch(10 ** 9, 'x') | list }}",
    "slice of many": "{{ [1] | slice(10 ** 9) | list }}",
    "sum of lists": "{{ ([[1] * 999] * 9999) | sum(start=[]) | length }}",
    "date": BIG + "{{ strftime_now(ns.x) }}",
    "escaped": grows("ns.x * 2", "{{ ns.x | escape }}", "'<'", 23),
    "a budget of its own": "{{ 1 | _cost }}",
}
NO_BOUND = {"a budget of its own": "No filter named '_cost'"}


@pytest.fixture
def bounded_memory() -> Iterator[None]:
    with at_most(MOST):
        yield


@pytest.mark.usefixtures("bounded_memory")
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_template_ends_with_one_line(what: str) -> None:
    with pytest.raises(TemplateError) as error:
        ChatTemplate(HOSTILE[what], name="tokenizer.chat_template").render([{"role": "user", "content": CONTENT}])
    message = str(error.value)
    says = NO_BOUND.get(what) or "tokenizer.chat_template cannot be rendered: "
    assert says in message and "\n" not in message and "Memory" not in message


@pytest.mark.usefixtures("bounded_memory")
@pytest.mark.parametrize("what", ["dict as JSON", "chain of variables", "searched", "macros"])
def test_probing_of_a_hostile_template_ends(what: str) -> None:
    found = probed(ChatTemplate(HOSTILE[what]))
    assert (found.calls, found.takes_tools) == (FALLBACK, False)


def test_a_source_that_is_too_long() -> None:
    with pytest.raises(
        TemplateError, match=f"chat template: it has {MAX_SOURCE + 1} characters, more than {MAX_SOURCE}"
    ):
        ChatTemplate("a" * (MAX_SOURCE + 1))


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a'.encode('utf-32') }}",
        "{{ 'a'.translate({97: 'b'}) }}",
        "{{ (5).to_bytes(9, 'big') }}",
        "{{ (['a'] | map(attribute='encode') | first)('utf-8') }}",
    ],
)
def test_methods_that_nobody_bounds(source: str) -> None:
    with pytest.raises(TemplateError, match="is not safely callable"):
        ChatTemplate(source).render([{"role": "user"}])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ 1 + 2 + 3.5 }}{{ 'a' + 'b' + 'c' }}{{ ([1] + [2] + messages) | length }}", "6.5abc3"),
        (
            "{{ 'a' in 'cab' }}{{ 'role' in messages[0] }}{{ 3 not in [1, x] }}{{ 1 < x < 5 }}{{ x == messages }}",
            "TrueTrueTrueTrueFalse",
        ),
        (
            "{{ [3, 1] | sort | join('-') }}{{ messages | map(attribute='role') | join(',') }}{{ 'abc' | join('.') }}",
            "1-3usera.b.c",
        ),
        ("{{ [1, 2] | sum }}{{ messages | sum(attribute='n') }}{{ ([[1], [2]] | sum(start=[])) | length }}", "382"),
        ("{% macro f(a) %}<{{ a }}{{ caller() }}>{% endmacro %}{% call f(1) %}in{% endcall %}", "<1in>"),
        ("{% block b %}x{% endblock %}{{ self.b() }}{% set s %}a{{ x }}{% endset %}{{ s }}", "xxa2"),
        ("{% filter upper %}a{{ x }}{% endfilter %}{{ 'a\nb' | indent(2, true) }}", "A2  a\n  b"),
        ("{{ '%s **%d**' % ('a', 3) }}{{ '%-5s|' % 'a' }}{{ '{:>3}{!r}'.format(1, 'a') }}", "a **3**a    |  1'a'"),
        ("{{ 'a,b'.split(',', 1)[1] }}{{ ' a '.strip() }}{{ '-'.join(['a', 'b']) }}{{ 'a'.center(3) }}|", "baa-b a |"),
        (
            "{{ messages }}{{ (1, x) }}{{ {'a': x} | tojson }}{{ none }}{{ 1.5 }}",
            "[{'role': 'user', 'n': 8}](1, 2){\"a\": 2}None1.5",
        ),
        (
            "{{ messages | selectattr('role', 'eq', 'user') | list | length }}{{ [1, 2] | select('in', [x]) | join }}",
            "12",
        ),
        (
            "{% for k, v in {'b': x, 'a': 1} | dictsort %}{{ k }}{{ v }}{% endfor %}{{ [x, 1, x] | unique | list }}",
            "a1b2[2, 1]",
        ),
        ("{% for row in range(5) | batch(2, 'z') %}{{ row | join }};{% endfor %}{{ 2.55 | round(1) }}", "01;23;4z;2.5"),
    ],
)
def test_what_is_bounded_means_what_it_did(source: str, expected: str) -> None:
    assert ChatTemplate(source).render([{"role": "user", "n": 8}], x=2) == expected


def test_steps_grow_with_what_is_read() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content | upper }}{% endfor %}")
    template.render([{"content": "a" * 100}] * 9)
    few = template.steps
    template.render([{"content": "a" * 1_000_000}] * 9)
    assert few < 50 < 9000 < template.steps < MAX_STEPS


def test_a_conversation_of_several_million_characters() -> None:
    """Dropped values do not count for ever."""
    source = (
        "{% set ns = namespace(x='') %}{% for m in messages %}{% set ns.x = ns.x ~ m.content %}{% endfor %}{{ ns.x }}"
    )
    messages = [{"content": "a" * 10_000}] * 400
    assert len(ChatTemplate(source).render(messages)) == 4_000_000


def test_two_threads_do_not_share_a_budget() -> None:
    template = ChatTemplate("{% for i in range(60000) %}{% endfor %}ok")
    got: list[str] = []
    threads = [threading.Thread(target=lambda: got.extend(template.render([]) for _ in range(9))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == ["ok"] * 36


def test_the_filter_format() -> None:
    """The same as jinja2's: of values, or of names."""
    template = ChatTemplate("{{ '%s of %d' | format('one', 2) }}, {{ '%(a)s' | format(a=messages | length) }}")
    assert template.render([]) == "one of 2, 0"
