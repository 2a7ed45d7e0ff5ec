"""Compile a model's kernels into the disk cache.

    python -m hybrid.infer.engine.precompile MODEL N_UBATCH N_THREADS PRECISION KV_TYPE

Started by `Model.load` when kernels are missing, to use a second core; works from the end of the list of kernels while
the model's own process works from its beginning.
"""

import os
import sys

from hybrid.quant.ggml.errors import HybridError
from hybrid.quant.ggml.split import open_gguf

from ..kernels.attention.kv import KV_TYPES
from ..kernels.build.jit import compile_backwards
from .engine import Engine


def main(arguments: list[str]) -> int:
    """Compiles what the first run of such a model needs, last kernels first, at a lower priority. Exit code 1: the file
    cannot be loaded."""
    path, n_ubatch, n_threads, precision, kv_type = arguments
    os.nice(1)
    try:
        with open_gguf(path) as gguf:
            engine = Engine(
                gguf,
                n_ctx=16,
                n_seq_max=1,
                n_ubatch=int(n_ubatch),
                n_threads=int(n_threads),
                exact=precision == "exact",
                kv_type=KV_TYPES[kv_type],
            )
            compile_backwards(engine.first_kernels())
    except HybridError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
