"""Prints hashes of models' logits on this process's code path: for a prompt at once, then token after token.

python tests/logits_digest.py [--emulated_arm64 | --emulated_i8mm] model.gguf:fast model.gguf:exact...
"""

import hashlib
import importlib
import sys

import numpy as np


def digests(*cases: str) -> list[str]:
    """One hash for each `PATH:PRECISION`."""
    from hybrid.infer import LoadedModel

    lines = []
    for case in cases:
        path, _, precision = case.rpartition(":")
        with LoadedModel.load(path, n_ctx=64, n_threads=1, precision=precision) as model:  # type: ignore[arg-type]
            ids = np.random.default_rng(1).integers(3, model.n_vocab, 24).tolist()
            sequence = model.sequence()
            rows = [sequence.logits_of(ids[:21])] + [sequence.decode(token)[None] for token in ids[21:]]
            logits = np.concatenate(rows)
            assert np.isfinite(logits).all()
            lines.append(hashlib.sha256(logits.tobytes()).hexdigest()[:16])
    return lines


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[0].startswith("--"):
        importlib.import_module(arguments.pop(0)[2:]).install()
    from hybrid.infer.kernels.emit.isa import host

    print(host().name, *digests(*arguments))
