"""The renderings that probing makes: bounded, and a refusal counts as a result."""

import random

from hybrid.infer.answers.chat.renderings import (
    MOST_CHARACTERS,
    MOST_RENDERINGS,
    MOST_STEPS,
    USER,
    Renderings,
    common_prefix,
    common_suffix,
)
from hybrid.infer.text.chat_template import ChatTemplate


def test_common_ends() -> None:
    for _ in range(2000):
        a, b = ("".join(random.choices("ab", k=random.randrange(9))) for _ in range(2))
        n = common_prefix(a, b)
        assert a[:n] == b[:n]
        assert n == min(len(a), len(b)) or a[n] != b[n]
        assert common_suffix(a[::-1], b[::-1]) == n


def test_what_the_template_refuses_or_writes_without_end_is_none() -> None:
    render = Renderings(ChatTemplate("{{ raise_exception('no') if tools }}{{ messages[0].content * more }}"))
    assert render([USER], variables={"more": 2}) == 2 * USER["content"]
    assert render([USER], tools=[{}], variables={"more": 2}) is None
    assert render([USER], variables={"more": MOST_CHARACTERS}) is None
    assert render.taken == 3


def test_renderings_end() -> None:
    render = Renderings(ChatTemplate("x"))
    assert [render([USER]) for _ in range(MOST_RENDERINGS + 2)] == ["x"] * MOST_RENDERINGS + [None, None]
    render = Renderings(ChatTemplate("{% for i in range(60000) %}{% endfor %}x"))
    assert [render([USER]) for _ in range(4)] == ["x", "x", None, None]
    assert MOST_STEPS < render.steps < 2 * MOST_STEPS
