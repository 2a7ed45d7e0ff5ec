"""From what a client gave to decoded pictures."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from picture_site import Network, site_of, sized
from seeing_models import pixels, png, seeing_model, tower_of

from hybrid.cli.serve.errors import RequestError
from hybrid.cli.serve.pictures import sight
from hybrid.cli.serve.pictures.parts import GivenPicture
from hybrid.cli.serve.pictures.sight import Sight
from hybrid.infer import LoadedModel
from hybrid.infer.answers.asking.eyes import Eyes
from hybrid.infer.text.stops import GoneError, stopped_by

FILE = png(pixels(1, 54, 72))
TEXT = base64.b64encode(FILE).decode()


@pytest.fixture(scope="module")
def eyes(data_dir: Path) -> Iterator[Eyes]:
    path = seeing_model(data_dir)
    with LoadedModel.load(path, n_ctx=64) as model:
        eyes = Eyes.open(tower_of(path), model)
        yield eyes
        eyes.close()


def given(source: str, *, is_base64: bool = False, place: str = "messages.2.content.1") -> GivenPicture:
    return GivenPicture(place, source, is_base64)


def refused(eyes: Eyes | None, *pictures: GivenPicture, **more: object) -> RequestError:
    with pytest.raises(RequestError) as told:
        Sight(eyes, **more).seen(pictures)  # type: ignore[arg-type]
    assert "\n" not in str(told.value)
    return told.value


def test_owners_have_pictures_of_their_own(eyes: Eyes) -> None:
    given_twice = [given(TEXT, is_base64=True), given(f"data:;base64,{TEXT}")]
    one, same = Sight(eyes).seen(given_twice, b"one")
    (other,) = Sight(eyes).seen(given_twice[:1], b"other")
    (nobody,) = Sight(eyes).seen(given_twice[:1])
    assert one.name == same.name and one.text == same.text
    assert len({one.name, other.name, nobody.name}) == len({one.text, other.text, nobody.text}) == 3
    n = eyes.n_encoded
    ids = [[run.ids for run in picture.runs()] for picture in (one, same, other)]
    assert ids[0] == ids[1] != ids[2] and eyes.n_encoded == n + 2
    assert (one.runs()[0].rows == other.runs()[0].rows).all()
    assert eyes.at_hand(nobody) is None and eyes.at_hand(one) == one.runs()


def test_errors_name_the_place(eyes: Eyes) -> None:
    good = given(TEXT, place="messages.0.content.0")
    for source, says in (
        ("A*", "the picture at messages.2.content.1: its base64 is damaged. Encode the file again."),
        ("AAAA", "the picture at messages.2.content.1 "),
        ("http://pictures.example/", "the picture at messages.2.content.1: this server fetches no pictures"),
        ("blob:http://pictures.example/1", "the picture at messages.2.content.1: its URL is neither data: nor"),
    ):
        error = refused(eyes, good, given(source))
        assert str(error).startswith(says) and error.param == "messages.2.content.1" and error.status == 400
    assert refused(eyes, given("data:;base64,AAAA", is_base64=True)).param == "messages.2.content.1"
    error = refused(None, good, given("?"))
    assert str(error) == "messages.0.content.0: this model takes no pictures: it reads text only"


def test_limits(eyes: Eyes, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [given(TEXT, place=f"messages.{n}.content.0") for n in range(3)]
    assert len(Sight(eyes).seen(many)) == 3
    monkeypatch.setattr(sight, "MOST_BYTES", 2 * len(FILE) + 10)
    assert refused(eyes, *many).param == "messages.2.content.0"
    assert len(Sight(eyes).seen(many[:2])) == 2
    monkeypatch.setattr(sight, "MOST_PICTURES", 1)
    assert "2 pictures, this server takes 1 at a time" in str(refused(eyes, *many[:2]))


def test_nobody_waits_any_more(eyes: Eyes) -> None:
    with stopped_by(lambda: True), pytest.raises(GoneError):
        Sight(eyes).seen([given(TEXT)])


def test_fetching(eyes: Eyes, monkeypatch: pytest.MonkeyPatch) -> None:
    with site_of() as site:
        site.pages = {"/": sized(FILE)}
        url, fetcher = given("HTTP://pictures.example/"), Network(site).fetcher()
        (fetched,) = Sight(eyes, fetcher).seen([url])
        assert fetched.name == Sight(eyes).seen([given(TEXT)])[0].name
        busy = Sight(eyes, fetcher)
        for _ in range(sight.MOST_FETCHED):
            busy._fetching.acquire()
        with pytest.raises(RequestError, match="too many pictures are being fetched") as told:
            busy.seen([url])
        assert told.value.status == 429
        for _ in range(sight.MOST_FETCHED):
            busy._fetching.release()
        assert len(busy.seen([url] * (sight.MOST_FETCHED + 1))) == sight.MOST_FETCHED + 1, "each frees its place"
        monkeypatch.setattr(sight, "MOST_BYTES", 2 * len(FILE) - 1)
        assert f"more than {len(FILE) - 1} bytes" in str(refused(eyes, url, url, fetcher=fetcher))
