"""What callers are told while something takes long: the callbacks that `progress=` takes throughout `infer`."""

from collections.abc import Callable

TokenProgress = Callable[[int, int], None]  # tokens done, tokens in all
AnswerProgress = Callable[[int, int], None]  # answers written, answers in all
CompileProgress = Callable[[str, int, int], None]  # "compile", or a kernel's name; kernels done, kernels in all
