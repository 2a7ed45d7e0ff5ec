"""Types of the callbacks that `progress=` takes. The callback for compiling is in kernels/build/jit.py."""

from collections.abc import Callable

TokenProgress = Callable[[int, int], None]  # tokens done, tokens in all
PictureProgress = Callable[[str, int, int], None]  # the title of a picture, patches read, and all
AnswerProgress = Callable[[int, int], None]  # answers written, answers in all
