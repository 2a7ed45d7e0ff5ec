"""What quantizing costs in quality: perplexity and KL divergence of files of every recipe, as a Markdown table.

    python benchmarks/quantize_quality.py model.gguf --text heldout.txt --calibration other.txt [--chunks 30]
        [--peer path/to/llama.cpp/build/bin] [--rows FILE] [--recipes Q4_K_M ...]

All figures are of this model in its source type, chunks of 256 tokens, as `hybrid perplexity --kl-divergence` has them.
Importance matrices and sensitivities are measured on the calibration text, which must not be that of the measurement.
With --peer the difference of llama-perplexity's result on the first 8 chunks of the same file stands beside ours.
--rows keeps what was measured as JSON lines and goes on after it.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hybrid.cli import target
from hybrid.infer import Model
from hybrid.infer.imatrix import collect
from hybrid.infer.kl_divergence import BaseFile, KLDivergenceResult, kl_divergence, write_base
from hybrid.infer.perplexity import tokens_of
from hybrid.quant.ggml.mixes import NEED_IMPORTANCE
from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, FileType
from hybrid.quant.imatrix import Entry, Imatrix
from hybrid.quant.policy import TARGETS as FILE_TYPES
from hybrid.quant.policy import Options, SsmType
from hybrid.quant.quantize import quantize

N_CTX = 256
PEER_CHUNKS = 8
# A choice of types for every size of these.
TARGETS = ("IQ2_M", "IQ3_XXS", "Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "Q5_K_M")
POLICIES = (SsmType.F16, SsmType.Q8_0, SsmType.LIKE_LLAMA)  # beside the default, f32
POLICIES_OF = ("Q2_K", "Q3_K_M", "Q4_K_M", "Q8_0")
MOSTLY_EXACT = ("F32", "F16", "BF16", "Q8_0")
CALIBRATION_CHUNKS = 60


def load(file: Path) -> Model:
    """The model with room for eight chunks of the text at a time."""
    return Model.load(file, n_ctx=N_CTX, n_seq_max=8)


def importance_of(model: Path, text: str) -> Imatrix:
    """What `hybrid imatrix` measures on the first CALIBRATION_CHUNKS chunks of the text."""
    with load(model) as loaded:
        *_, last = collect(loaded, text, n_ctx=N_CTX, chunks=CALIBRATION_CHUNKS)
    return Imatrix({name: Entry(s.astype("f4"), c.astype("f4")) for name, (s, c) in last.sums.items()})


def perplexity_there(peer: Path, file: Path, text: Path) -> float:
    """llama-perplexity's figure after PEER_CHUNKS chunks; it ends the program when there is none."""
    command = [str(peer / "llama-perplexity"), "-m", str(file), "-f", str(text), "-c", str(N_CTX), "-t", "1"]
    for _ in range(5):
        done = subprocess.run([*command, "--chunks", str(PEER_CHUNKS)], capture_output=True, text=True)
        # on a busy machine it may end before its last lines are out
        found = re.search(rf"\[{PEER_CHUNKS}\]([\d.]+),", done.stdout + done.stderr)
        if found is not None:
            return float(found[1])
    sys.exit(f"no perplexity in what llama-perplexity says of {file}: {done.stderr[-500:]}")


def ways(recipes: list[str]) -> list[tuple[str, str, SsmType, bool, bool]]:
    """(name, recipe, policy, with importance, by target), recipes before the targets of their size."""
    made: list[tuple[str, str, SsmType, bool, bool]] = []
    for recipe in recipes:
        without = FILE_TYPE_WEIGHT[FileType[recipe]] not in NEED_IMPORTANCE and recipe not in ("Q2_K_S", "IQ3_XS")
        if without:
            made.append((recipe, recipe, SsmType.F32, False, False))
        if recipe not in MOSTLY_EXACT:
            made.append((f"{recipe}, importance", recipe, SsmType.F32, True, False))
        if recipe in POLICIES_OF:
            made += [(f"{recipe}, `--ssm-type {p.value}`", recipe, p, False, False) for p in POLICIES]
        if recipe in TARGETS:
            if without:
                made.append((f"`--target-bpw` of {recipe}", recipe, SsmType.F32, False, True))
            made.append((f"`--target-bpw` of {recipe}, importance", recipe, SsmType.F32, True, True))
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
    imatrix = importance_of(args.model, args.calibration.read_text())
    # what every matrix does is measured once
    known: dict[bool, target.Measured] = {}
    with tempfile.TemporaryDirectory() as folder:
        file, base = Path(folder, "q.gguf"), Path(folder, "base.kld")
        with load(args.model) as model:
            write_base(model, base, tokens_of(model, args.text.read_text()), N_CTX, chunks=args.chunks)
        for name, recipe, policy, weighted, by_target in ways(args.recipes):
            if name in rows:
                continue
            options, kind, effort = Options(ssm_type=policy), FileType[recipe], 0
            if by_target:
                if weighted not in known:
                    known[weighted] = target.measured(
                        args.model, args.calibration, options, imatrix if weighted else None
                    )
                of_recipe = rows.get(recipe, rows.get(f"{recipe}, importance", {}))["bits"]
                effort = target.EFFORT
                kind, options = target.of_size(known[weighted], known[weighted].nbytes(of_recipe + 1e-6), options)
            made = quantize(
                args.model, file, kind, options=options, imatrix=imatrix if weighted else None, effort=effort
            )
            so_far: dict[int, KLDivergenceResult] = {}
            with load(file) as model:
                found = kl_divergence(model, BaseFile(base), progress=lambda i, _, r, to=so_far: to.update({i: r}))
            row = {
                "name": name, "bits": made.bits_per_weight, "ppl": found.ppl.value, "kld": found.kld.value,
                "error": found.kld.error, "top": found.same_top.value, "there": None,
            }  # fmt: skip
            if args.peer:
                row["there"] = perplexity_there(args.peer, file, args.text) / so_far[PEER_CHUNKS].ppl.value - 1
            rows[name] = row
            print(table_row(row), file=sys.stderr, flush=True)
            if args.rows:
                with args.rows.open("a") as out:
                    out.write(json.dumps(row) + "\n")
    beside = " llama.cpp |" if args.peer else ""
    print(f"\n{args.model.stem}, {args.chunks} chunks of {args.text.name}\n")
    print(f"| file | bits per weight | PPL |{beside} KL divergence | same top token |")
    print("|---" * (6 if args.peer else 5) + "|")
    for row in sorted(rows.values(), key=lambda row: (row["bits"], -row["kld"])):
        print(table_row(row))


def table_row(row: dict[str, Any]) -> str:
    """A line of the Markdown table."""
    there = "" if row["there"] is None else f" {100 * row['there']:+.2f} % |"
    return (
        f"| {row['name']} | {row['bits']:.2f} | {row['ppl']:.4f} |{there} {row['kld']:.5f} ± {row['error']:.5f} "
        f"| {100 * row['top']:.1f} % |"
    )


if __name__ == "__main__":
    main()
