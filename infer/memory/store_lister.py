"""A thread that lists the files of earlier processes in a folder, while answers go on.

lister = Lister(store.files)
lister.close(seconds=5)   # waits that long for its end, then stops it
"""

import os
import sys
import threading
from contextlib import suppress

from ..faults import SidePath
from .store_files import StoreFiles

LISTING = SidePath("listing of saved texts")


class Lister:
    """The thread. Close it before the folder: until then it may remove files."""

    def __init__(self, files: StoreFiles) -> None:
        self.files = files
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hybrid-lister", daemon=True)
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Wait up to `seconds` for the listing, then stop it: unless it is complete, nothing new is written."""
        self._thread.join(seconds)
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        if sys.platform == "linux":  # only there threads have priorities
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        LISTING.do(lambda: self.files.list_all(self._stop.is_set))
        if not self.files.listed and not self._stop.is_set():
            self.files.warn("nothing more is saved: the log names the fault")
