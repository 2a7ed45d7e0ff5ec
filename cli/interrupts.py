"""Ctrl-C, whatever Python makes of it on its way."""

import _thread
import sys
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
            _thread.start_new_thread(_interrupt_soon, ())
        else:
            report(unraisable)

    sys.unraisablehook = hook


def _interrupt_soon() -> None:
    time.sleep(0.01)
    _thread.interrupt_main()
