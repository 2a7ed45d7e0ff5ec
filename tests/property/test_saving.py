"""A service with a prompt cache on disk: after any end another process continues from its texts."""

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from test_conformance import SHAPES, tokens
from test_service import WAIT, Asked

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch import saving
from hybrid.infer.answers.batch.batcher import answer_all
from hybrid.infer.answers.batch.saving import Document, Saver, open_store
from hybrid.infer.answers.batch.service import ClosedError, Service
from hybrid.infer.faults import SidePath
from hybrid.infer.memory import store_file, store_files
from hybrid.infer.memory.attention import AttentionMemory
from hybrid.infer.memory.cache_store import CacheStore, Fetch
from hybrid.infer.memory.prefix_tree import Checkpoint
from hybrid.infer.memory.recurrent import RecurrentMemory
from hybrid.infer.memory.store_lister import Lister
from hybrid.infer.memory.store_listing import Unlisted
from hybrid.quant.ggml.errors import StateError, UsageError
from hybrid.quant.ggml.types import FileType

pytestmark = pytest.mark.exhaustive

BUDGET = 64 << 20


@pytest.fixture(params=["jamba", "llama"])
def model(random_model: Callable[..., Path], request: pytest.FixtureRequest) -> Iterator[LoadedModel]:
    path = random_model(SHAPES[request.param], FileType.Q8_0)
    with LoadedModel.load(path, n_ctx=2048, n_ubatch=256, n_seq_max=4, checkpoint_budget=16 << 20) as loaded:
        yield loaded
        assert loaded.cache is not None and loaded.n_free == 4
        loaded.cache.clear()
        memory = loaded.memory
        assert memory.attention.pool.used == 0 and memory.recurrent.pool.used == 0, "places that nobody gives back"


class Process:
    """A process's view of a folder; a new one begins with empty memory."""

    def __init__(
        self, model: LoadedModel, path: Path, documents: dict[str, Document] | None = None, *, listed: bool = True
    ) -> None:
        assert model.cache is not None
        model.cache.clear()
        self.model, self.warnings = model, []  # type: ignore[var-annotated]
        self.store = open_store(model, path, BUDGET, self.warnings.append)
        self.lister = Lister(self.store.files)
        if listed:
            self.lister.close(WAIT)
        self.service = Service(model, 3, store=self.store)
        self.saver = Saver(self.service, self.store, documents)

    def ask(self, ids: list[int], n: int = 8, owner: bytes = b"") -> tuple[int, list[int]]:
        asked = self.begin(ids, n, owner)
        answer = asked.wait()
        return asked.job.n_known, answer

    def begin(self, ids: list[int], n: int = 8, owner: bytes = b"") -> Asked:
        asked = Asked(self.model, ids, n, remember=True)
        asked.job.owner = owner
        self.service.submit(asked.job)
        return asked

    def close(self) -> None:
        self.service.close()
        self.lister.close(WAIT)
        self.saver.close(WAIT)
        self.store.folder.close()
        assert self.service.fault is None


def alone(model: LoadedModel, ids: list[int], n: int = 8) -> list[int]:
    assert model.cache is not None
    model.cache.clear()
    return answer_all(model, [Asked(model, ids, n).job], 1)[0].ids


def test_a_conversation_goes_on(model: LoadedModel, tmp_path: Path) -> None:
    first = Process(model, tmp_path)
    ids = tokens(1100)
    known, answer = first.ask(ids)
    assert known == 0
    first.close()
    second = Process(model, tmp_path)
    ids += [*answer, *tokens(40, 7)]
    known, answer = second.ask(ids)
    assert known == 1100 + len(answer) - 1, "all but the token that was drawn last"
    assert second.ask(ids)[1] == answer
    second.close()
    assert not second.warnings and answer == alone(model, ids)


def test_texts_of_one_owner_are_nobody_elses(model: LoadedModel, tmp_path: Path) -> None:
    mine, ids = b"m" * 16, tokens(700)
    first = Process(model, tmp_path)
    _, answer = first.ask(ids, owner=mine)
    for owner in (b"", b"o" * 16):
        assert first.ask(ids, owner=owner) == (0, answer), "in memory"
    first.close()
    second = Process(model, tmp_path)
    assert len(second.store.files.index) > 0
    for owner in (b"p" * 16, mine[:15]):
        assert second.ask(ids, owner=owner) == (0, answer), "on disk"
    assert second.ask(ids, owner=mine) == (700 if model.memory.is_recurrent else 699, answer)
    second.service.call(lambda: second.service.forget([*ids, *answer[:-1]], mine)).result(WAIT)
    assert second.ask(ids, owner=b"o" * 16)[0] > 0, "only the text of that owner went"
    second.close()
    third = Process(model, tmp_path)
    assert third.ask(ids, owner=mine)[0] == 0 < third.ask(ids, owner=b"o" * 16)[0]
    third.close()
    assert not second.warnings and not third.warnings


def _copy_unless_gone(source: str, copy: str) -> None:
    """Copy a file that may be renamed or removed between listing and copying."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, copy)


def test_it_is_written_while_answers_go_on(model: LoadedModel, tmp_path: Path) -> None:
    """A copy of the folder, taken while other answers run, is what a killed process leaves."""
    first = Process(model, tmp_path / "a")
    ids = tokens(1100)
    first.ask(ids)
    long = first.begin(tokens(20, 3), 1500)
    end, copy = time.monotonic() + WAIT, tmp_path / "b"
    while True:
        way = first.store.files.index.find(np.array([*ids, 0], np.int32))
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(first.store.folder.path, copy, copy_function=_copy_unless_gone)
        if way is not None and way.position >= len(ids):  # not only pieces of the answer beside it
            break
        assert time.monotonic() < end
        if long.ended.is_set():  # there is never a moment without answers
            long = first.begin(tokens(20, 3), 1500)
        time.sleep(0.05)
    first.service.cancel(long.job)
    first.close()
    second = Process(model, copy)
    longer = [*ids, *tokens(30, 4)]
    known, answer = second.ask(longer)
    assert known >= 1100
    second.close()
    assert answer == alone(model, longer)


def test_whoever_owns_the_memory_only_counts(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that answers copies no arrays and accesses no files: no token waits for that."""
    names: dict[str, set[str]] = {}

    def watched(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def call(*given: object, **more: object) -> object:
            names.setdefault(name, set()).add(threading.current_thread().name)
            return original(*given, **more)

        monkeypatch.setattr(owner, name, call)

    for owner in (AttentionMemory, RecurrentMemory):
        watched(owner, "export")
        watched(owner, "load")
    watched(store_file, "_write_all")
    watched(store_files, "read_arrays")
    first = Process(model, tmp_path)
    ids = tokens(1100)
    first.ask(ids)
    end = time.monotonic() + WAIT
    while first.service.call(lambda: first.store._looked_up.get(_last(model, ids)) is None).result(WAIT):
        assert time.monotonic() < end
        time.sleep(0.02)
    first.close()
    second = Process(model, tmp_path)
    assert second.ask([*ids, 5])[0] == 1100
    second.close()
    assert {"export", "load", "_write_all", "read_arrays"} == names.keys()
    assert not any(name.startswith("hybrid-service") for name in set().union(*names.values())), names


def _last(model: LoadedModel, ids: list[int]) -> Checkpoint:
    assert model.cache is not None
    known = model.cache.find([*ids, 5])
    assert known is not None and known.position == len(ids)
    return known.node.checkpoints[len(ids)]


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, pytest.param(12, marks=pytest.mark.soak)])
def test_many_conversations_at_once(n: int, model: LoadedModel, tmp_path: Path) -> None:
    """Memory holds a fraction, the disk about half, texts fork and grow: every answer is as alone."""
    assert model.cache is not None
    budget, model.cache.budget = model.cache.budget, 1 << 20
    rng = np.random.default_rng(5)
    texts = [tokens(200 + 150 * i, i % 3) for i in range(8)]
    done: list[tuple[list[int], list[int]]] = []
    fetched = 0
    for _ in range(3):
        process = Process(model, tmp_path)
        process.store.files.budget = 3 << 20
        for _ in range(n):
            some = [texts[i] for i in rng.choice(len(texts), 4, replace=False)]
            asked = [process.begin([*ids, *rng.integers(260, 320, 3).tolist()], 6) for ids in some]
            if rng.random() < 0.3:
                process.service.cancel(asked[0].job)
            for one in asked[1:]:
                answer = one.wait()
                done.append((one.job.ids, answer))
                fetched += one.job.n_known
                if len(one.job.ids) < 1900:
                    texts[int(rng.integers(len(texts)))] = [*one.job.ids, *answer]
            assert asked[0].ended.wait(WAIT)
        process.close()
        assert not process.warnings and process.store.files.nbytes <= 3 << 20
    model.cache.budget = budget
    assert fetched > 0
    for ids, answer in done:
        assert alone(model, ids, 6) == answer


def test_others_go_on_while_it_is_read(model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job waits for the disk, its neighbours do not; a cancelled job frees its slot."""
    first = Process(model, tmp_path)
    ids = tokens(900)
    first.ask(ids)
    first.close()
    second = Process(model, tmp_path)
    fetch, may_go, begun = CacheStore.fetch, threading.Event(), threading.Event()

    def slow(self: CacheStore, one: Fetch) -> None:
        begun.set()
        assert may_go.wait(WAIT)
        fetch(self, one)

    monkeypatch.setattr(CacheStore, "fetch", slow)
    longer = [*ids, 5]
    waiting, leaving = second.begin(longer), second.begin([*ids, 6])
    assert begun.wait(WAIT)
    other = second.begin(tokens(30, 2), 30)
    assert len(other.wait()) == 30 and not waiting.ended.is_set()
    second.service.cancel(leaving.job)
    may_go.set()
    answer = waiting.wait()
    assert waiting.job.n_known == 900 and leaving.wait() == [] and leaving.job.result.reason == "interrupt"
    second.close()
    assert answer == alone(model, longer)


@pytest.mark.faults
@pytest.mark.parametrize("broken", ["begin", "fetch", "end"])
def test_faults_in_reading_what_was_saved_cost_no_answer(
    broken: str, model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model processes the text instead."""
    first = Process(model, tmp_path)
    ids = tokens(900)
    first.ask(ids)
    first.close()
    second = Process(model, tmp_path)

    def fail(*_: object) -> object:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(CacheStore, broken, fail)
    asked = [second.begin([*ids, 5 + i]) for i in range(2)]
    answers = [one.wait() for one in asked]
    assert all(one.job.error is None for one in asked)
    assert second.service.is_open and SidePath.all["texts that are kept on disk"].n_faults >= 1
    monkeypatch.undo()
    second.close()
    assert answers == [alone(model, [*ids, 5 + i]) for i in range(2)]


def test_a_text_that_several_need_is_read_once(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Process(model, tmp_path)
    ids = tokens(900)
    first.ask(ids)
    first.close()
    second = Process(model, tmp_path)
    fetch, all_there, read = CacheStore.fetch, threading.Event(), []

    def slow(self: CacheStore, one: Fetch) -> None:
        assert all_there.wait(WAIT)
        read.append(one)
        fetch(self, one)

    monkeypatch.setattr(CacheStore, "fetch", slow)
    asked = [second.begin([*ids, 5 + i]) for i in range(3)]
    assert second.service.call(lambda: len(second.service._reading)).result(WAIT) == 1
    all_there.set()
    for one in asked:
        assert len(one.wait()) == 8 and one.job.n_known == 900
    assert len(read) == 1
    second.close()


def test_damage_while_it_serves(model: LoadedModel, tmp_path: Path) -> None:
    """Damage is reported, and only tokens without another copy are processed again."""
    first = Process(model, tmp_path)
    ids = tokens(1100)
    first.ask(ids)
    first.close()
    second = Process(model, tmp_path)
    for path in second.store.folder.files():
        if path.name.endswith("-1024.kv") or (path.suffix == ".state" and path.stat().st_size > 0):
            data = bytearray(path.read_bytes())
            if int.from_bytes(data[68:72], "little") >= 1100:
                data[-1] ^= 1
                path.write_bytes(data)
    longer = [*ids, 5]
    known, answer = second.ask(longer)
    assert known == 1024
    second.close()
    assert second.warnings and all("damaged" in line and "\n" not in line for line in second.warnings)
    assert answer == alone(model, longer)


def test_closing_while_it_is_read(model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Process(model, tmp_path)
    ids = tokens(900)
    first.ask(ids)
    first.close()
    second = Process(model, tmp_path)
    begun, fetch = threading.Event(), CacheStore.fetch

    def until_it_closes(self: CacheStore, one: Fetch) -> None:
        begun.set()
        while second.service.is_open:
            time.sleep(0.01)
        fetch(self, one)

    monkeypatch.setattr(CacheStore, "fetch", until_it_closes)
    asked = second.begin([*ids, 5])
    assert begun.wait(WAIT)
    second.close()
    assert asked.ended.is_set() and asked.job.result.reason == "interrupt"
    with pytest.raises(ClosedError):
        second.service.submit(asked.job)


def held_up(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> None:
    """The lister waits for the gate before its first file."""
    read_all = Unlisted.read_all

    def later(self: Unlisted, stopped: Callable[[], bool]) -> bool:
        assert gate.wait(WAIT)
        return read_all(self, stopped)

    monkeypatch.setattr(Unlisted, "read_all", later)


def test_it_serves_before_all_files_are_known(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saved text is found by its file names; meanwhile nothing is written or removed, and forgotten texts stay
    forgotten."""
    first = Process(model, tmp_path)
    kept, gone, new = tokens(1100), tokens(700, 5), tokens(600, 9)
    answers = [first.ask(ids)[1] for ids in (kept, gone)]
    first.close()
    gate = threading.Event()
    held_up(monkeypatch, gate)
    second = Process(model, tmp_path, listed=False)
    files = set(second.store.folder.files())
    assert not len(second.store.files.index)
    known, answer = second.ask([*kept, *answers[0], 5])
    assert known == 1100 + len(answers[0]) - 1
    assert second.ask(new)[0] == 0
    assert second.service.call(second.store.next_piece).result(WAIT) is None
    text = [*gone, *answers[1][:-1]]
    second.service.call(lambda: second.service.forget(text)).result(WAIT)
    assert set(second.store.folder.files()) == files
    gate.set()
    second.lister.close(WAIT)
    assert second.store.files.listed and second.ask([*gone, 5])[0] == 0, "what was forgotten"
    second.close()
    third = Process(model, tmp_path)
    known, again = third.ask([*kept, *answers[0], 5])
    assert known >= 1100 + len(answers[0]) and again == answer
    assert third.ask([*new, 5])[0] == 600
    third.close()
    assert not second.warnings and not third.warnings


def test_closing_before_all_files_are_known(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Process(model, tmp_path, {"ledger": Document(lambda: 1, lambda: 1)})
    ids = tokens(1100)
    first.ask(ids)
    first.close()
    gate = threading.Event()
    held_up(monkeypatch, gate)
    second = Process(model, tmp_path, {"ledger": Document(lambda: gate.is_set(), lambda: 2)}, listed=False)
    files = set(second.store.folder.files())
    second.ask(tokens(300, 5))
    second.lister._stop.set()
    gate.set()
    second.close()
    assert not second.store.files.listed and set(second.store.folder.files()) == files and len(files) > 1
    third = Process(model, tmp_path)
    assert third.store.files.read_json("ledger") == 2, "documents do not wait"
    assert third.ask([*ids, 5])[0] == 1100
    third.close()
    assert not second.warnings and not third.warnings


@pytest.mark.faults
def test_a_fault_of_the_lister_ends_saving_alone(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Unlisted, "read_all", fail)
    process = Process(model, tmp_path)
    assert process.ask(tokens(300))[0] == 0 and SidePath.all["listing of saved texts"].n_faults == 1
    process.close()
    assert process.warnings == ["nothing more is saved: the log names the fault"]
    assert not process.store.folder.files()


@pytest.mark.faults
def test_faults_of_the_saver_end_saving_alone(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(model, tmp_path)

    def fail(*_: object) -> bool:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(CacheStore, "write", fail)
    ids, asked = tokens(300), 0
    answer = process.ask(ids)[1]
    while process.saver._thread.is_alive():  # writing each of three texts fails
        assert asked < 100
        process.ask(tokens(20, asked := asked + 1))
        process.saver._thread.join(1)
    assert process.warnings == ["nothing more is saved: the log names the fault"]
    assert process.ask([*ids, 5])[0] >= 300 - 1
    process.service.close()
    process.saver.close(WAIT)
    process.store.folder.close()
    assert answer == alone(model, ids)


def test_documents_are_kept(model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "DOCUMENT_SECONDS", 0.05)
    value = [1]
    document = {"ledger": Document(lambda: len(value), lambda: list(value))}
    process = Process(model, tmp_path, document)
    assert process.store.files.read_json("ledger") is None
    value.append(2)
    end = time.monotonic() + WAIT
    while process.store.files.read_json("ledger") != [1, 2] and time.monotonic() < end:
        time.sleep(0.02)
    monkeypatch.setattr(saving, "DOCUMENT_SECONDS", 1000.0)
    time.sleep(0.4)
    value.append(3)
    process.close()
    assert Process(model, tmp_path).close() is None
    again = Process(model, tmp_path)
    assert again.store.files.read_json("ledger") == [1, 2, 3]
    again.close()


def test_a_full_memory_reads_the_text_instead(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without room for the data on disk the job continues without it."""
    first = Process(model, tmp_path)
    ids = tokens(900)
    first.ask(ids)
    first.close()
    second = Process(model, tmp_path)
    pools = (model.memory.attention.pool, model.memory.recurrent.pool)
    full, takes = threading.Event(), [pool.take for pool in pools]

    def begin(self: CacheStore, given: list[int], owner: bytes) -> Fetch | None:
        def refuse() -> int:
            raise StateError("the memory is full")

        for pool in pools:
            monkeypatch.setattr(pool, "take", refuse)
        try:
            result = original(self, given, owner)
        finally:
            for pool, take in zip(pools, takes, strict=True):
                monkeypatch.setattr(pool, "take", take)
        full.set()
        return result

    original = CacheStore.begin
    monkeypatch.setattr(CacheStore, "begin", begin)
    known, answer = second.ask([*ids, 5])
    assert full.is_set() and known == 0
    second.close()
    assert answer == alone(model, [*ids, 5])


def test_without_a_cache_there_is_nothing_to_keep(random_model: Callable[..., Path], tmp_path: Path) -> None:
    with (
        LoadedModel.load(random_model(SHAPES["jamba"], FileType.Q8_0), n_ctx=64) as model,
        pytest.raises(UsageError, match="the prompt cache in memory, which is off"),
    ):
        open_store(model, tmp_path, BUDGET, print)
    assert not list(tmp_path.iterdir())
