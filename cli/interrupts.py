"""Ctrl-C, including interrupts that Python would turn into other errors or lose."""

import signal
import sys
import threading
import time


def interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that caused `error`, or None. Python 3.11 turns an interrupt inside `__set_name__`, which runs
    while classes are made, into a RuntimeError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error


def lose_no_interrupt() -> None:
    """Sends an interrupt again that came inside `__del__` or a callback of a weak reference (each import ends with
    one). Python would report it as "Exception ignored" and go on."""
    report = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            threading.Thread(target=_interrupt_soon, daemon=True).start()
        else:
            report(unraisable)

    sys.unraisablehook = hook


def _interrupt_soon() -> None:
    time.sleep(0.01)
    # a real signal: `_thread.interrupt_main` would not wake a main thread that waits for input
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
