"""Compile a model's kernels into the disk cache.

    python -m hybrid.infer.engine.precompile MODEL N_UBATCH N_THREADS PRECISION KV_TYPE [N_SEQ]

Another process that misses kernels starts it as a helper (kernels/build/helpers.py), to use other cores. With N_SEQ it
compiles the kernels that `hybrid precompile` compiles, otherwise the kernels of `LoadedModel.load`.
"""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from hybrid.quant.ggml.errors import HybridError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import open_gguf

from ..kernels.attention.kv import cache_types
from ..kernels.build.cache_folders import folder, roots
from ..kernels.build.jit import CompileProgress, serve_helper
from ..loading.options import LoadOptions
from .engine import Engine

MODULE = "hybrid.infer.engine.precompile"


@dataclass(frozen=True)
class Precompiled:
    """The result of `precompile` for a file.

    n_kernels   that the model needs
    n_compiled  that were missing, compiled here or by the helper
    folder      the disk cache
    """

    n_kernels: int
    n_compiled: int
    seconds: float
    folder: Path


def precompile(path: Path, options: LoadOptions, progress: CompileProgress | None = None) -> Precompiled:
    """Compile all kernels that a model with these options usually runs into the disk cache.

    Raises HybridError if the file cannot be loaded, or no folder for kernels can be written.
    """
    place = folder()
    if place is None or not os.access(place, os.W_OK):
        tried = ", ".join(str(root) for root in roots())
        raise HybridError(
            f"no folder for kernels can be written (tried {tried}). Set XDG_CACHE_HOME to a writable folder, here and "
            "where models run."
        )
    options = replace(options, n_threads=1, kv_type=options.kv_type_used)
    with open_gguf(path) as gguf:
        engine = _engine(gguf, options)
        helper = [
            str(path),
            str(options.n_ubatch),
            "1",
            options.precision,
            options.kv_type_used,
            str(options.n_seq_max),
        ]
        missing = 0

        def told(name: str, done: int, total: int) -> None:
            nonlocal missing
            missing = total
            if progress is not None:
                progress(name, done, total)

        n = engine.compile_usual(told, ["-m", MODULE, *helper])
        return Precompiled(n, missing, engine.compile_seconds, place)


def _engine(gguf: GGUFFile, options: LoadOptions) -> Engine:
    """An engine only for its kernels: they do not depend on the context, which is short."""
    return Engine(
        gguf,
        n_ctx=16,
        n_seq_max=options.n_seq_max,
        n_ubatch=options.n_ubatch,
        n_threads=options.n_threads,
        exact=options.precision == "exact",
        kv_type=cache_types(options.kv_type_used),
    )


def main(arguments: list[str]) -> int:
    """Compile kernels at a lower priority. Exit code 1: the file cannot be loaded."""
    path, n_ubatch, n_threads, precision, kv_type, *n_seq = arguments
    os.nice(1)
    try:
        options = LoadOptions.from_json(
            {
                "n_ubatch": int(n_ubatch),
                "n_threads": int(n_threads),
                "precision": precision,
                "kv_type": kv_type,
                "n_seq_max": int(n_seq[0]) if n_seq else 1,
            },
            path,
        )
        with open_gguf(path) as gguf:
            engine = _engine(gguf, options)
            serve_helper(engine.usual_kernels() if n_seq else engine.first_kernels())
    except HybridError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
