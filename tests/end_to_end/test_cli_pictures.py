"""`hybrid run` with pictures: --image, chats that are continued, files of prompts, refusals."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from end_to_end.outcomes import Cli
from seeing_models import pixels, png, seeing_model, tower_of

from hybrid.infer import LoadedModel, Stop
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.infer.answers.conversations.moving import moved
from hybrid.infer.answers.prompt_files.line_pictures import LinePictures
from hybrid.infer.answers.prompt_files.prompt_files import read_prompts
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.pipeline.model_eyes import ModelEyes
from hybrid.quant.ggml.errors import PictureError, StateError, UsageError


@pytest.fixture(scope="module")
def model(data_dir: Path) -> Path:
    return seeing_model(data_dir)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "a b.png"
    path.write_bytes(png(pixels(1)))
    return path


@pytest.fixture
def plain(model: Path, tmp_path: Path) -> Path:
    """The text model, in a folder without its tower."""
    path = tmp_path / "plain" / "plain.gguf"
    path.parent.mkdir()
    path.symlink_to(model)
    return path


@pytest.fixture
def loaded(model: Path) -> Iterator[LoadedModel]:
    with LoadedModel.load(model, n_ctx=512, checkpoint_budget=16 << 20, n_seq_max=4) as loaded:
        yield loaded


RUN = ("--temp", 0, "-n", 4, "-c", 256, "--json")


def asked(cli: Cli, *words: object) -> dict:
    code, out, err = cli("run", *words, *RUN)
    assert code == 0, err
    return json.loads(out)


def test_another_picture_gives_another_prompt(cli: Cli, model: Path, picture: Path, tmp_path: Path) -> None:
    other = tmp_path / "c.bmp"
    other.write_bytes(png(pixels(1), "BMP"))
    first = asked(cli, model, "--image", picture, "-p", "What is it?")
    assert asked(cli, model, "--image", other, "-p", "What is it?")["ids"] == first["ids"], "the same pixels"
    alone = asked(cli, model, "-p", "What is it?")
    assert first["prompt_tokens"] == alone["prompt_tokens"] + 2 + 6, "two marks and six features"
    both = asked(cli, model, "--image", picture, "--image", other, "-p", "What is it?")
    assert both["prompt_tokens"] == alone["prompt_tokens"] + 2 * (2 + 6)
    assert (
        asked(cli, model, "--mmproj", tower_of(model), "--image", picture, "-p", "What is it?")["ids"] == first["ids"]
    )


def test_a_picture_from_a_pipe(cli: Cli, model: Path, picture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    want = asked(cli, model, "--image", picture, "-p", "What is it?")["ids"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(picture.read_bytes())))
    assert asked(cli, model, "--image", "-", "-p", "What is it?")["ids"] == want


def test_a_saved_chat_keeps_its_pictures(cli: Cli, model: Path, plain: Path, picture: Path, tmp_path: Path) -> None:
    state = tmp_path / "chat.state"
    first = asked(cli, model, "--image", picture, "-p", "What is it?", "--state", state)
    picture.unlink()
    second = asked(cli, model, "-p", "And?", "--state", state)
    assert second["prompt_tokens"] < first["prompt_tokens"], "the picture is not read again"
    code, _, err = cli("run", model, "--no-mmproj", "-p", "And?", "--state", state)
    assert code == 1 and "this chat has a picture (a b.png) that cannot be read" in err and "switched off" in err


def test_refusals(cli: Cli, model: Path, plain: Path, picture: Path, tmp_path: Path) -> None:
    def refused(*words: object) -> str:
        code, out, err = cli("run", *words)
        assert code in (1, 2) and not out
        return err.strip().splitlines()[-1]

    question = ("--image", picture, "-p", "What?")
    assert "plain.gguf reads no pictures: no file with a vision tower" in refused(plain, *question)
    assert refused(model, "--no-mmproj", *question) == "error: --image and --no-mmproj are both given. Use one of them."
    assert "--mmproj and --no-mmproj" in refused(model, "--no-mmproj", "--mmproj", tower_of(model), "-p", "What?")
    assert "no such file" in refused(model, "--mmproj", tmp_path / "nothing", "-p", "What?")
    assert "holds no vision tower" in refused(model, "--mmproj", model, "-p", "What?")
    assert "--image does not go with --raw" in refused(model, "--raw", *question)
    assert "nothing.png: No such file" in refused(model, "--image", tmp_path / "nothing.png", "-p", "What?")
    text = tmp_path / "text.png"
    text.write_text("no picture")
    assert "text.png is text, expected PNG" in refused(model, "--image", text, "-p", "What?")
    assert "--image - is given twice" in refused(model, "--image", "-", "--image", "-", "-p", "What?")
    assert "--image does not go with a file of prompts" in refused(model, "--image", picture, "-f", "x.jsonl")
    assert "continues texts here" in refused("--image", picture, "-p", "What?"), "the bundled model"


class TestConversations:
    def test_branches_and_other_models(self, loaded: LoadedModel) -> None:
        eyes = ModelEyes(loaded)
        chat = Conversation(loaded, SamplingParams(temp=0), loaded.chat_template, 4, eyes=eyes)
        one, two = eyes.read(pixels(1), "one"), eyes.read(pixels(2), "two")
        list(chat.answer("What?", pictures=[one]))
        list(chat.answer("And this?", pictures=[two, one]))
        n_prompt = chat.stats.n_prompt
        assert eyes.open().n_encoded == 2
        assert [turn.title for turn in chat.turns.path] == ["[one] What?", "[two] [one] And this?"]
        list(chat.answer("More?"))
        assert chat.stats.n_prompt - n_prompt <= 20, "neither picture is read again"
        list(chat.edit(2, "And that?"))
        assert [p.title for p in chat.turns.path[-1].pictures] == ["two", "one"]
        list(chat.regenerate())
        assert eyes.open().n_encoded == 2
        other = moved(chat, loaded, SamplingParams(temp=0), loaded.chat_template, eyes)
        assert [p.name for turn in other.turns.path for p in turn.pictures] == [one.name, two.name, one.name]
        with pytest.raises(UsageError, match="turn 1 has a picture"):
            moved(chat, loaded, SamplingParams(temp=0), loaded.chat_template)
        eyes.close()

    def test_stopped_while_the_tower_reads(self, loaded: LoadedModel) -> None:
        eyes = ModelEyes(loaded)
        chat = Conversation(loaded, SamplingParams(temp=0), loaded.chat_template, 4, eyes=eyes)
        picture, stop = eyes.read(pixels(1)), Stop()
        stop.set()
        with loaded.stopped_by(stop):
            assert not list(chat.answer("What?", pictures=[picture]))
        assert not chat.turns.all and chat.result is None and eyes.open().n_encoded == 0
        assert list(chat.answer("What?", pictures=[picture])) and len(chat.turns.all) == 1
        eyes.close()

    def test_saved_and_loaded(self, loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        eyes = ModelEyes(loaded)
        chat = Conversation(loaded, SamplingParams(temp=0), loaded.chat_template, 4, eyes=eyes)
        file = png(pixels(3), "JPEG")
        list(chat.answer("What?", pictures=[eyes.read(file, "a.jpg"), eyes.read(pixels(4), "array")]))
        chat.save(tmp_path / "chat")
        ids = chat.turns.path[-1].ids
        again = Conversation(loaded, SamplingParams(temp=0), loaded.chat_template, 4, eyes=eyes)
        again.load(tmp_path / "chat")
        (turn,) = again.turns.path
        assert turn.ids == ids and [p.name for p in turn.pictures] == [p.name for p in chat.turns.path[0].pictures]
        assert turn.pictures[0].file == file
        list(again.answer("More?"))
        assert again.stats.n_reused >= len(ids) - 1
        monkeypatch.setattr("hybrid.infer.answers.conversations.saved_pictures.MOST_BYTES", len(file))
        with pytest.raises(StateError, match="cannot be saved with the picture array: its pictures have more than"):
            chat.save(tmp_path / "chat")
        blind = Conversation(loaded, SamplingParams(temp=0), loaded.chat_template, 4)
        with pytest.raises(StateError, match=r"a picture \(a.jpg\), and nothing reads pictures here"):
            blind.load(tmp_path / "chat")
        eyes.close()


class TestFilesOfPrompts:
    def line(self, *parts: object) -> str:
        given = [part if isinstance(part, dict) else {"type": "image", "image": str(part)} for part in parts]
        return json.dumps({"messages": [{"role": "user", "content": [*given, {"type": "text", "text": "What?"}]}]})

    def test_paths_are_relative_to_the_file(self, cli: Cli, model: Path, tmp_path: Path) -> None:
        (tmp_path / "sub").mkdir()
        for n in (1, 2):
            (tmp_path / "sub" / f"{n}.png").write_bytes(png(pixels(n)))
        file = tmp_path / "p.jsonl"
        names = ["sub/1.png", "sub/2.png", tmp_path / "sub" / "1.png"]
        text = json.dumps({"messages": [{"role": "user", "content": "What?"}]})
        file.write_text("\n".join([*map(self.line, names), text]))
        code, out, err = cli("run", model, "-f", file, "--temp", 0, "-n", 4, "-c", 256)
        assert code == 0, err
        lines = [json.loads(line) for line in out.splitlines()]
        assert lines[0]["text"] == lines[2]["text"] and len({line["key"] for line in lines}) == 4
        assert [line["prompt_tokens"] - lines[3]["prompt_tokens"] for line in lines] == [8, 8, 8, 0]
        one = asked(cli, model, "--image", tmp_path / "sub" / "2.png", "-p", "What?")
        assert one["text"] == lines[1]["text"]

    @pytest.mark.parametrize(
        ("part", "said"),
        [
            ({"type": "image", "image": "http://a/b.png"}, "http://a/b.png: expected the path of a picture"),
            ({"type": "image", "image": "data:image/png;base64,AAAA"}, "expected the path of a picture"),
            ({"type": "image"}, 'a part of the type image has no path in "image"'),
            (
                {"type": "image_url", "image_url": {"url": "a.png"}},
                "a part image_url is not read from a file of prompts",
            ),
            ({"type": "image", "image": "nothing.png"}, "nothing.png: No such file"),
            ({"type": "image", "image": "p.jsonl"}, "p.jsonl is"),
        ],
    )
    def test_refusals_name_the_line(self, cli: Cli, model: Path, tmp_path: Path, part: dict, said: str) -> None:
        file = tmp_path / "p.jsonl"
        file.write_text(f'"A text"\n{self.line(part)}\n')
        code, out, err = cli("run", model, "-f", file, "-c", 256)
        assert code == 2 and not out and "line 2: " in err and said in err

    def test_a_model_without_eyes(self, cli: Cli, plain: Path, picture: Path, tmp_path: Path) -> None:
        file = tmp_path / "p.jsonl"
        file.write_text(self.line(picture))
        code, _, err = cli("run", plain, "-f", file, "-c", 256)
        assert code == 2 and "line 1: plain.gguf reads no pictures" in err

    def test_workers_read_none(self, loaded: LoadedModel, picture: Path) -> None:
        with pytest.raises(UsageError, match="p, line 1: workers of a cluster read no pictures"):
            read_prompts(self.line(picture), "p", loaded)

    def test_a_picture_that_changes(self, loaded: LoadedModel, picture: Path) -> None:
        eyes = ModelEyes(loaded)
        reader = LinePictures(eyes, picture.parent)
        (message,) = reader.read([{"role": "user", "content": [{"type": "image", "image": picture.name}]}])
        seen = message["content"][0]["image"]
        assert seen.file == picture.read_bytes() and seen.source == picture
        picture.write_bytes(png(pixels(9)))
        with pytest.raises(PictureError, match="has changed since it was first read"):
            seen.runs()
        eyes.close()
