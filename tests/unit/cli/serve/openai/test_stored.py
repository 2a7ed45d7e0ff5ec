"""Stored responses: bounds, owners, and files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hybrid.cli.serve.client import owner_of
from hybrid.cli.serve.openai import stored as module
from hybrid.cli.serve.openai.stored import ENTRY_BYTES, StoredResponse, StoredResponses, as_json
from hybrid.infer.memory.documents import write_document

ANN, BEN = owner_of(b"ann", ""), owner_of(b"ben", "")


def name_of(number: int) -> str:
    return f"resp_{number:032x}"


def made(number: int, previous: int | None = None, owner: bytes = ANN, size: int = 0, **more: Any) -> StoredResponse:
    before = None if previous is None else name_of(previous)
    said = [{"id": f"msg_{number}"}]
    response = {"id": name_of(number), "status": "completed", "output": said, "previous_response_id": before, **more}
    return StoredResponse.of(response, owner, as_json([{"text": "ü" * size}]))


def held(responses: StoredResponses, owner: bytes = ANN, most: int = 50) -> list[int]:
    """Without counting them as used."""
    return [number for number in range(most) if name_of(number) in responses._held]


def test_a_line_is_what_a_response_continues() -> None:
    responses = StoredResponses()
    for one in (made(1), made(2, 1), made(3, 2), made(4, 2)):
        responses.put(one)
    assert [one.id for one in responses.line(name_of(4), ANN)] == [name_of(1), name_of(2), name_of(4)]
    assert responses.get(name_of(4), BEN) is None and not responses.remove(name_of(4), BEN)
    with pytest.raises(KeyError, match=name_of(4)):
        responses.line(name_of(4), BEN)
    assert responses.remove(name_of(2), ANN)
    with pytest.raises(KeyError, match=name_of(2)):
        responses.line(name_of(4), ANN)
    assert len(responses) == 3


def test_what_is_continued_outlives_what_continues_it() -> None:
    each = made(1, 1, size=500).nbytes
    responses = StoredResponses(budget=4 * each)
    for one in (made(1, size=500), made(2, 1, size=500), made(3, size=500), made(4, 1, size=500)):
        responses.put(one)
    responses.put(made(5, size=500))
    assert held(responses) == [1, 3, 4, 5], "the second was used least recently: the first is used by the fourth"
    responses.get(name_of(3), ANN)
    responses.put(made(6, size=500))
    assert held(responses) == [1, 3, 5, 6]
    responses.put(made(7, size=5000))
    assert held(responses) == [], "one that is larger than all may be together"
    assert responses.nbytes == 0


def test_the_largest_key_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    responses = StoredResponses(budget=6 * ENTRY_BYTES)
    responses.put(made(1, owner=BEN))
    for number in range(2, 9):
        responses.put(made(number))
    assert held(responses)[0] == 1 and len(responses) == 5
    monkeypatch.setattr(module, "MOST_RESPONSES", 3)
    responses.put(made(9))
    assert held(responses) == [1, 8, 9]


def test_items_by_their_ids() -> None:
    responses = StoredResponses()
    responses.put(made(1))
    responses.put(made(1))
    assert responses.item("msg_1", ANN) == {"id": "msg_1"}
    assert responses.item("msg_1", BEN) is None and responses.item("msg_2", ANN) is None
    responses.remove(name_of(1), ANN)
    assert responses.item("msg_1", ANN) is None


def test_an_update_is_of_what_is_there() -> None:
    responses = StoredResponses()
    responses.update(made(1))
    assert not len(responses)
    responses.put(made(1, size=9))
    responses.update(made(1, status="failed"))
    found = responses.get(name_of(1), ANN)
    assert found is not None and found.as_object()["status"] == "failed" and responses.nbytes == found.nbytes


def test_files(tmp_path: Path) -> None:
    """They come back as they were, and a response that ran has failed; what was dropped has no file."""
    folder = tmp_path / "responses"
    first = StoredResponses(folder, warn=pytest.fail)
    assert folder.stat().st_mode & 0o077 == 0
    odd = made(1, text="\ud800 \u2028 ü")
    for one in (odd, made(2, 1, BEN), made(3, status="in_progress"), made(4)):
        first.put(one)
    first.remove(name_of(4), ANN)
    first.close()
    assert len(list(folder.iterdir())) == 3
    again = StoredResponses(folder, warn=pytest.fail)
    assert again.get(name_of(1), ANN) == odd
    assert again.get(name_of(2), BEN) == made(2, 1, BEN)
    failed = again.get(name_of(3), ANN)
    assert failed is not None and failed.as_object()["status"] == "failed"
    again.close()
    smaller = StoredResponses(folder, budget=3 * ENTRY_BYTES, warn=pytest.fail)
    smaller.close()
    assert len(smaller) == len(list(folder.iterdir())) == 2


def test_the_order_of_files(tmp_path: Path) -> None:
    """A file is older than those that continue it: it stays all the same."""
    first = StoredResponses(tmp_path)
    for one in (made(1), made(2), made(3, 1)):
        first.put(one)
    first.close()
    for at in (1, 2, 3):
        os.utime(tmp_path / f"{name_of(at)}.json", (at, at))
    again = StoredResponses(tmp_path, budget=3 * ENTRY_BYTES)
    again.close()
    assert held(again) == [1, 3]


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {},
        {"id": "../../x"},
        {"owner": "no"},
        {"previous": 7},
        {"previous": "x"},
        {"input": {}},
        {"input": ["x"]},
        {"response": None},
        {"response": {"id": name_of(2), "status": "completed", "output": []}},
        {"response": {"id": name_of(1), "status": 3, "output": []}},
        {"response": {"id": name_of(1), "status": "completed", "output": "x"}},
        {"response": {"id": name_of(1), "status": "completed", "output": [{}]}},
    ],
)
def test_other_json_is_refused(wrong: Any, tmp_path: Path) -> None:
    right = json.loads(made(1).document())
    path = tmp_path / f"{name_of(1)}.json"
    write_document(path, as_json({**right, **wrong} if wrong else wrong))
    said: list[str] = []
    StoredResponses(tmp_path, warn=said.append).close()
    assert len(said) == 1 and "is damaged" in said[0] and not path.exists()


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / f"{name_of(1)}.json"
    write_document(path, made(1).document())
    whole = path.read_bytes()
    for data in (b"", whole[:-1], whole.replace(b"completed", b"complexed"), whole[:20]):
        path.write_bytes(data)
        said: list[str] = []
        responses = StoredResponses(tmp_path, warn=said.append)
        responses.close()
        assert len(said) == 1 and not len(responses) and not path.exists()
    write_document(tmp_path / f"{name_of(2)}.json", made(1).document())
    (tmp_path / "other").write_bytes(b"not ours")
    said = []
    StoredResponses(tmp_path, warn=said.append).close()
    assert len(said) == 1 and [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_circle_of_files_ends(tmp_path: Path) -> None:
    for one in (made(1, 2), made(2, 1)):
        write_document(tmp_path / f"{one.id}.json", one.document())
    responses = StoredResponses(tmp_path)
    with pytest.raises(KeyError):
        responses.line(name_of(1), ANN)
    responses.close()


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said once; the responses are in memory."""

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_document", full)
    said: list[str] = []
    responses = StoredResponses(tmp_path, warn=said.append)
    for number in range(3):
        responses.put(made(number))
    responses.close()
    responses.put(made(4))
    assert len(said) == 1 and "No space left" in said[0] and len(responses) == 4


def test_a_new_folder_is_private(tmp_path: Path) -> None:
    StoredResponses(tmp_path / "kept" / "responses")
    for folder in (tmp_path / "kept", tmp_path / "kept" / "responses"):
        assert folder.stat().st_mode & 0o777 == 0o700
