"""Costs of checkpoints and state files: time to take and to restore a checkpoint, its bytes, the change of logits if it
is stored in fewer bytes, and saving and loading a state of 4096 tokens. `--long`: what a conversation of that many
tokens keeps within its budget, and how many tokens are processed again after going back in it.

    python benchmarks/checkpoints.py MODEL.gguf [--type f32 f16 q8_0] [--no-file]
    python benchmarks/checkpoints.py MODEL.gguf --type --no-file --long 262144 --budget 64MiB
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from statistics import median

import numpy as np
from quiet import Watch

from hybrid.infer import LoadedModel
from hybrid.infer.bench.machine import cpu_name
from hybrid.quant.ggml.byte_sizes import parse_size, size_text

N_PROMPT, N_AFTER, N_FILE, ROUNDS = 96, 32, 4096, 9
TURNS, SHOWN = 64, (1, 4, 16, 64)  # turns of the long conversation, and those with a row
Row = list[str]


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of a call."""
    start = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - start)


def checkpoints(path: Path, kind: str) -> Row:
    """Milliseconds to take a checkpoint, to restore it, and of the token after that; the error of the logits after
    it."""
    with LoadedModel.load(path, n_ctx=512, checkpoint_budget=1 << 30, checkpoint_type=kind) as model:  # type: ignore[arg-type]
        rng = np.random.default_rng(1)
        ids, after = (rng.integers(300, min(model.n_vocab, 4000), n).tolist() for n in (N_PROMPT, N_AFTER))
        seq = model.sequence()
        seq.prefill(ids)
        want = np.stack([seq.decode(t) for t in after])
        taken, back, first, plain = [], [], [], []
        for i in range(ROUNDS):
            back.append(timed(lambda: seq.resume([*ids, 1])))
            first.append(timed(lambda: seq.decode(after[0])))
            plain.append(timed(lambda t=after[1]: seq.decode(t)))  # type: ignore[misc]
            seq.decode(260 + i)  # so that the text is not known yet
            taken.append(timed(seq.checkpoint))
        seq.resume([*ids, 1])
        got = np.stack([seq.decode(t) for t in after])
        assert model.cache is not None
        size = model.memory.bytes_state_per_seq / {"f32": 1, "f16": 2, "q8_0": 4}[kind]
        off = f"{np.abs(got - want).max():.2g} of {want.std():.2g}" if kind != "f32" else "0"
        assert kind != "f32" or got.tobytes() == want.tobytes()
    times = [f"{median(v):.3f}" for v in (taken, back)]
    return [kind, size_text(size, 2), *times, f"{median(first):.2f}", f"{median(plain):.2f}", off]


def state_file(path: Path, folder: Path) -> Row:
    """Size, and milliseconds to save and to load (checksums verified), both including the disk's time."""
    with LoadedModel.load(path, n_ctx=N_FILE) as model:
        seq = model.sequence()
        seq.fill([5] * N_FILE)
        saved = [timed(lambda: seq.save(folder / "s")) for _ in range(3)]
        loaded = [timed(lambda: model.restore(folder / "s", seq)) for _ in range(3)]
    size = (folder / "s").stat().st_size
    return [f"{N_FILE} tokens", size_text(size), f"{median(saved):.0f}", f"{median(loaded):.0f}"]


def long_conversation(path: Path, n: int, budget: int) -> list[Row]:
    """TURNS turns of equal length, with a checkpoint after each; then resume at several earlier positions."""
    rows = []
    with LoadedModel.load(path, n_ctx=n + N_PROMPT, n_seq_max=2, checkpoint_budget=budget) as model:
        rng = np.random.default_rng(1)
        ids = rng.integers(300, min(model.n_vocab, 4000), n).tolist()
        seq, turn, cache = model.sequence(), n // TURNS, model.cache
        assert cache is not None
        for i in range(1, TURNS + 1):
            seq.prefill(ids[(i - 1) * turn : i * turn])
            seq.checkpoint()
            assert cache.nbytes <= budget, (cache.nbytes, budget)
            if i in SHOWN:
                states, texts = cache.sizes()
                rows.append([f"{i * turn} tokens", str(cache.n_checkpoints), size_text(states), size_text(texts), ""])
        for percent in (99, 90, 50, 10, 1):
            place = n * percent // 100
            read = place - seq.resume([*ids[:place], 1])
            rows.append([f"back to {place}", str(cache.n_checkpoints), "", "", f"{read} ({100 * read / n:.1f} %)"])
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--type", nargs="*", choices=["f32", "f16", "q8_0"], default=["f32", "f16", "q8_0"])
    parser.add_argument("--no-file", action="store_true", help="leave out the state file")
    parser.add_argument("--long", type=int, default=0, metavar="TOKENS", help="length of a long conversation")
    parser.add_argument("--budget", type=lambda text: parse_size(text, "--budget"), default=1 << 30)
    given = parser.parse_args()
    with Watch() as watch, tempfile.TemporaryDirectory() as name:
        rows = [checkpoints(given.model, kind) for kind in given.type]
        file = None if given.no_file else state_file(given.model, Path(name))
        conversation = long_conversation(given.model, given.long, given.budget) if given.long else []
    print(f"{given.model.name}; {cpu_name()}, numba {metadata.version('numba')}", end="")
    print(f"; others used {watch.usage.others:.1f} cores\n" if watch.usage else "\n")
    head = [
        "parked",
        "bytes",
        "take ms",
        "go back ms",
        "token after it ms",
        "any token ms",
        "logits off by (deviation)",
    ]
    for row in (head, ["---", *["---:"] * (len(head) - 1)], *rows) if rows else ():
        print(f"| {' | '.join(row)} |")
    if file:
        head = ["state file", "size", "save ms", "load ms"]
        print()
        for row in (head, ["---", *["---:"] * (len(head) - 1)], file):
            print(f"| {' | '.join(row)} |")
    if conversation:
        head = [f"budget {size_text(given.budget)}", "checkpoints", "of states", "of texts", "tokens read again"]
        print()
        for row in (head, ["---", *["---:"] * (len(head) - 1)], *conversation):
            print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    sys.exit(main())
