"""Ctrl-C, whatever Python makes of it on its way."""

import signal
import sys
import threading
import time


def interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that an error stands for: Python 3.11 turns one inside `__set_name__`, where classes and with them
    modules are made, into a RuntimeError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error


def lose_no_interrupt() -> None:
    """An interrupt that comes inside `__del__` or a weak reference's callback (each import ends with one) would be
    reported as "Exception ignored" and forgotten: send it once more, when the callback is over."""
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
