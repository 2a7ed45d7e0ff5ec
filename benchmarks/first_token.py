"""The cost of a model name: seconds from starting `hybrid run` to its first token, by the name of a cached model and by
path.

    python benchmarks/first_token.py MODEL.gguf [-n 9]

The file is linked into a cache folder of the hub's layout, and the hub is a port without a listener: cached models run
without asking. Both commands run in turn, and `hybrid --help` between them.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from quiet import Watch

NAME, COMMIT = "org/model", "0" * 40
NOBODY = "http://127.0.0.1:9"
PROMPT = "The state of a layer"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("-n", type=int, default=9, help="times that each runs (9)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        link(args.model.resolve(), Path(folder))
        env = {**os.environ, "HF_HUB_CACHE": folder, "HF_ENDPOINT": NOBODY}
        generating = ("--raw", "-p", PROMPT, "-n", "1", "--greedy")
        commands = {
            "by name": ("run", NAME, *generating),
            "by path": ("run", str(args.model), *generating),
            "--help": ("--help",),
        }
        for words in commands.values():  # compiles kernels and brings files into memory
            first_byte(words, env)
        with Watch() as watch:
            rounds = [{name: first_byte(words, env) for name, words in commands.items()} for _ in range(args.n)]
    if watch.usage is not None:
        print(f"others used {watch.usage.others:.2f} cores meanwhile", file=sys.stderr)
    print(f"{args.model.name}, {args.n} runs each, seconds to the first token\n\n| | median | fastest |\n|---|---|---|")
    for name in commands:
        seconds = [one[name] for one in rounds]
        print(f"| {name} | {statistics.median(seconds):.3f} | {min(seconds):.3f} |")
    more = statistics.median(one["by name"] - one["by path"] for one in rounds)
    print(f"\nby name takes {more:+.3f} s more, the median of the pairs")


def link(model: Path, cache: Path) -> None:
    """Link the model as the hub's own library stores a downloaded one."""
    repository = cache / f"models--{NAME.replace('/', '--')}"
    snapshot = repository / "snapshots" / COMMIT
    for folder in (snapshot, repository / "blobs", repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    (snapshot / "model-Q4_K_M.gguf").symlink_to(model)


def first_byte(words: tuple[str, ...], env: dict[str, str]) -> float:
    """Seconds until the first byte on stdout."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "hybrid.cli", *words]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.read(1)
        seconds = time.perf_counter() - begin
        process.stdout.read()
        if process.wait() or not first:
            sys.exit(process.stderr.read().decode())
    return seconds


if __name__ == "__main__":
    main()
