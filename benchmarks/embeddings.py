"""Tokens of texts per second that become embeddings: `hybrid serve` and llama-server on the same file, in turn.

    python benchmarks/embeddings.py MODEL.gguf... --peer path/to/llama-server

Texts of random tokens, whose lengths are lognormal, in requests of 64. Besides tokens per second, tokens per second of
computing time of each server's process: on a machine that others use, only these compare, and only with -t 1, because
the threads of llama.cpp compute while they wait for each other. --bge FOLDER writes an encoder of bge-small's size with
random weights there, in F16 and Q8_0, and measures it.
"""

import argparse
import json
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import servers

from hybrid.convert import convert
from hybrid.infer.bench.tables import markdown_table
from hybrid.infer.program.threads import default_threads
from hybrid.quant.ggml.reader import GGUFFile

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

BGE_SMALL = {
    "architectures": ["BertModel"], "vocab_size": 2000, "hidden_size": 384, "intermediate_size": 1536,
    "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 512, "type_vocab_size": 2,
    "layer_norm_eps": 1e-12, "hidden_act": "gelu",
}  # fmt: skip
LONGEST, TOGETHER = 400, 64  # tokens of a text; texts of a request


def made(folder: Path) -> list[Path]:
    """The encoder, in two types."""
    import random_checkpoints

    source = random_checkpoints.write(BGE_SMALL, folder / "bge-small")
    paths = [folder / f"bge-small-{kind}.gguf" for kind in ("f16", "q8_0")]
    for path in paths:
        convert(source, path, outtype=path.stem[10:], tokenizer=ROOT / "tests" / "data" / "tokenizers" / "wordpiece")
    return paths


def texts_of(n: int) -> list[list[int]]:
    """Random tokens: 70 a text on average, at most LONGEST."""
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.lognormal(4.0, 0.8, n).astype(int), 3, LONGEST)
    return [rng.integers(300, 1900, length).tolist() for length in lengths]


def vectors(port: int, texts: Sequence[list[int]]) -> np.ndarray:
    """All vectors, a request after the other."""
    rows = []
    for i in range(0, len(texts), TOGETHER):
        body = json.dumps({"input": texts[i : i + TOGETHER]}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/embeddings", body)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=600) as answer:
            rows += [one["embedding"] for one in json.loads(answer.read())["data"]]
    return np.array(rows, np.float32)


def computing(running: servers.Running) -> float:
    """Seconds of computing time of a process so far."""
    fields = Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100  # ticks of user and system time


def measured(running: servers.Running, texts: Sequence[list[int]]) -> tuple[float, float, np.ndarray]:
    """Seconds, seconds of computing time, and the vectors."""
    begin, used = time.perf_counter(), computing(running)
    rows = vectors(running.port, texts)
    return time.perf_counter() - begin, computing(running) - used, rows


def main() -> None:
    """Measures the rates, and prints them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--bge", type=Path, metavar="FOLDER")
    parser.add_argument("--peer", type=Path, metavar="LLAMA_SERVER")
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    parser.add_argument("-n", "--texts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    texts = texts_of(given.texts)
    n_tokens = sum(map(len, texts))
    print(f"{len(texts)} texts, {n_tokens} tokens", file=sys.stderr)
    table = []
    for model in [*given.models, *(made(given.bge) if given.bge else ())]:
        with GGUFFile.open(model) as gguf:
            generates = gguf.get("general.architecture") != "bert"
        pooling = "last" if generates else "mean"
        context = ["-c", "512"] if generates else []
        sides = {"hybrid": servers.ours(model, "-t", given.threads, "--pooling", pooling, *context)}
        if given.peer:
            fair = ["-t", given.threads, "-tb", given.threads, "-np", 8, "-c", 8 * 512, "-b", 2048, "-ub", 512]
            sides["llama-server"] = servers.peer(
                given.peer, model, "--embeddings", "--pooling", pooling, *fair, "-ngl", 0
            )
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        rows = {}
        running = {name: side.__enter__() for name, side in sides.items()}
        try:
            for one in running.values():
                vectors(one.port, texts[:TOGETHER])  # kernels are compiled, caches filled
            for _ in range(given.rounds):
                for name, one in running.items():
                    seconds, used, rows[name] = measured(one, texts)
                    found[name].append((seconds, used))
        finally:
            for side in sides.values():
                side.__exit__(None, None, None)
        if given.peer:
            cosines = np.einsum("ij,ij->i", *rows.values())
            print(f"{model.name}: cosine of both servers' vectors at least {cosines.min():.5f}", file=sys.stderr)
        wall = {name: n_tokens / median(seconds for seconds, _ in each) for name, each in found.items()}
        used = {name: n_tokens / median(seconds for _, seconds in each) for name, each in found.items()}
        ratio = [f"{median(b / a for (_, a), (_, b) in zip(*found.values(), strict=True)):.2f}"] if given.peer else []
        table.append([model.stem, *(f"{x:.0f}" for side in (wall, used) for x in side.values()), *ratio])
    names = ["hybrid", "llama-server"] if given.peer else ["hybrid"]
    heads = [
        "model",
        *(f"{name}, tok/s" for name in names),
        *(f"{name}, tok per second of computing" for name in names),
    ]
    print(markdown_table([*heads, *(["ratio of computing"] if given.peer else [])], table))


if __name__ == "__main__":
    main()
