"""What quantizing costs in quality: perplexity and KL divergence of files of every recipe, as a Markdown table.

    python benchmarks/quantize_quality.py model.gguf --text heldout.txt --calibration other.txt [--chunks 40]

All figures are of this model in its source type, chunks of 256 tokens, `hybrid perplexity --kl-divergence`. Importance
matrices and sensitivities are measured on the calibration text, which must not be that of the measurement.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RECIPES = (
    "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "IQ4_XS", "IQ4_NL", "Q4_0", "Q4_K_S", "Q4_K_M", "Q5_0", "Q5_K_S", "Q5_K_M",
    "Q6_K", "Q8_0",
)  # fmt: skip
# A choice of types for every size of these.
TARGETS = ("Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "Q5_K_M")
POLICIES = ("f16", "q8_0", "like-llama")  # beside the default, f32
POLICIES_OF = ("Q3_K_M", "Q4_K_M")


def hybrid(*args: object) -> str:
    command = [sys.executable, "-m", "hybrid.cli", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def main() -> None:
    """Quantize in every way, measure each, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--calibration", type=Path, required=True)
    parser.add_argument("--chunks", type=int, default=40)
    parser.add_argument("--recipes", nargs="*", default=RECIPES)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, base, imatrix = (Path(folder, name) for name in ("q.gguf", "base.kld", "imatrix.gguf"))
        measure = ("-c", 256, "--kl-divergence-base", base)
        hybrid("perplexity", args.model, "-f", args.text, "--chunks", args.chunks, *measure)
        hybrid("imatrix", args.model, "-f", args.calibration, "-c", 256, "-o", imatrix)

        def row(name: str, *how: object) -> float:
            made: dict[str, Any] = json.loads(hybrid("quantize", args.model, file, *how, "--json"))
            found = json.loads(hybrid("perplexity", file, *measure, "--kl-divergence", "--json"))
            bits = made["bits_per_weight"]
            print(
                f"| {name} | {bits:.2f} | {found['ppl']['value']:.4f} | {found['kld']['value']:.5f} "
                f"± {found['kld']['error']:.5f} | {100 * found['same_top']['value']:.1f} % |",
                flush=True,
            )
            return float(bits)

        print(f"\n{args.model.stem}, {args.chunks} chunks of {args.text.name}\n")
        print("| file | bits per weight | PPL | KL divergence | same top token |\n|---|---|---|---|---|")
        for recipe in args.recipes:
            bits = row(recipe, recipe)
            if recipe != "Q8_0":
                row(f"{recipe}, importance", recipe, "--imatrix", imatrix)
            for policy in POLICIES if recipe in POLICIES_OF else ():
                row(f"{recipe}, `--ssm-type {policy}`", recipe, "--ssm-type", policy)
            if recipe in TARGETS:
                target = ("--target-bpw", f"{bits:.6f}", "-f", args.calibration)
                row(f"`--target-bpw` of {recipe}", *target)
                row(f"`--target-bpw` of {recipe}, importance", *target, "--imatrix", imatrix)


if __name__ == "__main__":
    main()
