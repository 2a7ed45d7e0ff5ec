"""What a model's file says about it, without loading it: for lists of models."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from hybrid.infer.architectures import ENCODERS
from hybrid.infer.loading.model_file import file_type_of
from hybrid.pipeline.vision_files import vision_of
from hybrid.quant.ggml.errors import HybridError
from hybrid.quant.ggml.split import open_gguf

MOST = 1024  # files whose facts are remembered
_known: "OrderedDict[tuple[str, int, int], FileFacts]" = OrderedDict()


@dataclass(frozen=True)
class FileFacts:
    """nbytes: of all parts of the file; modified: when it was written; trouble: why the file cannot be read."""

    architecture: str = ""
    nbytes: int = 0
    n_params: int = 0
    n_vocab: int = 0
    n_ctx_train: int = 0
    n_embd: int = 0
    file_type: str = ""
    modified: float = 0.0
    is_encoder: bool = False
    sees: bool = False
    is_adapter: bool = False
    trouble: str = ""


def facts_of(path: Path) -> FileFacts:
    """The facts of a GGUF file. They are read again after the file has changed."""
    try:
        status = path.stat()
    except OSError as error:
        return FileFacts(trouble=f"{path.name} cannot be read: {error.strerror or error}.")
    key = str(path), status.st_size, status.st_mtime_ns
    if key not in _known:
        _known[key] = _read(path)
        while len(_known) > MOST:
            _known.popitem(last=False)
    return _known[key]


def _read(path: Path) -> FileFacts:
    try:
        with open_gguf(path) as gguf:
            if gguf.get("general.type", "") == "adapter":
                return FileFacts(is_adapter=True, trouble=f"{path.name} is an adapter, not a model.")
            arch = str(gguf.get("general.architecture", ""))
            context, width = gguf.get(f"{arch}.context_length", 0), gguf.get(f"{arch}.embedding_length", 0)
            tokens = gguf.get("tokenizer.ggml.tokens", ())
            return FileFacts(
                architecture=arch,
                nbytes=gguf.nbytes,
                n_params=sum(math.prod(tensor.shape) for tensor in gguf.tensors.values()),
                n_vocab=len(tokens) if hasattr(tokens, "__len__") else 0,
                n_ctx_train=context if isinstance(context, int) else 0,
                n_embd=width if isinstance(width, int) else 0,
                file_type=file_type_of(gguf),
                modified=path.stat().st_mtime,
                is_encoder=arch in ENCODERS,
                sees=arch not in ENCODERS and vision_of(path) is not None,
            )
    except HybridError as error:
        return FileFacts(trouble=str(error))
    except OSError as error:
        return FileFacts(trouble=f"{path.name} cannot be read: {error.strerror or error}.")
