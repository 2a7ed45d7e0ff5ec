"""Saving, restoring and erasing a slot's text over HTTP."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import WAIT, Server

from hybrid.cli.serve.errors import RequestError
from hybrid.cli.serve.llama_server.slots import LONGEST_NAME, file_path
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.saving import open_store
from hybrid.infer.memory.state_file import read_state

pytestmark = pytest.mark.exhaustive

FRANCE, GERMANY = "What is the capital of France?", "What is the capital of Germany?"


@pytest.fixture(scope="module")
def server(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("states")
    with LoadedModel.load(files["q8_0"], n_ctx=512, n_seq_max=4, checkpoint_budget=32 << 20) as model:
        store = open_store(model, folder, 1 << 30, print)
        store.files.list_all()
        server = Server(model, store=store)
        yield server
        server.close()
        store.folder.close()
        assert model.n_free == 4 and model.cache is not None
        model.cache.clear()
        assert model.memory.attention.pool.used == 0 and model.memory.recurrent.pool.used == 0


@pytest.fixture(autouse=True)
def _nothing_known(server: Server) -> None:
    forget(server)


def forget(server: Server) -> None:
    def clear() -> None:
        assert server.model.cache is not None
        server.model.cache.clear()
        server.service.batcher.texts = [(b"", [])] * 4

    server.service.call(clear).result(WAIT)


def complete(server: Server, prompt: object, **more: object) -> tuple[int, str]:
    """The number of reused tokens, and the answer."""
    body = {"prompt": prompt, "max_tokens": 16, "temperature": 0, **more}
    answer = server.http.post("/v1/completions", json=body).json()
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["choices"][0]["text"]


def act(server: Server, action: str, name: str = "one.bin", slot: int = 0, **more: object) -> dict[str, Any]:
    response = server.http.post(f"/slots/{slot}?action={action}", json={"filename": name, **more})
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    return result


def folder(server: Server) -> Path:
    assert server.served.store is not None
    return server.served.store.folder.slots


@pytest.mark.parametrize("kind", ["hybrid", "llama.cpp"])
def test_saved_and_restored(server: Server, kind: str) -> None:
    known, text = complete(server, FRANCE)
    ids = server.model.tokenizer.encode(FRANCE)
    saved = act(server, "save", f"{kind}.bin", format=kind)
    n = len(server.service.batcher.texts[0][1])
    assert known == 0 and len(ids) <= n <= len(ids) + 16
    path = folder(server) / f"{kind}.bin"
    assert saved["n_saved"] == n and saved["n_written"] == path.stat().st_size and saved["timings"]["save_ms"] > 0
    assert (saved["id_slot"], saved["filename"]) == (0, path.name)
    assert path.read_bytes()[:4] == (b"qsgg" if kind == "llama.cpp" else b"hybs")
    whole = server.service.batcher.texts[0][1]
    forget(server)
    assert complete(server, GERMANY)[0] == 0
    restored = act(server, "restore", path.name, slot=2)
    assert (restored["id_slot"], restored["n_restored"], restored["n_read"]) == (2, n, saved["n_written"])
    assert restored["timings"]["restore_ms"] > 0 and server.service.batcher.texts[2][1] == whole
    again, continued = complete(server, [*whole, 300, 301])
    assert again == n
    forget(server)
    assert complete(server, [*whole, 300, 301]) == (0, continued), "the bits of a text that was read anew"
    assert complete(server, FRANCE)[1] == text


def test_a_state_file_is_one_of_the_other_commands(server: Server) -> None:
    complete(server, FRANCE)
    act(server, "save", "two.bin")
    with read_state(folder(server) / "two.bin") as state:
        assert state.header.fingerprint == server.model.fingerprint
    tokens = list(server.service.batcher.texts[0][1])

    def restored() -> list[int]:
        seq = server.model.restore(folder(server) / "two.bin")
        got = list(seq.tokens)
        seq.close(remember=False)
        return got

    assert server.service.call(restored).result(WAIT) == tokens


def test_erased_in_memory_and_on_disk(server: Server) -> None:
    store = server.served.store
    assert store is not None
    shared = FRANCE + " " + GERMANY
    complete(server, FRANCE)
    n = len(server.service.batcher.texts[0][1])

    def write() -> None:
        while (piece := store.next_piece()) is not None:
            store.release(piece, written=store.write(piece))

    server.service.call(write).result(WAIT)
    assert len(store.files.index) > 0
    erased = server.http.post("/slots/0?action=erase").json()
    assert erased == {"id_slot": 0, "n_erased": n} and len(store.files.index) == 0 and not store.folder.files()
    assert complete(server, FRANCE)[0] == 0, "all of it is read again"
    complete(server, shared)
    ids = server.model.tokenizer.encode(FRANCE)
    assert server.http.post("/slots/0?action=erase").json()["n_erased"] > len(ids)
    assert complete(server, FRANCE)[0] == len(ids), "what another text begins with stays"
    act(server, "erase", slot=3)


def test_a_conversation_that_is_dropped_is_not_on_disk(server: Server) -> None:
    store = server.served.store
    assert store is not None

    def write() -> None:
        while (piece := store.next_piece()) is not None:
            store.release(piece, written=store.write(piece))

    complete(server, FRANCE)
    longer = complete(server, FRANCE + " " + GERMANY)
    server.service.call(write).result(WAIT)
    assert len(store.files.index) > 0
    for entry in server.http.get("/v1/conversations").json()["data"]:
        server.http.delete(f"/v1/conversations/{entry['id']}")
    assert len(store.files.index) == 0 and not store.folder.files()
    assert complete(server, FRANCE + " " + GERMANY) == (0, longer[1])


def test_a_slot_in_use_is_waited_for(server: Server) -> None:
    """llama-server also delays the action."""
    with server.http.stream(
        "POST", "/v1/completions", json={"prompt": FRANCE, "max_tokens": 200, "ignore_eos": True, "stream": True}
    ) as response:
        lines = response.iter_lines()
        next(lines)
        done: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: done.append(act(server, "save", "busy.bin")))
        thread.start()
        for _ in lines:
            pass
        thread.join(WAIT)
    assert done[0]["n_saved"] >= 200


def test_what_is_refused(server: Server) -> None:
    complete(server, FRANCE)
    act(server, "save")
    for slot in ("4", "-1", "x", "1e9", "99999999999999999999", "٣"):
        assert "no slot" in str(server.error(400, f"/slots/{slot}?action=save", {"filename": "a"})["message"])
    for query in ("", "?action=", "?action=load"):
        assert "action: expected save" in str(server.error(400, f"/slots/0{query}", {"filename": "a"})["message"])
    error = server.error(400, "/slots/0?action=restore", {"filename": "absent.bin"})
    assert error["message"] == "filename: there is no file 'absent.bin'" and error["param"] == "filename"
    assert "has no text yet" in str(server.error(400, "/slots/3?action=save", {"filename": "a"})["message"])
    for body in ({}, {"filename": 3}, {"filename": "a", "format": "zip"}, [], b"x"):
        server.error(400, "/slots/0?action=save", body)
    data = (folder(server) / "one.bin").read_bytes()
    for damaged in (data[:-1], data[:300] + b"\xff" + data[301:], b"", b"qsgg" + data[4:], b"hybstate"):
        (folder(server) / "damaged.bin").write_bytes(damaged)
        message = str(server.error(400, "/slots/0?action=restore", {"filename": "damaged.bin"})["message"])
        assert "damaged.bin" in message and "/" not in message.replace("16/32", ""), message
    server.error(404, "/slots/0/1?action=save", {"filename": "a"})
    assert server.http.get("/slots/0?action=save").status_code == 405


def test_names_stay_in_the_folder(server: Server, tmp_path: Path) -> None:
    complete(server, FRANCE)
    before = {path.name for path in folder(server).iterdir()}
    bad = [
        "", ".", "..", "../x", "a/../../x", "/etc/passwd", "a/b", "\\x", "..\\x", "a\0b", "a\nb", ".hidden", "~root",
        "nul", "CON.bin", "com1.txt", "x" * (LONGEST_NAME + 1), "a:b", "C:x", "ä", "a\u202eb", "a ", "a.", "-rf",
        "\ud800",
    ]  # fmt: skip
    for name in bad:
        for action in ("save", "restore"):
            error = server.error(400, f"/slots/0?action={action}", {"filename": name})
            assert str(error["message"]).startswith("filename: expected a plain name"), name
    (tmp_path / "outside").write_text("mine")
    (folder(server) / "link").symlink_to(tmp_path / "outside")
    (folder(server) / "folder").mkdir()
    os.mkfifo(folder(server) / "pipe")
    for name in ("link", "folder", "pipe"):
        for action in ("save", "restore"):
            error = server.error(400, f"/slots/0?action={action}", {"filename": name})
            assert error["message"] == f"filename: '{name}' is not a regular file"
    assert (tmp_path / "outside").read_text() == "mine"
    for name in ("link", "pipe"):
        (folder(server) / name).unlink()
    (folder(server) / "folder").rmdir()
    assert {path.name for path in folder(server).iterdir()} == before
    assert file_path(tmp_path, "slot-1_a b.bin") == tmp_path / "slot-1_a b.bin"
    with pytest.raises(RequestError, match="plain name"):
        file_path(tmp_path, "a?b")


def test_a_full_disk_and_a_full_folder(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from hybrid.infer.memory import state_file

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    complete(server, FRANCE)
    with monkeypatch.context() as patch:
        patch.setattr(state_file, "replace_file", full)
        message = server.error(400, "/slots/0?action=save", {"filename": "full.bin"})["message"]
    assert message == "full.bin: cannot be written: No space left on device."
    act(server, "save")
    assert server.served.store is not None
    monkeypatch.setattr(server.served.store.files, "budget", 1000)
    message = server.error(507, "/slots/0?action=save", {"filename": "more.bin"})["message"]
    assert "this server allows 1000 B" in str(message) and not (folder(server) / "more.bin").exists()


def test_another_model_and_too_little_memory(
    server: Server, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoadedModel.load(files["bf16"], n_ctx=64) as other:
        seq = other.sequence()
        seq.prefill([1, 300, 301])
        seq.save(folder(server) / "other.bin")
    message = str(server.error(400, "/slots/0?action=restore", {"filename": "other.bin"})["message"])
    assert message.startswith("other.bin was saved by ") and "not by this model" in message
    complete(server, FRANCE)
    act(server, "save")
    assert server.model.cache is not None
    monkeypatch.setattr(server.model.cache, "budget", 1000)
    message = str(server.error(400, "/slots/0?action=restore", {"filename": "one.bin"})["message"])
    assert message.startswith("one.bin needs ") and "the limit is 1000 B" in message


def test_without_a_folder(files: dict[str, Path]) -> None:
    with LoadedModel.load(files["q8_0"], n_ctx=64, n_seq_max=4, checkpoint_budget=1 << 20) as model:
        server = Server(model)
        error = server.error(501, "/slots/0?action=save", {"filename": "a"})
        assert error["message"] == "this server keeps no states. Start it with --state-dir"
        server.close()
