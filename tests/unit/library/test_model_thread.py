"""Adapters of answers in Python."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from adapters import write_adapter

import hybrid
from hybrid.quant.ggml.errors import StateError, UsageError

TEXT = "The state of a layer"


@pytest.fixture(scope="module")
def files(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    paths = [folder / "one.gguf", folder / "two.gguf"]
    for seed, path in enumerate(paths):
        write_adapter(path, gguf, 4, seed=seed, size=0.2)
    return paths


@pytest.fixture(scope="module")
def adapted(gguf: Path, files: list[Path]) -> Iterator[hybrid.Model]:
    with hybrid.load(gguf, context=512, threads=1, lora={"one": files[0], "other": (files[1], 0.5)}) as loaded:
        yield loaded


def test_answers_choose_their_adapters(adapted: hybrid.Model, gguf: Path, files: list[Path]) -> None:
    def said(model: hybrid.Model, **settings: object) -> str:
        return model.complete(TEXT, tokens=12, temperature=0, **settings).text  # type: ignore[arg-type]

    with hybrid.load(gguf, context=512, threads=1) as model:
        plain = said(model)
    with hybrid.load(gguf, context=512, threads=1, lora=[(files[1], 0.5)]) as model:
        other = said(model)
        assert said(model, lora={}) == plain
    assert said(adapted) == said(adapted, lora={"one": 0}) == plain
    assert said(adapted, lora="other") == said(adapted, lora={"other": 0.5}) == other
    assert len({plain, other, said(adapted, lora="one"), said(adapted, lora={"one": 1, "other": -0.5})}) == 4
    started = [adapted.complete(TEXT, tokens=12, temperature=0, stream=True, lora=name) for name in ("one", "other")]
    assert [answer.wait().text for answer in started] == [said(adapted, lora="one"), other]


def test_a_chat_keeps_its_adapter(adapted: hybrid.Model, tmp_path: Path) -> None:
    settings = {"tokens": 6, "temperature": 0}
    chat = adapted.chat(lora="one", **settings)  # type: ignore[arg-type]
    first = chat.say("What is a state?").text
    assert first != adapted.chat(**settings).say("What is a state?").text  # type: ignore[arg-type]
    chat.save(tmp_path / "a.state")
    again = adapted.load_chat(tmp_path / "a.state", lora="one")
    got, want = (one.say("And a layer?", tokens=6, temperature=0) for one in (again, chat))
    assert got.text == want.text
    with pytest.raises(StateError, match=r"was saved by '.* \+ one', not by this model"):
        adapted.load_chat(tmp_path / "a.state")


@pytest.mark.parametrize(
    ("lora", "says"),
    [
        ("onne", "there is no adapter onne: there are one"),
        ({"x": 1.0}, "there is no adapter x: there are one, other"),
        ({"one": "much"}, r"lora = \{'one': 'much'\}, expected the name of an adapter, or \{name: scale\}"),
        (3, "lora = 3, expected the name of an adapter"),
    ],
)
def test_adapters_that_are_not_there(adapted: hybrid.Model, lora: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        adapted.complete(TEXT, lora=lora)  # type: ignore[arg-type]
