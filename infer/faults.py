"""Faults (bugs) of the program itself. A fault in side work never ends an answer.

    NOTES = SidePath("notes on headers")              # one for each kind of work, in the module that does it
    note = NOTES.run(lambda: headers.seen(ids), otherwise=lambda: "")

A side path computes a note, a reason, a figure, a log line, a guess or the position of a checkpoint: answers are the
same without it. Its first fault is reported with the file and line that raised it. All faults are counted, and after
MOST_FAULTS the side path is switched off until the process ends. Can be used from any thread.
"""

import logging
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, TypeVar

from hybrid.quant.ggml.errors import HybridError

T = TypeVar("T")

MOST_FAULTS = 3
_LOGGER = logging.getLogger("hybrid")


def is_fault(error: BaseException) -> bool:
    """Whether an exception is a bug of a program, not a stop and not an error that the user's input has caused.

    A panic of a Rust library counts, although its class does not derive from `Exception`.
    """
    if isinstance(error, HybridError):
        return False
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def fault_text(error: BaseException) -> str:
    """An exception in one line: its type, its message, and the file and line that raised it."""
    places = traceback.extract_tb(error.__traceback__)
    at = f" ({Path(places[-1].filename).name}:{places[-1].lineno})" if places else ""
    return f"{type(error).__name__}: {error}{at}"


class _Listener:
    """The function that is called for faults; by default it writes to Python's logging."""

    def __init__(self) -> None:
        self.told: Callable[[str, BaseException], None] = self._logged

    @staticmethod
    def _logged(message: str, error: BaseException) -> None:
        _LOGGER.warning("%s: %s", message, fault_text(error))


_LISTENER = _Listener()


def listen(told: Callable[[str, BaseException], None]) -> Callable[[str, BaseException], None]:
    """Call `told(message, error)` for every reported fault from now on, in its thread. Returns the earlier listener."""
    before, _LISTENER.told = _LISTENER.told, told
    return before


def tell(message: str, error: BaseException) -> None:
    """Report a fault to the listener. Exceptions of the listener are dropped: nobody is left to be told."""
    try:
        _LISTENER.told(message, error)
    except Exception:
        return


class SidePath:
    """One kind of side work. name: completes "a fault in ...", and is the label of its metric."""

    all: ClassVar[dict[str, "SidePath"]] = {}  # by name

    def __init__(self, name: str) -> None:
        assert name not in self.all, f"two side paths have the name {name!r}"
        self.name, self.n_faults = name, 0
        self._lock = threading.Lock()
        self.all[name] = self

    @property
    def is_off(self) -> bool:
        """Whether MOST_FAULTS were reached."""
        return self.n_faults >= MOST_FAULTS

    def run(self, function: Callable[[], T], otherwise: Callable[[], T]) -> T:
        """Return `function()`; after a fault, or when the path is off, `otherwise()`, which must not fail.

        A HybridError is not counted as a fault, but `otherwise()` is returned after it also.
        """
        if not self.is_off:
            try:
                return function()
            except HybridError:
                pass
            except BaseException as error:
                if not is_fault(error):
                    raise
                self._count(error)
        return otherwise()

    def do(self, function: Callable[[], object]) -> None:
        """Run `function` for its effect."""
        self.run(function, lambda: None)

    def _count(self, error: BaseException) -> None:
        with self._lock:
            self.n_faults += 1
            n = self.n_faults
        if n == 1:
            tell(f"a fault in {self.name}: answers go on without it", error)
        elif n == MOST_FAULTS:
            tell(f"{MOST_FAULTS} faults in {self.name}: it is switched off until the program starts again", error)
