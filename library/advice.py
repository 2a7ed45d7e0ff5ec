"""Advice for errors in terms of this library; the command line names its options instead."""

from collections.abc import Iterator
from contextlib import contextmanager

from hybrid.quant.ggml.errors import HybridError, Remedy

SENTENCES = {
    Remedy.LARGER_CONTEXT: "Use a larger context: load(..., context=N).",
    Remedy.SMALLER_CONTEXT: "Use a smaller context: load(..., context=N).",
    Remedy.SMALLER_MEMORY: "Use a smaller context, or fewer answers at a time: load(..., context=N, parallel=1).",
    Remedy.LESS_MEMORY: "Use a smaller context, load(..., context=N), or a smaller file.",
    Remedy.CONTEXT_SHIFT: "Start another chat, or use a larger context: load(..., context=N).",
    Remedy.EMBEDDINGS: "Use model.embed(texts).",
    Remedy.WITHOUT_TEMPLATE: "Give another one, load(..., template=TEXT), or use model.complete(text).",
    Remedy.KV_TYPE: 'Use load(..., keys_values="{value}").',
    Remedy.TRUNCATE_OR_LARGER_CONTEXT: "Use a larger context: load(..., context=N).",
    Remedy.QUANTIZE: "Use hybrid.quantize(source, target, type).",
    Remedy.CONVERT_TO_FILE: "Use a file: hybrid.to_gguf(folder, file).",
    Remedy.DISK_ROOM: "Free some space, or set HF_HUB_CACHE to a folder on another disk.",
}


@contextmanager
def advised() -> Iterator[None]:
    """Adds advice to a HybridError as a note, which Python prints below the error."""
    try:
        yield
    except HybridError as error:
        sentence = SENTENCES.get(error.remedy) if error.remedy is not None else None
        if sentence is not None and not getattr(error, "__notes__", None):
            error.add_note(sentence.format(value=error.value))
        raise
