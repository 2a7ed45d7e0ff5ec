"""The cost of adapters: answers together, half of the rounds with adapters of their own.

    python benchmarks/adapters.py MODEL.gguf [--answers 8] [--adapters 4] [--rank 16] [--only attn_q,attn_v]

Makes random adapters of all matrices of the blocks, and measures steps (a token for every answer) and prompts, in turn
without and with adapters. Prints tokens per second, medians of the rounds with their spread, and the ratio.
"""

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from hybrid.infer import LoadedModel, Work
from hybrid.infer.engine.applied import NONE, Applied
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import ArrayOf, GGMLType, ValueType
from hybrid.quant.ggml.writer import GGUFWriter

PROMPT = 512  # tokens


def write_adapter(
    path: Path,
    base: Path,
    rank: int,
    kind: GGMLType = GGMLType.F16,
    only: Sequence[str] = (),
    seed: int = 0,
    *,
    size: float = 0.01,
    **keys: object,
) -> int:
    """A random adapter of all matrices of blocks; returns the bytes of its tensors.

    only: matrices whose names contain one of these; size: of the values; keys: more metadata, with __ for a dot.
    """
    rng, total = np.random.default_rng(seed), 0
    with GGUFFile.open(base) as file:
        names = [
            name
            for name, t in file.tensors.items()
            if re.fullmatch(r"blk\..*(?<!conv1d)\.weight", name) and len(t.shape) == 2
            if not only or any(part in name for part in only)
        ]
        shapes = {name: tuple(file.tensors[name].shape) for name in names}
        arch = str(file.get("general.architecture"))
    with GGUFWriter(path, arch) as writer:
        said = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 2.0 * rank}
        for key, value in {**said, **{name.replace("__", "."): value for name, value in keys.items()}}.items():
            writer.add(key, value, ArrayOf(ValueType.UINT32) if isinstance(value, list) else None)
        halves = {}
        for name, (rows, n) in shapes.items():
            halves[name + ".lora_a"], halves[name + ".lora_b"] = (rank, n), (rows, rank)
        for name, shape in halves.items():
            writer.declare(name, shape, kind)
        for name, shape in halves.items():
            values = (rng.standard_normal(shape) * size).astype(np.float32)
            total += (encoded := formats.encode(kind, values)).nbytes
            writer.write(name, encoded)
    return total


def measured(model: LoadedModel, chosen: Sequence[Applied], n_steps: int) -> tuple[float, float]:
    """Tokens per second of prompts, and of steps, of a sequence for each of `chosen`."""
    seqs = [model.sequence() for _ in chosen]
    for seq, applied in zip(seqs, chosen, strict=True):
        seq.use(applied)
    ids = np.random.default_rng(0).integers(0, model.n_vocab, PROMPT // len(seqs)).tolist()
    try:
        prompts = _seconds(lambda: model.eval([Work(seq, ids) for seq in seqs]))

        def steps() -> None:
            for i in range(n_steps):
                model.eval([Work(seq, [i + 5]) for seq in seqs])

        return len(ids) * len(seqs) / prompts, n_steps * len(seqs) / _seconds(steps)
    finally:
        for seq in seqs:
            seq.close()


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Measures the rates, and prints them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    for name, default in (("answers", 8), ("adapters", 4), ("rank", 16), ("rounds", 7), ("steps", 16), ("threads", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--type", default="F16")
    parser.add_argument("--only", default="", help="parts of names, such as attn_q,attn_v")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.gguf" for i in range(given.adapters)]
        only = [part for part in given.only.split(",") if part]
        for i, path in enumerate(files):
            nbytes = write_adapter(path, given.model, given.rank, GGMLType[given.type], only, i)
        ways = {
            "without": [NONE] * given.answers,
            "with": [Applied.of({i % given.adapters: 1.0}) for i in range(given.answers)],
        }
        with LoadedModel.load(
            given.model, n_ctx=1024, n_seq_max=given.answers, n_threads=given.threads, lora=files
        ) as model:
            print(
                f"{model.description.partition(' + ')[0]}: {given.answers} answers, {given.adapters} adapters of rank "
                f"{given.rank}, {nbytes / 1e6:.1f} MB each, {model.n_threads} threads"
            )
            rates: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
            for i in range(given.rounds + 1):
                for way, chosen in ways.items():
                    rate = measured(model, chosen, given.steps)
                    if i:  # the first compiles
                        rates[way].append(rate)
    for k, what in enumerate((f"prompts of {PROMPT // given.answers}", "steps")):
        parts = []
        for way, rows in rates.items():
            values = [row[k] for row in rows]
            parts.append(f"{way} {statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})")
        ratio = statistics.median(b[k] / a[k] for a, b in zip(rates["without"], rates["with"], strict=True))
        print(f"{what}: tokens/s {', '.join(parts)}; ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
