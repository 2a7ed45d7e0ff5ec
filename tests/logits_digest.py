"""Prints hashes of models' logits on this process's code path: for a prompt at once, then token after token.

python tests/logits_digest.py [--emulate-arm64] model.gguf:fast model.gguf:exact...
"""

import hashlib
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
    if arguments[0] == "--emulate-arm64":
        import emulated_arm64

        emulated_arm64.install()
        del arguments[0]
    from hybrid.infer.kernels.emit.isa import host

    print(host().name, *digests(*arguments))
