"""What callers are told while texts are processed: the callbacks that `progress=` takes. Of compiling: build/jit.py."""

from collections.abc import Callable

TokenProgress = Callable[[int, int], None]  # tokens done, tokens in all
AnswerProgress = Callable[[int, int], None]  # answers written, answers in all
