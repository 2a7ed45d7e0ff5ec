"""Files of `hybrid quantize --ssm-type like-llama` beside those of llama-quantize, tensor by tensor, byte by byte.

    python benchmarks/quantize_peer.py --peer path/to/llama.cpp/build/bin model.gguf ... [--types Q4_K_M ...]
        [--imatrix FILE] [--threads 2] [--rounds 3]

Prints for each file and file type how many tensors are equal, which differ in type or in how many blocks, and the
median seconds of both, run in turn (ours includes the start of Python). Exit code 1 when a tensor differs.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import TRAITS
from hybrid.quant.policy import TARGETS


def differences(ours: Path, theirs: Path) -> tuple[int, list[str]]:
    """How many tensors there are, and a line for each that differs."""
    found = []
    with GGUFFile.open(ours) as a, GGUFFile.open(theirs) as b:
        if list(a.tensors) != list(b.tensors):
            found.append("the tensors are not the same, or not in the same order")
        for name, t in a.tensors.items():
            other = b.tensors.get(name)
            if other is None or other.type is not t.type:
                found.append(f"{name}: {t.type.name}, there {other.type.name if other else 'missing'}")
                continue
            x, y = (f.raw(name).reshape(-1, TRAITS[t.type].nbytes) for f in (a, b))
            n = int((x != y).any(axis=1).sum())
            if n:
                found.append(f"{name}: {n} of {len(x)} blocks of {t.type.name}")
        return len(a.tensors), found


def seconds(command: list[str]) -> float:
    """RuntimeError with the last line when it fails."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-2:][0][-160:])
    return time.perf_counter() - began


def main() -> int:
    """Quantize with both, compare tensor by tensor, print a row for every type; 1 when bytes differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--peer", type=Path, required=True, help="folder of llama-quantize")
    parser.add_argument("--types", nargs="*", default=[t.name for t in TARGETS])
    parser.add_argument("--imatrix", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    failed = False
    # the types that cannot be had without one
    types = [name for name in args.types if args.imatrix or name != "Q2_K_S"]
    importance = ["--imatrix", str(args.imatrix)] if args.imatrix else []
    hybrid = [sys.executable, "-m", "hybrid.cli", "quantize", "--ssm-type", "like-llama", "-t", str(args.threads)]
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder, "ours.gguf"), Path(folder, "theirs.gguf")
        for model in args.models:
            for name in types:
                mine, peer = [*hybrid, *importance, str(model), str(ours), name], [
                    str(args.peer / "llama-quantize"), *importance, str(model), str(theirs), name, str(args.threads),
                ]  # fmt: skip
                try:
                    both = [(seconds(mine), seconds(peer)) for _ in range(args.rounds)]
                except RuntimeError as error:
                    print(f"{model.stem:24} {name:9} not compared: {error}")
                    continue
                n, found = differences(ours, theirs)
                failed |= bool(found)
                times = [statistics.median(t) for t in zip(*both, strict=True)]
                print(
                    f"{model.stem:24} {name:9} {n - len(found):4} of {n:4} tensors equal"
                    f"   {times[0]:7.2f} s {times[1]:7.2f} s  x {times[1] / times[0]:.2f}",
                    flush=True,
                )
                for line in found:
                    print(f"    {line}")
    return int(failed)


if __name__ == "__main__":
    np.seterr(all="raise")
    sys.exit(main())
