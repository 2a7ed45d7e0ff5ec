"""What quantizing costs in quality: perplexity and KL divergence of files of every recipe, as a Markdown table.

    python benchmarks/quantize_quality.py model.gguf --text heldout.txt --calibration other.txt [--chunks 30]
        [--peer path/to/llama.cpp/build/bin] [--rows FILE]

All figures are of this model in its source type, chunks of 256 tokens, `hybrid perplexity --kl-divergence`. Importance
matrices and sensitivities are measured on the calibration text, which must not be that of the measurement. With --peer
the perplexity that llama-perplexity has for the same file stands beside ours. --rows keeps what was measured as JSON
lines and goes on after it.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.mixes import NEED_IMPORTANCE
from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, FileType
from hybrid.quant.policy import TARGETS as FILE_TYPES

# A choice of types for every size of these.
TARGETS = ("Q2_K", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "Q5_K_M")
POLICIES = ("f16", "q8_0", "like-llama")  # beside the default, f32
POLICIES_OF = ("Q2_K", "Q3_K_M", "Q4_K_M", "Q8_0")
MOSTLY_EXACT = ("F32", "F16", "BF16", "Q8_0")


def run(*command: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done


def hybrid(*args: object) -> str:
    return run(sys.executable, "-m", "hybrid.cli", *args).stdout


def perplexity_there(peer: Path, file: Path, text: Path, chunks: int) -> float:
    for _ in range(5):
        done = run(peer / "llama-perplexity", "-m", file, "-f", text, "-c", 256, "--chunks", chunks, "-t", 1)
        # on a busy machine it may end before its last lines are out
        found = re.search(rf"\[{chunks}\]([\d.]+),", done.stdout + done.stderr)
        if found is not None:
            return float(found[1])
    sys.exit(f"no perplexity in what llama-perplexity says of {file}")


def ways(recipes: list[str], folder: Path) -> list[tuple[str, tuple[object, ...]]]:
    """(name, options of quantize), recipes before the targets of their size."""
    imatrix = ("--imatrix", folder / "imatrix.gguf")
    made: list[tuple[str, tuple[object, ...]]] = []
    for recipe in recipes:
        if FILE_TYPE_WEIGHT[FileType[recipe]] not in NEED_IMPORTANCE and recipe != "Q2_K_S":
            made.append((recipe, (recipe,)))
        if recipe not in MOSTLY_EXACT:
            made.append((f"{recipe}, importance", (recipe, *imatrix)))
        if recipe in POLICIES_OF:
            made += [(f"{recipe}, `--ssm-type {policy}`", (recipe, "--ssm-type", policy)) for policy in POLICIES]
        if recipe in TARGETS:
            made.append((f"`--target-bpw` of {recipe}", ()))
            made.append((f"`--target-bpw` of {recipe}, importance", imatrix))
    return made


def main() -> None:
    """Quantize in every way, measure each, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--calibration", type=Path, required=True)
    parser.add_argument("--chunks", type=int, default=30)
    parser.add_argument("--recipes", nargs="*", default=[t.name for t in FILE_TYPES])
    parser.add_argument("--peer", type=Path, help="folder of llama-perplexity")
    parser.add_argument("--rows", type=Path)
    args = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    if args.rows and args.rows.exists():
        rows = {row["name"]: row for row in map(json.loads, args.rows.read_text().splitlines())}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, base = folder / "q.gguf", folder / "base.kld"
        measure = ("-c", 256, "--kl-divergence-base", base)
        hybrid("perplexity", args.model, "-f", args.text, "--chunks", args.chunks, *measure)
        hybrid("imatrix", args.model, "-f", args.calibration, "-c", 256, "-o", folder / "imatrix.gguf")
        for name, how in ways(args.recipes, folder):
            if name in rows:
                continue
            if name.startswith("`--target-bpw`"):
                recipe = name.split(" of ")[1].split(",")[0]
                bits = rows.get(recipe, rows.get(f"{recipe}, importance", {}))["bits"]
                how = ("--target-bpw", f"{bits:.6f}", "-f", args.calibration, *how)
            made = json.loads(hybrid("quantize", args.model, file, *how, "--json"))
            found = json.loads(hybrid("perplexity", file, *measure, "--kl-divergence", "--json"))
            row = {
                "name": name, "bits": made["bits_per_weight"], "ppl": found["ppl"]["value"],
                "kld": found["kld"]["value"], "error": found["kld"]["error"], "top": found["same_top"]["value"],
                "there": perplexity_there(args.peer, file, args.text, args.chunks) if args.peer else None,
            }  # fmt: skip
            rows[name] = row
            print(table_row(row), file=sys.stderr, flush=True)
            if args.rows:
                with args.rows.open("a") as out:
                    out.write(json.dumps(row) + "\n")
    beside = " PPL in llama.cpp |" if args.peer else ""
    print(f"\n{args.model.stem}, {args.chunks} chunks of {args.text.name}\n")
    print(f"| file | bits per weight | PPL |{beside} KL divergence | same top token |")
    print("|---" * (6 if args.peer else 5) + "|")
    for row in sorted(rows.values(), key=lambda row: (row["bits"], -row["kld"])):
        print(table_row(row))


def table_row(row: dict[str, Any]) -> str:
    there = ""
    if row["there"] is not None:
        there = f" {row['there']:.4f} ({100 * (row['there'] / row['ppl'] - 1):+.2f} %) |"
    return (
        f"| {row['name']} | {row['bits']:.2f} | {row['ppl']:.4f} |{there} {row['kld']:.5f} ± {row['error']:.5f} "
        f"| {100 * row['top']:.1f} % |"
    )


if __name__ == "__main__":
    main()
