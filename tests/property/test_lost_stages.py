"""A model in stages after a lost stage or a stop: the answers are the whole model's."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from staged_models import JAMBA, OPTIONS, RandomModel, check_same, rows, tokens

from hybrid.infer import Interrupted, LoadedModel, LoadOptions, Sequence, Stop, Work
from hybrid.infer.stages.line import LineHere, Ticket
from hybrid.infer.stages.loading import load_staged
from hybrid.infer.stages.orders import Order, Pass
from hybrid.infer.stages.stage_files import StageFiles, sweep
from hybrid.quant.ggml.errors import LostStageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def jamba(random_model: RandomModel) -> Path:
    return random_model(JAMBA, FileType.Q8_0)


class Broken(LineHere):
    """A line on which some passes fail; passes are counted from 0."""

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.n, self.at, self.opened = 0, set[int](), 0
        self.error: BaseException = LostStageError("worker 2 has gone.")

    def open(self, openings: object, stop: Stop | None = None) -> None:
        super().open(openings, stop)  # type: ignore[arg-type]
        self.opened += 1

    def put(self, order: Order) -> Ticket:
        ticket = super().put(order)
        if isinstance(order.what, Pass):
            self.n += 1
            if self.n - 1 in self.at:
                return _Never(self.error)
        return ticket


class _Never:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def wait(self, stop: Stop | None) -> list:
        raise self.error


@contextmanager
def lost_at(path: Path, options: LoadOptions) -> Iterator[tuple[LoadedModel, Broken, list[str]]]:
    lines, said = list[Broken](), list[str]()

    def line(gguf: GGUFFile) -> Broken:
        lines.append(Broken(gguf))
        return lines[-1]

    with load_staged(path, options, 2, line, said.append) as model:
        yield model, lines[0], said


@pytest.fixture
def broken(jamba: Path) -> Iterator[tuple[LoadedModel, Broken, list[str]]]:
    with lost_at(jamba, replace(OPTIONS, n_ubatch=32)) as made:
        yield made


def answered(model: LoadedModel, seq: Sequence, ids: list[int], n: int) -> list[int]:
    """n greedy tokens."""
    logits, drawn = seq.prefill(ids), list[int]()
    for _ in range(n):
        drawn.append(int(logits.argmax()))
        logits = seq.decode(drawn[-1])
    return drawn


@pytest.mark.parametrize("at", [{0}, {2}, {6}, {9}, {4, 8}])
def test_a_lost_stage_costs_a_line(at: set[int], jamba: Path, broken: tuple[LoadedModel, Broken, list[str]]) -> None:
    """In the prompt, in the answer, or while tokens are processed again."""
    model, line, said = broken
    line.at = at
    with LoadedModel.load(jamba, OPTIONS) as whole:
        expected = answered(whole, whole.sequence(), tokens(100), 12)
    beside = model.sequence()
    assert answered(model, model.sequence(), tokens(100), 12) == expected
    assert line.opened == 1 + len(at) and said[::2] == ["worker 2 has gone. Waiting for one in its place."] * len(at)
    assert sum(text.startswith("All stages are there. Reading ") for text in said[1::2]) >= len(at) - 1
    assert beside.n_past == 0


# states with keys and values, keys and values only, states only
@pytest.mark.parametrize("family", ["jamba", "gemma3", "rwkv7"])
def test_what_was_kept_is_not_read_again(family: str, jamba: Path, random_model: RandomModel) -> None:
    """In a prompt, in an answer, and for a text without a sequence."""
    path = jamba if family == "jamba" else random_model(family, FileType.F32)
    options = replace(OPTIONS, n_ctx=1300, checkpoint_budget=32 << 20, n_ubatch=64)
    ids, other = tokens(1100), tokens(900, 4)
    with LoadedModel.load(path, options) as whole:
        seq = whole.sequence()
        expected = [answered(whole, seq, ids, 8), answered(whole, whole.sequence(), other, 3)]
    with lost_at(path, options) as (model, line, said):
        seq, beside = model.sequence(), model.sequence()
        found = answered(model, beside, other, 3)
        beside.close()
        line.at = {line.n + 10}  # beyond the first checkpoint
        assert answered(model, seq, ids[:1030], 0) == []
        line.at = {line.n + 3}
        assert [answered(model, seq, ids[1030:], 8), found] == expected
        again = [int(text.split()[5]) for text in said[1::2]]
        assert len(again) == 2 and again[0] < 520 and again[1] < 80 and said[1].endswith("tokens again.")
        assert model.sequence().resume(other) >= 899


@pytest.mark.parametrize("family", ["jamba", "gemma3"])
def test_what_the_cache_let_go_of_is_kept_anew(family: str, jamba: Path, random_model: RandomModel) -> None:
    """The same page and row, in which their sequence has meanwhile written more."""
    path, ids = jamba if family == "jamba" else random_model(family, FileType.F32), tokens(60)
    with LoadedModel.load(path, OPTIONS) as whole:
        seq = whole.sequence()
        seq.prefill(ids)
        expected = seq.decode(300)
    with lost_at(path, OPTIONS) as (model, line, said):
        assert model.cache is not None
        seq = model.sequence()
        seq.prefill(ids[:40])
        model.cache.clear()
        for token in ids[40:]:
            seq.decode(token)
        seq.checkpoint()
        line.at = {line.n}
        check_same([seq.decode(300)], [expected])
        assert int(said[1].split()[5]) <= 1


@pytest.mark.parametrize("what", ["another machine", "damaged", "a full disk"])
def test_what_one_stage_lacks_is_read_again(what: str, jamba: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, ids = replace(OPTIONS, n_ctx=1300, checkpoint_budget=32 << 20, n_ubatch=64), tokens(1100)
    with LoadedModel.load(jamba, options) as whole:
        expected = answered(whole, whole.sequence(), ids, 4)
    if what == "a full disk":
        monkeypatch.setattr(StageFiles, "_write", full)
    with lost_at(jamba, options) as (model, line, said):
        seq = model.sequence()
        seq.prefill(ids[:1090])
        folder = Path(line.stages[1].files.folder)
        if what == "another machine":
            shutil.rmtree(folder)
        elif what == "damaged":
            newest = max(folder.glob("row-*"), key=lambda path: path.stat().st_mtime_ns)
            newest.write_bytes(newest.read_bytes()[:-9] + bytes(9))
        else:
            assert "no checkpoints are kept there: No space left" in line.stages[0].files.trouble
        line.at = {line.n}
        assert answered(model, seq, ids[1090:], 4) == expected
        n = int(said[1].split()[5])
        assert n == 66 if what == "damaged" else n == 1090
        line.at = {line.n}  # tokens processed again were kept again, if possible
        seq.decode(300)
        assert int(said[3].split()[5]) < 1104 or what == "a full disk"


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_as_much_is_kept_as_the_cache_holds(jamba: Path) -> None:
    """Whatever texts come and go; nothing at the end."""
    options = replace(OPTIONS, n_ctx=700, checkpoint_budget=300 << 10, n_ubatch=64)
    with lost_at(jamba, options) as (model, line, _):
        assert model.cache is not None
        for seed in range(8):
            seq = model.sequence()
            answered(model, seq, tokens(300 + 40 * seed, seed), 2)
            if seed % 3:
                seq.shift(4, 6)
            seq.close(remember=seed % 2 == 0)
        seq = model.sequence()
        seq.prefill(tokens(20))
        pages = {page for node in model.cache.tree for page in node.pages}
        assert 0 < len(pages) < 8 * 700 // 64 and model.cache.given_up
        for stage in line.stages:
            names = [path.name.split("-") for path in stage.files.folder.iterdir()]
            assert sorted(int(n) for what, n, _ in names if what == "page") == sorted(pages)
            assert sum(what == "row" for what, *_ in names) == model.cache.n_checkpoints
        folders = [stage.files.folder for stage in line.stages]
    assert not any(folder.parent.exists() for folder in folders)


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_nothing_is_kept_where_others_can_write(mode: int, jamba: Path, tmp_path: Path) -> None:
    """Other users could replace the folder and get people's texts."""
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages").chmod(mode)
    files = StageFiles(tmp_path / "stages" / "run", range(3))
    assert "no checkpoints are kept there: the folder above can be written by others" in files.trouble
    with LoadedModel.load(jamba, OPTIONS) as model:
        (files.folder / "page-1-1").write_bytes(b"of somebody else")
        files.save(model.memory, [(0, 0)], [(0, 0)])
        assert files.places(model.memory) == ([], [])
    files.close(remove=True)
    assert [path.name for path in files.folder.iterdir()] == ["page-1-1"]


def test_what_a_killed_run_has_left_is_swept(tmp_path: Path) -> None:
    runs = [StageFiles(tmp_path / name, range(3)) for name in ("old", "open", "young")]
    for run, is_open in zip(runs, (False, True, False), strict=True):
        (run.folder / "page-1-1").write_bytes(b"left")
        if not is_open:
            run.close(remove=False)
    for name in ("old", "open"):
        for path in (tmp_path / name, *(tmp_path / name).iterdir()):
            os.utime(path, (1e9, 1e9))
    sweep(tmp_path, 1000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["open", "young"]
    runs[1].close(remove=True)
    assert not (tmp_path / "open").exists()
    sweep(tmp_path / "none", 1000)


def test_what_stays_lost_is_an_error(broken: tuple[LoadedModel, Broken, list[str]]) -> None:
    model, line, said = broken
    line.at = set(range(100))
    with pytest.raises(LostStageError):
        model.sequence().prefill(tokens(50))
    assert 1 <= sum("has gone" in text for text in said) <= 3


def test_moved_text_cannot_be_taken_up(broken: tuple[LoadedModel, Broken, list[str]]) -> None:
    model, line, said = broken
    seq = model.sequence()
    seq.prefill(tokens(50))
    seq.shift(4, 6)
    line.at = {line.n}
    with pytest.raises(LostStageError):
        seq.decode(300)
    assert len(said) == 1 and seq.tokens == []
    assert np.isfinite(seq.prefill(tokens(20))).all()


def test_a_stop_leaves_sequences_as_they_were(jamba: Path, broken: tuple[LoadedModel, Broken, list[str]]) -> None:
    model, line, said = broken
    ids = tokens(120)
    a, b = model.sequence(), model.sequence()
    for seq in (a, b):
        seq.prefill(ids[:40])
    with pytest.raises(Interrupted):
        line.error, line.at = Interrupted(), {line.n + 2}
        model.eval([Work(a, ids[40:], "all"), Work(b, ids[40:90], "all")])
    assert a.tokens == b.tokens == ids[:40] and a.n_past == b.n_past == 40 and not said
    with LoadedModel.load(jamba, OPTIONS) as whole:
        seq = whole.sequence()
        seq.prefill(ids[:40])
        expected = rows(whole, Work(seq, ids[40:], "all"))
    check_same([rows(model, Work(a, ids[40:], "all")), rows(model, Work(b, ids[40:], "all"))], [expected, expected])


def test_a_stop_waits_for_what_is_read_again(broken: tuple[LoadedModel, Broken, list[str]]) -> None:
    model, line, said = broken
    ids = tokens(120)
    a, b = model.sequence(), model.sequence()
    a.prefill(ids[:90])
    b.prefill(ids[20:60])
    logits = []
    for seq, token in ((a, 300), (b, 301)):
        other = seq.copy()
        logits.append(other.decode(token))
        other.close(remember=False)
    shutil.rmtree(line.stages[0].files.folder)

    def stopped(text: str) -> None:
        said.append(text)
        if text.startswith("All"):
            model.stop()

    model.runner.said = stopped  # type: ignore[attr-defined]
    line.at = {line.n}
    with pytest.raises(Interrupted):
        a.decode(300)
    assert len(said) == 2 and [a.tokens, b.tokens] == [ids[:90], ids[20:60]] and [a.n_past, b.n_past] == [90, 40]
    check_same([a.decode(300), b.decode(301)], logits)


def test_places_in_the_memory_do_not_leak(broken: tuple[LoadedModel, Broken, list[str]]) -> None:
    """After stops and losses as many pages and rows are free as before."""
    model, line, _ = broken
    for error in (Interrupted(), LostStageError("gone.")):
        seq = model.sequence()
        seq.prefill(tokens(40))
        line.error, line.at = error, {line.n + 1}
        with suppress(Interrupted):
            model.eval([Work(seq, tokens(90), "none")])
        seq.close(remember=False)
    assert model.cache is not None
    model.cache.clear()
    assert model.memory.attention.pool.used == model.memory.recurrent.pool.used == 0
