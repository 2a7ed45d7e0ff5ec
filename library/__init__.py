"""Models in Python, for notebooks and programs: load, complete, chat, measure.

    import hybrid

    with hybrid.load("model.gguf") as model:
        print(model.complete("A state-space model", tokens=40))

Everything is imported on first use: `import hybrid` alone loads nothing. Examples: docs/python.md.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hybrid.infer.answers.chat.tools import ToolCall
    from hybrid.quant.ggml.errors import HybridError

    from .answer import Answer, Timings
    from .chat import Chat
    from .files import quantize, to_gguf
    from .loading import load
    from .model import Model
    from .scores import Score

_HOMES = {
    "load": "hybrid.loading",
    "Model": "hybrid.model",
    "Chat": "hybrid.chat",
    "Answer": "hybrid.answer",
    "Timings": "hybrid.answer",
    "Score": "hybrid.scores",
    "ToolCall": "hybrid.infer.answers.chat.tools",
    "to_gguf": "hybrid.files",
    "quantize": "hybrid.files",
    "HybridError": "hybrid.quant.ggml.errors",
}

__all__ = [
    "Answer",
    "Chat",
    "HybridError",
    "Model",
    "Score",
    "Timings",
    "ToolCall",
    "load",
    "quantize",
    "to_gguf",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("hybrid-lm")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
