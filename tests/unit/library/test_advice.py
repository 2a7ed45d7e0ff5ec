"""Advice in errors: the functions and keywords that it names exist."""

import inspect
import re

import pytest

import hybrid
from hybrid.advice import SENTENCES, advised
from hybrid.quant.ggml.errors import HybridError, Remedy


@pytest.mark.parametrize("sentence", SENTENCES.values())
def test_what_is_named_exists(sentence: str) -> None:
    for owner, name in re.findall(r"\b(hybrid|model)\.(\w+)", sentence):
        assert hasattr(hybrid if owner == "hybrid" else hybrid.Model, name), sentence
    if "load(" in sentence:
        keywords = re.findall(r"(\w+)=", sentence)
        assert keywords and set(keywords) <= set(inspect.signature(hybrid.load).parameters), sentence


def test_a_note_comes_once() -> None:
    with pytest.raises(HybridError) as caught, advised(), advised():
        raise HybridError("a", remedy=Remedy.KV_TYPE, value="q8_0")
    assert caught.value.__notes__ == ['Use load(..., keys_values="q8_0").'] and str(caught.value) == "a"
    with pytest.raises(HybridError) as caught, advised():
        raise HybridError("a", remedy=Remedy.LIST_TURNS)
    assert not hasattr(caught.value, "__notes__"), "nothing that helps here"


def test_a_notebook_shows_one_line_and_what_helps() -> None:
    with pytest.raises(HybridError) as caught, advised():
        raise HybridError("a", remedy=Remedy.EMBEDDINGS)
    assert caught.value._render_traceback_() == ["HybridError: a", "Use model.embed(texts)."]


def test_ipython_takes_it() -> None:
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    shell = interactive.InteractiveShell.instance()
    shown: list[str] = []
    try:
        shell._showtraceback = lambda kind, value, lines: shown.extend(lines)
        shell.run_cell("from hybrid import HybridError\nraise HybridError('a line')")
    finally:
        interactive.InteractiveShell.clear_instance()
    assert shown == ["HybridError: a line"]
