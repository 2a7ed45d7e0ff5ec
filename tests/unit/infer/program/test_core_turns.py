"""Programs of several models take turns at the cores."""

import threading
import time

import pytest

from hybrid.infer.program.core_turns import CoreTurns


class Fake:
    """A program that runs or, after a fault, no longer runs."""

    def __init__(self, *, is_running: bool = True) -> None:
        self.is_running = is_running


class TestCoreTurns:
    def test_alone_never_waits(self) -> None:
        turns = CoreTurns(2)
        for n in (1, 2, 5):  # more threads than cores: alone
            with turns.turn(Fake(), n):
                pass
        assert turns.waited == 0

    def test_programs_that_fit_run_together(self) -> None:
        turns, met = CoreTurns(4), threading.Barrier(2)

        def run() -> None:
            with turns.turn(Fake(), 2):
                met.wait(10)  # both are inside

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert not met.broken

    def test_order_is_that_of_coming(self) -> None:
        turns, order = CoreTurns(2), list[int]()
        threads = [threading.Thread(target=self._noted, args=(turns, order, i)) for i in range(3)]
        with turns.turn(Fake(), 2):
            for i, thread in enumerate(threads):
                thread.start()
                while len(turns._waiting) <= i:
                    time.sleep(0.001)
            assert order == []
        for thread in threads:
            thread.join(10)
        assert order == [0, 1, 2]

    @staticmethod
    def _noted(turns: CoreTurns, order: list[int], i: int) -> None:
        with turns.turn(Fake(), 2):
            order.append(i)

    def test_a_small_program_does_not_pass_a_waiting_large_one(self) -> None:
        turns, order = CoreTurns(2), list[int]()
        small = threading.Thread(target=lambda: turns._enter(Fake(), 1))
        large = threading.Thread(target=self._noted, args=(turns, order, 0))
        with turns.turn(Fake(), 1):
            large.start()
            while not turns._waiting:
                time.sleep(0.001)
            small.start()
            while len(turns._waiting) < 2:
                time.sleep(0.001)
        large.join(10)
        small.join(10)
        assert order == [0]

    def test_an_exception_frees_the_place(self) -> None:
        turns = CoreTurns(1)
        with pytest.raises(KeyboardInterrupt), turns.turn(Fake(), 1):
            raise KeyboardInterrupt
        with turns.turn(Fake(), 1):
            assert turns.waited == 0

    def test_the_clock_stands_still_while_a_thread_waits(self) -> None:
        turns, seen = CoreTurns(1), list[tuple[float, float]]()

        def run() -> None:
            begin, begun = turns.clock(), time.perf_counter()
            with turns.turn(Fake(), 1):
                pass
            seen.append((turns.clock() - begin, time.perf_counter() - begun))

        thread = threading.Thread(target=run)
        with turns.turn(Fake(), 1):
            thread.start()
            while not turns._waiting:
                time.sleep(0.001)
            time.sleep(0.02)
        thread.join(10)
        worked, passed = seen[0]
        assert passed >= 0.02 and worked < passed
        assert turns.waited == 0  # this thread never waited

    def test_a_turn_that_a_fault_has_left_ends(self) -> None:
        turns = CoreTurns(1)
        turns._enter(Fake(is_running=False), 1)  # and no `leave`
        turns._waiting[Fake()] = 0.0  # nobody has seen it for long
        with turns.turn(Fake(), 1):
            assert turns.waited > 0
