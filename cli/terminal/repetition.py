"""Notices an answer that repeats itself."""

WATCHED = 1500  # characters, some 400 tokens
LEAST_TIMES = 4  # how often a text stands there before it counts as repeated
STEP = 256  # characters between two looks
PROBE = 48  # characters that are looked for before the end

STOPS_IT = "Ctrl-C stops it, and /set repeat-penalty 1.1 or /set dry-multiplier 0.8 makes it rarer"
AVOIDS_IT = "--repeat-penalty 1.1 or --dry-multiplier 0.8 makes that rarer"


class Repetition:
    """Notices when an answer repeats itself. Takes its text while it is generated."""

    def __init__(self) -> None:
        self.found = False
        self._tail, self._new = "", 0

    def push(self, text: str) -> bool:
        """Adds `text`. Returns True once: when the end of the answer begins to be the same text again and again."""
        if self.found:
            return False
        self._tail = (self._tail + text)[-WATCHED:]
        self._new += len(text)
        if self._new < STEP or len(self._tail) < WATCHED:
            return False
        self._new = 0
        self.found = _is_periodic(self._tail)
        return self.found


def _is_periodic(text: str) -> bool:
    """Whether `text` repeats one text at least LEAST_TIMES times."""
    at = text.rfind(text[-PROBE:], 0, -1)
    period = len(text) - PROBE - at
    return at >= 0 and period * LEAST_TIMES <= len(text) and text[period:] == text[:-period]
