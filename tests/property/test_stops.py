"""A stop or Ctrl-C at any moment ends only its target, and tokens, memory and logits stay consistent."""

import _thread
import ctypes
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from test_conformance import MODELS, same, tokens

from hybrid.infer import Interrupted, LoadedModel, Sequence, Stop, Work
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.engine import engine as engines
from hybrid.infer.kernels.execute import TICKS_PER_US
from hybrid.infer.program.builder import Program
from hybrid.quant.ggml.types import FileType

pytestmark = pytest.mark.exhaustive

N_CTX = 64
BEFORE, ADDED, AFTER = 11, 20, 3  # tokens
IDS = tokens(BEFORE + ADDED + AFTER)

# stopped operations: how many tokens they append, and the call
CALLS: dict[str, tuple[int, Callable[[Sequence, list[int]], np.ndarray | None]]] = {
    "step": (1, lambda seq, ids: seq.decode(ids[0])),
    "few": (4, lambda seq, ids: seq.prefill(ids)),
    "guesses": (4, lambda seq, ids: seq.verify(ids)),
    "prompt": (ADDED, lambda seq, ids: seq.prefill(ids)),
    "nothing wanted": (ADDED, lambda seq, ids: seq.runner.eval([Work(seq, ids, "none")])[0].logits),
    "all logits": (ADDED, lambda seq, ids: seq.logits_of(ids)),
    "likelihood": (ADDED, lambda seq, ids: seq.runner.eval([Work(seq, ids, slice(0, -1), ids[1:])])[0].nll),
}
FAMILIES = [
    "jamba",  # has the layers of the next two
    *(
        pytest.param(name, marks=pytest.mark.matrix)
        for name in ("llama", "mamba", "mamba2", "qwen3next", "rwkv7", "recurrentgemma")
    ),
]


@contextmanager
def at_op(
    model: LoadedModel, number: int, happens: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Call `happens` while op `number` of the programs within the context runs, in one of its shares."""
    done = 0
    run = model.engine._run

    def watched(program: Program, stoppable: bool, stamps: int = 0) -> None:
        nonlocal done
        op, done = number - done, done + len(program.ops)
        if not 0 <= op < len(program.ops):
            return run(program, stoppable, stamps)
        kernel = int(program.records[op, 0])
        call = prototype(kernel)

        def between(fields: int, share: int, shares: int) -> None:
            if share == 0:
                happens()
            call(fields, share, shares)

        callback = prototype(between)
        program.records[op, 0] = ctypes.cast(callback, ctypes.c_void_p).value
        try:
            return run(program, stoppable, stamps)
        finally:
            program.records[op, 0] = kernel

    prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    with monkeypatch.context() as patch:
        patch.setattr(model.engine, "_run", watched)
        yield


@contextmanager
def signal_when(happened: threading.Event, model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """KeyboardInterrupt as from a signal handler: in the caller, when compiled code returns to Python."""
    pool = model.engine.pool
    assert pool is not None
    execute, raised = pool._execute, False

    def watched(*args: int) -> int:
        nonlocal raised
        result = int(execute(*args))
        if happened.is_set() and not raised:
            raised = True
            raise KeyboardInterrupt
        return result

    clock = pool._word(TICKS_PER_US)
    with monkeypatch.context() as patch:
        patch.setattr(pool, "_execute", watched)
        real, clock.value = clock.value, 1  # it runs so fast that the caller returns after almost every op
        try:
            yield
        finally:
            clock.value = real


def memory_of(model: LoadedModel, seq: Sequence) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in model.memory.export(seq.slot)}


@pytest.mark.parametrize(
    ("how", "large"),
    [
        pytest.param("stop", False, id="stop"),
        pytest.param("stop", True, id="stop-large", marks=pytest.mark.matrix),
        pytest.param("signal", False, id="signal", marks=pytest.mark.matrix),
        pytest.param("signal", True, id="signal-large"),
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_stop_at_every_op(
    family: str, how: str, large: bool, random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either the tokens were processed and the result is right, or the memory is unchanged bit for bit.

    large: as in a model whose single tokens take so long that they can also be stopped.
    """
    if large:
        monkeypatch.setattr(engines, "QUICK_BYTES", 0)
    n_stopped = n_read = 0
    with LoadedModel.load(random_model(MODELS[family], FileType.F32), n_ctx=N_CTX, n_ubatch=32, n_threads=2) as model:
        seq = model.sequence()
        for name, (n, call) in CALLS.items():
            added, rest = IDS[BEFORE : BEFORE + n], IDS[BEFORE + n : BEFORE + n + AFTER]
            seq.clear()
            seq.prefill(IDS[:BEFORE])
            before = memory_of(model, seq)
            expected = call(seq, added)
            after = memory_of(model, seq)
            going_on = seq.logits_of(rest)
            for op in count(0, 1 if n == 1 or name == "all logits" else 3):
                stop, happened = Stop(), threading.Event()
                seq.clear()
                seq.prefill(IDS[:BEFORE])

                def happens(stop: Stop = stop, happened: threading.Event = happened) -> None:
                    happened.set()
                    if how == "stop":
                        stop.set()

                signals = signal_when(happened, model, monkeypatch) if how == "signal" else nullcontext()
                got: np.ndarray | None = None
                interrupted: BaseException | None = None
                try:
                    with at_op(model, op, happens, monkeypatch), signals, model.stopped_by(stop):
                        got = call(seq, added)
                except KeyboardInterrupt as error:
                    interrupted = error
                where = f"{name}, op {op}"
                if not happened.is_set():
                    break
                assert seq.n_past == len(seq.tokens) and seq.tokens == IDS[: seq.n_past], where
                assert seq.n_past in (BEFORE, BEFORE + n), where
                read = seq.n_past > BEFORE
                if isinstance(interrupted, Interrupted):
                    assert not read, f"{where}: stopped, and read all the same"
                    n_stopped += 1
                if interrupted is None:
                    assert (expected is None) == (got is None), where
                    assert read and (got is None or same(got, expected)), where
                else:
                    assert seq.logits is None or not read, f"{where}: logits of something else"
                n_read += read
                assert memory_of(model, seq) == (after if read else before), where
                if not read:
                    again = call(seq, added)
                    assert again is None or same(again, expected), f"{where}: read again"
                assert same(seq.logits_of(rest), going_on), f"{where}: going on"
    print(f"{n_stopped} runs stopped, {n_read} read to their end")
    assert n_stopped > 20 and (large or n_read > 5)


def test_a_stop_between_two_runs_is_nobodys(random_model: Callable[..., Path]) -> None:
    with LoadedModel.load(random_model(MODELS["jamba"], FileType.F32), n_ctx=N_CTX, n_threads=2) as model:
        seq = model.sequence()
        expected = seq.prefill(IDS[:ADDED])
        seq.clear()
        model.stop()
        assert same(seq.prefill(IDS[:ADDED]), expected)
        stop = Stop()
        with model.stopped_by(stop):
            seq.clear()
            seq.prefill(IDS[:ADDED])
        stop.set()
        seq.clear()
        assert same(seq.prefill(IDS[:ADDED]), expected)


@pytest.mark.parametrize("call", CALLS)
def test_what_is_stopped_before_it_begins_does_not_begin(call: str, random_model: Callable[..., Path]) -> None:
    n, run = CALLS[call]
    with LoadedModel.load(random_model(MODELS["jamba"], FileType.F32), n_ctx=N_CTX, n_threads=2) as model:
        seq, stop = model.sequence(), Stop()
        seq.prefill(IDS[:BEFORE])
        before = memory_of(model, seq)
        stop.set()
        with model.stopped_by(stop), pytest.raises(Interrupted):
            run(seq, IDS[BEFORE : BEFORE + n])
        assert seq.tokens == IDS[:BEFORE] and memory_of(model, seq) == before
        run(seq, IDS[BEFORE : BEFORE + n])
        with pytest.raises(Interrupted), model.stopped_by(stop):
            model.profile([Work(seq, IDS[:2])])
        model.profile([Work(seq, IDS[:2])])


def test_a_server_stops_one_of_its_requests(random_model: Callable[..., Path]) -> None:
    """Clients hang up at any time, also before and after their turn; all other answers are complete."""
    rng = np.random.default_rng(1)
    with LoadedModel.load(random_model(MODELS["jamba"], FileType.F32), n_ctx=256, n_ubatch=32, n_threads=2) as model:
        seq = model.sequence()
        long = tokens(200)
        expected = seq.prefill(long)
        requests = [Stop() for _ in range(60)]
        leaving = rng.random(len(requests)) < 0.5
        started = [threading.Event() for _ in requests]

        def clients() -> None:
            for i in range(len(requests)):
                if rng.random() < 0.7:
                    started[i].wait()
                    time.sleep(rng.random() * 0.02)
                if leaving[i]:
                    requests[i].set()

        thread = threading.Thread(target=clients)
        thread.start()
        n_stopped = 0
        for i, stop in enumerate(requests):
            started[i].set()
            seq.clear()
            try:
                with model.stopped_by(stop):
                    assert same(seq.prefill(long), expected)
            except Interrupted:
                assert leaving[i], "another client's request was stopped"
                assert seq.n_past == len(seq.tokens) < 200 and seq.tokens == long[: seq.n_past]
                n_stopped += 1
        thread.join()
        print(f"{n_stopped} of {leaving.sum()} stopped before their end")


def test_ctrl_c_ends_the_answer_that_is_seen(
    random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the chat: a handler sets the answer's Stop, from its first token to its last."""
    prompt = tokens(70)
    with LoadedModel.load(random_model(MODELS["jamba"], FileType.F32), n_ctx=256, n_ubatch=32, n_threads=2) as model:

        def answer(stop: Stop) -> tuple[str, list[int]]:
            seq.clear()
            sampler = Sampler(SamplingParams(temp=0), model.n_vocab)
            with model.stopped_by(stop):
                run = generate(seq, prompt, sampler, max_tokens=12, ignore_eos=True)
                for _ in run:
                    pass
            return run.result.reason, run.result.ids

        seq = model.sequence()
        reason, whole = answer(Stop())
        assert reason == "length"
        reasons = []
        for op in count(0, 41):
            stop, happened = Stop(), threading.Event()

            def happens(happened: threading.Event = happened) -> None:
                happened.set()
                _thread.interrupt_main()

            before = signal.signal(signal.SIGINT, lambda number, frame, stop=stop: stop.set())
            try:
                with at_op(model, op, happens, monkeypatch):
                    reason, ids = answer(stop)
            finally:
                signal.signal(signal.SIGINT, before)
            if not happened.is_set():
                break
            reasons.append(reason)
            assert ids == whole[: len(ids)]
            assert reason == "interrupt" or ids == whole
            assert answer(Stop()) == ("length", whole), "the stop of one answer ended the next"
        print(f"{reasons.count('interrupt')} of {len(reasons)} stopped")
        assert len(reasons) > 5 and reasons.count("interrupt") > len(reasons) // 2


@pytest.mark.parametrize("family", ["jamba", "llama"])
def test_a_stop_in_a_long_prompt_leaves_a_prefix(
    family: str, random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It continues from there as if nothing had happened."""
    ids = tokens(200)
    with LoadedModel.load(random_model(MODELS[family], FileType.Q8_0), n_ctx=256, n_ubatch=32, n_threads=2) as model:
        seq = model.sequence()
        whole = seq.logits_of(ids)
        lengths = set()
        for op in count(5, 71):
            happened = threading.Event()

            def happens(happened: threading.Event = happened) -> None:
                happened.set()
                model.stop()

            seq.clear()
            seq.prefill(ids[:50])
            with at_op(model, op, happens, monkeypatch):
                try:
                    seq.prefill(ids[50:])
                except Interrupted:
                    assert happened.is_set()
            if not happened.is_set():
                break
            n = seq.n_past
            assert seq.tokens == ids[:n]
            lengths.add(n)
            assert n == len(ids) or same(seq.logits_of(ids[n:]), whole[n:])
        print(f"stopped at {sorted(lengths)}")
        assert len(lengths - {50, len(ids)}) > 2
