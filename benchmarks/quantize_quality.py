"""The cost of quantization in quality: perplexity and KL divergence of files of every recipe.

    python benchmarks/quantize_quality.py model.gguf --text heldout.txt --calibration other.txt [--chunks 30]
        [--peer path/to/llama.cpp/build/bin] [--rows benchmarks/quality.jsonl] [--recipes Q4_K_M ...]

The figures compare with this model in its source type, in chunks of 256 tokens, as in `hybrid perplexity
--kl-divergence`. Importance matrices and sensitivities are measured on the calibration text, which must differ from the
measured text. With --peer the difference of llama-perplexity's result on the same file is printed beside ours: for the
first 8 chunks, or for all if these differ by more than 0.3 %. --rows saves the measurements as JSON lines and continues
after those in the file; `make docs` makes QUALITY.md from quality.jsonl.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from quality import TARGETS, table, table_row
from quality import load as load_rows

from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.imatrix import collect
from hybrid.infer.evaluate.kl_divergence import BaseFile, kl_divergence, write_base
from hybrid.infer.evaluate.kl_statistics import KLDivergenceResult
from hybrid.infer.text.encode import document_ids
from hybrid.pipeline import target
from hybrid.pipeline.importance import imatrix_of
from hybrid.pipeline.target import EFFORT
from hybrid.quant import TARGETS as FILE_TYPES
from hybrid.quant import Imatrix, Options, SsmType, budget, quantize
from hybrid.quant.ggml.mixes import NEED_IMPORTANCE
from hybrid.quant.ggml.role_mixes import ROLE_MIXES
from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, FileType

N_CTX = 256
PEER_CHUNKS, PEER_AGREES = 8, 0.003  # if the first chunks disagree, all count
POLICIES = (SsmType.F16, SsmType.Q8_0, SsmType.LIKE_LLAMA)  # beside the default, f32
POLICIES_OF = ("Q2_K", "Q3_K_M", "Q4_K_M", "Q8_0")
EFFORT_OF = ("IQ2_XS", "IQ2_M", "IQ3_XXS", "IQ3_S", "Q2_K", "Q3_K_M", "Q4_0", "Q4_K_M")
MOSTLY_EXACT = ("F32", "F16", "BF16", "Q8_0")
CALIBRATION_CHUNKS = 60


def load(file: Path) -> LoadedModel:
    """The model with room for eight chunks of the text at a time."""
    return LoadedModel.load(file, n_ctx=N_CTX, n_seq_max=8)


def importance_of(model: Path, text: str) -> Imatrix:
    """The importance matrix that `hybrid imatrix` measures on the text's first CALIBRATION_CHUNKS chunks."""
    with load(model) as loaded:
        *_, last = collect(loaded, text, n_ctx=N_CTX, chunks=CALIBRATION_CHUNKS)
    return imatrix_of(last.sums)


def perplexity_there(peer: Path, file: Path, text: Path, chunks: int) -> float:
    """llama-perplexity's figure after `chunks` chunks; exits the program without one."""
    command = [str(peer / "llama-perplexity"), "-m", str(file), "-f", str(text), "-c", str(N_CTX), "-t", "1"]
    for _ in range(5):
        done = subprocess.run([*command, "--chunks", str(chunks)], capture_output=True, text=True)
        # on a busy machine it may end before printing its last lines
        match = re.search(rf"\[{chunks}\]([\d.]+),", done.stdout + done.stderr)
        if match is not None:
            return float(match[1])
    sys.exit(f"no perplexity in what llama-perplexity says of {file}: {done.stderr[-500:]}")


@dataclass(frozen=True)
class Way:
    """How to make a file. `by_target`: choose types for the recipe's size."""

    name: str
    recipe: str
    policy: SsmType = SsmType.F32
    weighted: bool = False
    by_target: bool = False
    effort: int = 0


def ways(recipes: list[str]) -> list[Way]:
    """All ways to make files; recipes come before targets of their size."""
    ordered: list[Way] = []
    for recipe in recipes:
        most = None if recipe in ROLE_MIXES else FILE_TYPE_WEIGHT[FileType[recipe]]
        without = most not in NEED_IMPORTANCE and recipe not in ("Q2_K_S", "IQ3_XS")
        for weighted in (False, True):
            name = f"{recipe}, importance" if weighted else recipe
            if recipe in MOSTLY_EXACT if weighted else not without:
                continue
            ordered.append(Way(name, recipe, weighted=weighted))
            if recipe in EFFORT_OF:
                ordered.append(Way(f"{name}, `--effort 1`", recipe, weighted=weighted, effort=1))
            if recipe in TARGETS:
                ordered.append(
                    Way(f"`--target-bpw` of {name}", recipe, weighted=weighted, by_target=True, effort=EFFORT)
                )
        if recipe in POLICIES_OF:
            ordered += [Way(f"{recipe}, `--ssm-type {p.value}`", recipe, p) for p in POLICIES]
    return ordered


def main() -> None:
    """Quantize in every way, measure each file, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--calibration", type=Path, required=True)
    parser.add_argument("--chunks", type=int, default=30)
    types = [t.name for t in FILE_TYPES if not t.name.startswith("P")]
    parser.add_argument("--recipes", nargs="*", default=[*types, *ROLE_MIXES])
    parser.add_argument("--peer", type=Path, help="folder of llama-perplexity")
    parser.add_argument("--rows", type=Path)
    args = parser.parse_args()
    before = load_rows(args.rows) if args.rows and args.rows.exists() else []
    rows = {row["name"]: row for row in before if row["model"] == args.model.stem}
    imatrix = importance_of(args.model, args.calibration.read_text())
    # the effects of matrices are measured once
    known: dict[bool, budget.Measured] = {}
    with tempfile.TemporaryDirectory() as folder:
        file, base = Path(folder, "q.gguf"), Path(folder, "base.kld")
        with load(args.model) as model:
            write_base(model, base, document_ids(model.tokenizer, args.text.read_text()), N_CTX, chunks=args.chunks)
        for way in ways(args.recipes):
            if way.name in rows:
                continue
            options: Options = Options(ssm_type=way.policy)
            kind: FileType | str = way.recipe
            given = imatrix if way.weighted else None
            if way.by_target:
                if way.weighted not in known:
                    how = target.Measuring(options, given)
                    known[way.weighted] = target.measured(args.model, args.calibration.read_text(), how)
                of_recipe = rows.get(way.recipe, rows.get(f"{way.recipe}, importance", {}))["bits"]
                measured = known[way.weighted]
                tensors = budget.tensor_nbytes(args.model, given)
                kind, options = budget.of_bits_per_weight(measured, of_recipe + 1e-6, options, tensors)
            report = quantize(args.model, file, kind, options=options, imatrix=given, effort=way.effort)
            so_far: dict[int, KLDivergenceResult] = {}
            with load(file) as model:
                divergence = kl_divergence(model, BaseFile(base), progress=lambda i, _, r, to=so_far: to.update({i: r}))
            row = {
                "model": args.model.stem,
                "name": way.name,
                "bits": report.bits_per_weight,
                "ppl": divergence.ppl.value,
                "kld": divergence.kld.value,
                "error": divergence.kld.error,
                "top": divergence.same_top.value,
                "there": None,
            }
            if args.peer:
                for chunks in (PEER_CHUNKS, args.chunks):
                    there = perplexity_there(args.peer, file, args.text, chunks)
                    row["there"] = there / so_far[chunks].ppl.value - 1
                    if abs(row["there"]) <= PEER_AGREES:
                        break
            rows[way.name] = row
            print(table_row(row), file=sys.stderr, flush=True)
            if args.rows:
                with args.rows.open("a") as out:
                    out.write(json.dumps(row) + "\n")
    print(f"{args.model.stem}, {args.chunks} chunks of {args.text.name}\n\n{table(rows.values())}")


if __name__ == "__main__":
    main()
