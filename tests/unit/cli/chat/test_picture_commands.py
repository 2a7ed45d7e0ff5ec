"""/image, and paths of pictures that are dragged into a chat."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from seeing_models import pixels, png, seeing_model

from hybrid.cli.chat.commands import COMMANDS
from hybrid.cli.chat.session import ChatSession
from hybrid.infer import LoadedModel, Stop
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.pipeline.model_eyes import ModelEyes
from hybrid.quant.ggml.errors import HybridError, UsageError


@pytest.fixture
def chat(data_dir: Path) -> Iterator[ChatSession]:
    with LoadedModel.load(seeing_model(data_dir), n_ctx=256) as model:
        eyes = ModelEyes(model)
        talk = Conversation(model, SamplingParams(temp=0), model.chat_template, 4, eyes=eyes)
        yield ChatSession(talk, lambda prompt: "", COMMANDS)
        eyes.close()


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "a b.PNG"
    path.write_bytes(png(pixels(1)))
    return path


def pictures(chat: ChatSession) -> list[list[str]]:
    return [[picture.title for picture in turn.pictures] for turn in chat.conversation.turns.path]


def test_a_picture_comes_with_the_next_message(
    chat: ChatSession, picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat.obey(f"/image {picture}")
    assert "a b.PNG: 50 x 40 pixels, 6 tokens; it comes with your next message" in capsys.readouterr().err
    chat.obey("/image")
    assert "with your next message: a b.PNG" in capsys.readouterr().err
    chat.obey("What?")
    chat.obey("And?")
    assert pictures(chat) == [["a b.PNG"], []] and not chat.pictures
    chat.replay()
    assert "> [a b.PNG]" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["{}", "'{}'", '"{}"', "escaped", "file://{}", " {} "])
def test_a_dragged_path(chat: ChatSession, picture: Path, form: str) -> None:
    chat.obey(str(picture).replace(" ", "\\ ") if form == "escaped" else form.format(picture))
    assert [one.title for one in chat.pictures] == ["a b.PNG"] and not chat.conversation.turns.all
    chat.obey("/image off")
    assert not chat.pictures


def test_several_dragged_paths(chat: ChatSession, picture: Path) -> None:
    other = picture.with_name("c.jpg")
    other.write_bytes(png(pixels(2), "JPEG"))
    chat.obey(f"'{picture}' {other}")
    assert [one.title for one in chat.pictures] == ["a b.PNG", "c.jpg"]
    chat.obey(f"{other} {picture.parent}/nothing.png")
    assert pictures(chat) == [["a b.PNG", "c.jpg"]], "a message: not all are pictures"


def test_other_lines_are_messages(chat: ChatSession, picture: Path) -> None:
    for line in (f"What is {picture}?", f"{picture}\nWhat?", "nothing.png", str(picture.parent)):
        chat.obey(line)
    assert pictures(chat) == [[], [], [], []]


def test_what_cannot_be_read(chat: ChatSession, tmp_path: Path) -> None:
    text = tmp_path / "text.png"
    text.write_text("no picture")
    for line, said in ((str(text), "text.png is text"), ("/image nowhere.png", "nowhere.png: No such file")):
        with pytest.raises(HybridError, match=said):
            chat.obey(line)
    chat.conversation.eyes = None
    with pytest.raises(UsageError, match="reads no pictures"):
        chat.obey(str(text))
    assert not chat.pictures


def test_a_question_that_fails_keeps_its_picture(chat: ChatSession, picture: Path) -> None:
    chat.obey(str(picture))
    with pytest.raises(UsageError, match="the context 256"):
        chat.obey("a b c " * 300)
    assert [one.title for one in chat.pictures] == ["a b.PNG"]


def test_an_interrupted_question_keeps_its_picture(
    chat: ChatSession, picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def see(*_: object, stop: Stop, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)
        stop.check()

    chat.obey(str(picture))
    with monkeypatch.context() as patched:
        patched.setattr(chat.pictures[0].eyes.tower, "see", see)
        chat.obey("What?")
    assert not chat.conversation.turns.all and len(chat.pictures) == 1
    chat.obey("What?")
    assert pictures(chat) == [["a b.PNG"]]


def test_completions(chat: ChatSession, picture: Path) -> None:
    words = chat.words("/image", "a")
    assert words.files is not None and ".png" in words.files and not list(words.words)
    chat.obey(str(picture))
    assert list(chat.words("/image", "").words) == ["off"]
