"""A prompt cache on disk: after any sequence of keeping, cutting, dropping or killing, found texts have the bits of
texts processed anew."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_conformance import SHAPES, same, tokens

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.saving import model_key
from hybrid.infer.memory import store_file, store_files
from hybrid.infer.memory.cache import LADDER
from hybrid.infer.memory.cache_store import CacheStore
from hybrid.infer.memory.store_folder import StoreFolder, key_of
from hybrid.quant.ggml.errors import HybridError, StateError, UsageError
from hybrid.quant.ggml.types import FileType

pytestmark = pytest.mark.exhaustive

BUDGET = 64 << 20
N_CTX = 2048
FAMILIES = ["jamba", "mamba2", "llama"]  # both kinds of layers, recurrent only, attention only


@dataclass
class Kept:
    """A model with a store in a folder."""

    model: LoadedModel
    path: Path
    budget: int = BUDGET
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.model.cache is not None
        self.cache = self.model.cache
        self.cache.clear()
        self.folder = StoreFolder(self.path, model_key(self.model))
        self.store = CacheStore(self.cache, self.folder, self.budget, self.model.n_vocab, self.warnings.append)
        self.store.files.list_all()

    def write(self, most: int = 1000) -> int:
        """Write new data, at most `most` pieces; return the number written."""
        n = 0
        while n < most and (piece := self.store.next_piece()) is not None:
            n += 1
            self.store.release(piece, written=self.store.write(piece))
        self.store.files.touch()
        return n

    def fetch(self, ids: list[int]) -> int:
        """Load a text's data from disk to memory; return how many of its tokens are known then."""
        while (fetch := self.store.begin(ids)) is not None:
            self.store.fetch(fetch)
            self.store.end(fetch)
            if not fetch.failed:
                break
        known = self.cache.find(ids)
        return known.position if known else 0

    def read(self, ids: list[int]) -> tuple[int, np.ndarray]:
        """The number of known tokens of a text, and the logits after it."""
        seq = self.model.sequence()
        known = seq.resume(ids)
        logits = seq.prefill(ids[known:]) if known < len(ids) else seq.logits
        assert logits is not None
        result = logits.copy()
        seq.close()
        return known, result

    def files(self) -> list[Path]:
        return sorted(self.folder.cache.glob("*.*"))

    def restart(self, path: Path | None = None) -> "Kept":
        """Open the folder, or a copy of it, as another process would."""
        self.folder.close()
        self.cache.clear()
        return Kept(self.model, path or self.path, self.budget)

    def close(self) -> None:
        self.folder.close()
        memory = self.model.memory
        self.cache.clear()
        assert memory.attention.pool.used == 0 and memory.recurrent.pool.used == 0, "places that nobody gives back"


@pytest.fixture(scope="module")
def models(random_model: Callable[..., Path]) -> Iterator[Callable[[str], LoadedModel]]:
    loaded: dict[str, LoadedModel] = {}

    def load(family: str) -> LoadedModel:
        if family not in loaded:
            path = random_model(SHAPES[family], FileType.Q8_0)
            loaded[family] = LoadedModel.load(path, n_ctx=N_CTX, n_ubatch=256, n_seq_max=3, checkpoint_budget=BUDGET)
        return loaded[family]

    yield load
    for model in loaded.values():
        model.close()


@pytest.fixture
def kept(models: Callable[[str], LoadedModel], tmp_path: Path, request: pytest.FixtureRequest) -> Kept:
    return Kept(models(getattr(request, "param", "jamba")), tmp_path / "states")


def alone(model: LoadedModel, ids: list[int]) -> np.ndarray:
    """The logits after a text, processed without a cache."""
    seq = model.sequence()
    logits = model.eval([(_work(seq, ids))])[0].logits
    assert logits is not None
    result = logits[-1].copy()
    seq.close(remember=False)
    return result


def _work(seq: object, ids: list[int]) -> object:
    from hybrid.infer import Work

    return Work(seq, ids, "last")  # type: ignore[arg-type]


@pytest.mark.parametrize("kept", FAMILIES, indirect=True)
def test_texts_survive(kept: Kept) -> None:
    """A stem with three ends: one crosses two rungs of the ladder, another diverges from it within a page."""
    stem = tokens(70)
    texts = [stem + tokens(30, 1), stem + tokens(1400, 2), [*stem, *tokens(1400, 2)[:517], *tokens(40, 3)]]
    for ids in texts:
        kept.read(ids)
    kept.write()
    kept = kept.restart()
    assert not kept.warnings
    for ids in texts:
        assert kept.fetch(ids) == len(ids) - (not kept.model.memory.is_recurrent)
        longer = [*ids, 261, 262]
        known, logits = kept.read(longer)
        assert known == len(ids)
        assert same(logits, alone(kept.model, longer))
    kept.close()


@pytest.mark.parametrize("kept", FAMILIES, indirect=True)
def test_a_text_that_grows_writes_only_what_is_new(kept: Kept) -> None:
    ids = tokens(1300)
    kept.read(ids)
    kept.write()
    before = {path: path.stat().st_ino for path in kept.files()}
    assert kept.write() == 0, "it is all there"
    ids += tokens(300, 5)
    kept.read(ids)
    kept.write()
    now = {path: path.stat().st_ino for path in kept.files()}
    assert before.items() <= now.items(), "no file is written again"
    new = sum(path.stat().st_size for path in now.keys() - before.keys())
    memory = kept.model.memory
    n_states = 2 if memory.is_recurrent else 0  # at 1536, and at the end
    states = n_states * memory.bytes_state_per_seq + 4 * kept.model.n_vocab
    assert new <= 300 * (memory.bytes_kv_per_token + 4) + states + 6 * 100
    kept.close()


@pytest.mark.parametrize("kept", FAMILIES, indirect=True)
def test_known_in_part(kept: Kept) -> None:
    """A text that diverges from one on disk continues from the last checkpoint before, and fetches no later states."""
    ids = tokens(1300)
    kept.read(ids)
    kept.write()
    kept = kept.restart()
    other = [*ids[:1200], *tokens(50, 9)]
    want = 1024 if kept.model.memory.is_recurrent else 1200
    assert kept.fetch(other) == want
    known, logits = kept.read(other)
    assert known == want and same(logits, alone(kept.model, other))
    assert kept.fetch(tokens(100, 8)) == 0
    kept.close()


def test_what_is_in_memory_is_not_read(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the beginning of a text is in memory, only the rest is fetched."""
    ids = tokens(1500)
    kept.read(ids)
    kept.write()
    kept = kept.restart()
    kept.read(ids[:700])
    names: list[str] = []
    read = store_file.read_arrays
    monkeypatch.setattr(store_files, "read_arrays", lambda path, *more: [names.append(path.name), read(path, *more)][1])
    assert kept.fetch(ids) == 1500
    pieces = [name for name in names if name.endswith(".kv")]
    assert [name.split("-")[1] for name in pieces] == ["512.kv", "1024.kv"] and len(names) == 3
    longer = [*ids, 5]
    known, logits = kept.read(longer)
    assert known == 1500 and same(logits, alone(kept.model, longer))
    kept.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, 3), st.integers(1, 1300)),
        st.tuples(st.just("fork"), st.integers(0, 3), st.integers(1, 1300)),
        st.tuples(st.just("write"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("kill"), st.just(0), st.just(0)),
        st.tuples(st.just("squeeze"), st.integers(1, 6), st.just(0)),
        st.tuples(st.just("forget"), st.integers(0, 9), st.integers(0, 1)),
    ),
    min_size=3,
    max_size=10,
)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=20)
@given(steps=STEPS, budget=st.sampled_from([BUDGET, 1_500_000, 300_000]))
def test_any_order_of_things(
    models: Callable[[str], LoadedModel],
    tmp_path_factory: pytest.TempPathFactory,
    family: str,
    steps: list[tuple[str, int, int]],
    budget: int,
) -> None:
    folder = tmp_path_factory.mktemp("store")
    kept = Kept(models(family), folder / "0", budget)
    texts: list[list[int]] = []
    for i, (step, a, b) in enumerate(steps):
        if step == "read":
            ids = tokens(b, a)
        elif step == "fork":
            ids = [*tokens(1300, a)[: b // 2], *tokens(b // 2 + 1, 100 + a)]
        if step in ("read", "fork"):
            kept.fetch(ids)
            kept.read(ids)
            texts.append(ids)
        elif step == "write":
            kept.write(a)
        elif step == "squeeze":  # memory holds little
            for _ in range(a):
                kept.cache._give_up_one()
        elif step == "forget":
            text = np.asarray(texts[a % len(texts)] if texts else [5], np.int32)
            kept.store.files.forget(text, onward=bool(b))
        else:
            copy = folder / str(i + 1)
            shutil.copytree(kept.path, copy)
            kept = kept.restart(copy)
            assert not kept.warnings
        assert kept.store.files.index.nbytes <= budget
        assert kept.store.files.index.nbytes == sum(path.stat().st_size for path in kept.files())
    kept.write()
    kept = kept.restart()
    assert not kept.warnings and kept.store.files.index.nbytes <= budget
    for ids in texts:
        kept.fetch(ids)
        _, logits = kept.read([*ids, 7])
        assert same(logits, alone(kept.model, [*ids, 7]))
    kept.close()


@pytest.mark.parametrize("kept", ["jamba"], indirect=True)
def test_killed_while_it_writes(kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of the folder before and during every write: each has only complete files, and the text up to one of
    them."""
    ids = tokens(1100)
    kept.read(ids)
    copies: list[Path] = []
    write = store_file._write_all

    def copied(fd: int, data: memoryview) -> None:
        copies.append(shutil.copytree(kept.path, tmp_path / f"copy{len(copies)}"))
        write(fd, data[: len(data) // 2])
        copies.append(shutil.copytree(kept.path, tmp_path / f"copy{len(copies)}"))
        write(fd, data[len(data) // 2 :])

    monkeypatch.setattr(store_file, "_write_all", copied)
    kept.write()
    monkeypatch.undo()
    longer = [*ids, 5]
    want, found = alone(kept.model, longer), []
    for copy in copies:
        kept = kept.restart(copy)
        assert not kept.warnings and not list(copy.rglob(store_file.UNFINISHED))
        found.append(kept.fetch(longer))
        assert same(kept.read(longer)[1], want)
    assert set(found) >= {0, 1100} and found[-1] == 1100, found
    kept.close()


@pytest.mark.parametrize("kept", FAMILIES, indirect=True)
def test_damage_is_found(kept: Kept) -> None:
    """Changes of every header byte and some bytes of each file; cut files, other sizes, another file's name."""
    ids = tokens(600)
    kept.read(ids)
    kept.write()
    longer = [*ids, 5]
    want = alone(kept.model, longer)
    rng = np.random.default_rng(1)
    files = [(path, path.read_bytes()) for path in kept.files()]
    assert len(files) == (4 if kept.model.memory.is_recurrent else 2)
    for path, data in files:
        places = [*range(0, 96, 7), *rng.integers(96, len(data), 6).tolist(), len(data) - 1]
        damages = [data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :] for at in places]
        damages += [data[: len(data) // 2], b"", data + b"\0", data[:50], files[0][1] if path != files[0][0] else b"x"]
        for damaged in damages:
            path.write_bytes(damaged)
            kept = kept.restart()
            kept.fetch([*ids[:512], 5])  # so that every file is needed
            kept.fetch(longer)
            assert same(kept.read(longer)[1], want)
            assert len(kept.warnings) == 1 and "\n" not in kept.warnings[0] and path.name in kept.warnings[0]
            assert "damaged" in kept.warnings[0], kept.warnings
            assert path not in kept.files(), "it is removed"
            for name, whole in files:
                name.write_bytes(whole)
    kept = kept.restart()
    assert kept.fetch(longer) == len(ids) and not kept.warnings
    kept.close()


def test_hostile_files(kept: Kept, tmp_path: Path) -> None:
    """Links, folders, pipes and false sizes are not files of the cache; foreign files stay."""
    kept.read(tokens(600))
    kept.write()
    (tmp_path / "secret").write_bytes(b"x" * 1000)
    folder = kept.folder.cache
    (folder / f"{'1' * 32}.state").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / f"{'2' * 32}-0.kv")
    (folder / "mine.txt").write_text("not ours")
    header = store_file.FileHeader(
        store_file.STATE, b"3" * 16, b"3" * 16, 600, 600, np.zeros(0, np.int32), nbytes=1 << 60
    )
    (folder / header.name).write_bytes(store_file._encoded(kept.folder.key, header))
    wrong = np.full(9, 1 << 30, np.int32)
    store_file.write_file(folder, kept.folder.key, store_file.FileHeader(1, b"4" * 16, b"5" * 16, 0, 9, wrong), [])
    kept = kept.restart()
    assert len(kept.warnings) == 1 and "(4 files)" in kept.warnings[0]
    assert (folder / "mine.txt").exists() and (tmp_path / "secret").exists()
    assert kept.fetch([*tokens(600), 1]) == 600
    kept.close()


def test_another_key_is_another_folder(kept: Kept, models: Callable[[str], LoadedModel]) -> None:
    """Files of other models are never used; their folder counts for the budget, and is removed first."""
    ids = tokens(600)
    kept.read(ids)
    kept.write()
    first, size = kept.folder.cache, kept.store.files.nbytes
    kept.folder.close()
    kept.cache.clear()
    other = Kept(models("mamba2"), kept.path, size + 1000)
    assert other.fetch(ids) == 0 and other.store.files.nbytes == size and first.exists()
    other.read(ids)
    other.write()
    assert not first.exists() and other.store.files.nbytes <= size + 1000
    other = other.restart()
    assert other.fetch([*ids, 5]) > 0
    other.close()


def test_the_budget_keeps_what_is_worth_most(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = kept.model.memory
    kept.store.files.budget = 6 * memory.bytes_state_per_seq + 2500 * (memory.bytes_kv_per_token + 4)
    kept.read(tokens(1500))
    kept.write()
    assert kept.store.files.nbytes <= kept.store.files.budget
    kept.store.files.index.use([path.name for path in kept.files()], store_files.now() - 36000)
    for seed in range(5, 9):
        kept.read(tokens(500, seed))
        kept.write()
        assert kept.store.files.nbytes <= kept.store.files.budget
    kept = kept.restart()
    assert kept.fetch([*tokens(500, 8), 1]) == 500
    assert kept.fetch([*tokens(1500), 1]) < 1500, "what was not used for hours"
    kept.close()


@pytest.mark.parametrize("kept", FAMILIES, indirect=True)
def test_a_full_disk(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, no partial file, no attempt before its time, then everything is written."""
    kept.read(tokens(900))
    write, room = store_file._write_all, [60_000]

    def full(fd: int, data: memoryview) -> None:
        part = data[: room[0]]
        write(fd, part)
        room[0] -= len(part)
        if len(part) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    time = [1e9]
    monkeypatch.setattr(store_files, "now", lambda: time[0])
    monkeypatch.setattr(store_file, "_write_all", full)
    kept.write()
    assert len(kept.warnings) == 1 and "No space left on device" in kept.warnings[0]
    files = kept.files()
    assert kept.write() == 0 and kept.store.files.failing and kept.store.files.behind
    for _ in range(3):
        time[0] += 1000
        kept.write()
    assert len(kept.warnings) == 1 and kept.files() == files and not list(kept.path.rglob(store_file.UNFINISHED))
    assert not kept.store.files.write_json("ledger", [1])
    monkeypatch.setattr(store_file, "_write_all", write)
    time[0] += 1000
    kept.write()
    assert not kept.store.files.behind and kept.store.files.write_json("ledger", [1])
    kept = kept.restart()
    assert kept.fetch([*tokens(900), 1]) == 900 and kept.store.files.read_json("ledger") == [1]
    kept.close()


def test_one_process_at_a_time(kept: Kept) -> None:
    with pytest.raises(UsageError, match="for another of its names"):
        StoreFolder(kept.path, kept.folder.key)
    (kept.path / "file").write_text("")
    with pytest.raises(UsageError, match="no states can be kept there: File exists"):
        StoreFolder(kept.path / "file", kept.folder.key)
    kept.close()
    StoreFolder(kept.path, kept.folder.key).close()


def test_models_of_one_process_share_a_folder(kept: Kept) -> None:
    """They share its lock and its budget, and none removes what another uses."""
    other = StoreFolder(kept.path, key_of("another model"))
    other.own_bytes = lambda: 1000
    (other.cache / "x").write_bytes(bytes(100))
    assert kept.folder.others() == [] and kept.store.files.nbytes == kept.store.files.index.nbytes + 1000
    kept.folder.remove_other(other.cache)
    assert (other.cache / "x").exists()
    other.close()
    assert [path for *_, path in kept.folder.others()] == [other.cache]
    kept.folder.remove_other(other.cache)
    assert not other.cache.exists()
    again = StoreFolder(kept.path, key_of("another model"))
    kept.close()  # the lock stays until the last one closes
    again.close()
    StoreFolder(kept.path, kept.folder.key).close()


def test_documents(kept: Kept) -> None:
    value = {"a": [1, "ä\ud800"], "b": None}
    assert kept.store.files.read_json("ledger") is None
    assert kept.store.files.write_json("ledger", value) and kept.store.files.read_json("ledger") == value
    path = kept.folder.cache / "ledger.json"
    data = path.read_bytes()
    for damaged in (
        data[:-1],
        data + b" ",
        data.replace(b"null", b"nul1"),
        b"",
        b"hybrid document 1 zz 3\nabc",
        b"\xff",
    ):
        path.write_bytes(damaged)
        kept.warnings.clear()
        assert kept.store.files.read_json("ledger") is None and len(kept.warnings) == 1, damaged
        with pytest.raises(StateError, match=r"ledger\.json is damaged"):
            kept.folder.read_json("ledger")
    kept.close()


def test_rounded_states_are_refused(random_model: Callable[..., Path], tmp_path: Path) -> None:
    path = random_model(SHAPES["jamba"], FileType.Q8_0)
    with LoadedModel.load(path, n_ctx=64, checkpoint_budget=BUDGET, checkpoint_type="f16") as model:
        assert model.cache is not None
        folder = StoreFolder(tmp_path, model_key(model))
        with pytest.raises(HybridError, match="only exact states can be kept on disk, these are f16"):
            CacheStore(model.cache, folder, BUDGET, model.n_vocab, print)
        folder.close()


def test_many_files_are_known_at_once(kept: Kept) -> None:
    """Thousands of pieces are indexed from their headers alone."""
    import time

    memory = kept.model.memory
    digest, key = b"\0" * 16, kept.folder.key
    before = kept.store.files.index.root()
    nbytes = store_file.layout_bytes(memory.attention.layout(LADDER))
    sparse = np.zeros(LADDER, np.int32)
    for i in range(3000):
        digest = i.to_bytes(16, "big")
        header = store_file.FileHeader(
            store_file.PIECE, before, digest, i * LADDER, (i + 1) * LADDER, sparse, nbytes=nbytes
        )
        data = store_file._encoded(key, header)
        with (kept.folder.cache / header.name).open("wb") as file:
            file.write(data)
            file.truncate(header.size)
        before = digest
    begin = time.perf_counter()
    found = [store_file.read_header(path, key, kept.model.n_vocab) for path in kept.folder.files()]
    seconds = time.perf_counter() - begin
    assert len(found) == 3000 and seconds < 60, seconds  # 0.2 s on an idle machine
    kept = kept.restart()
    assert not kept.files() and not kept.warnings, "pieces without any state lead nowhere"
    kept.close()
