"""The measurements of `quantize_quality.py`, and the tables of QUALITY.md.

A row: `model`, `name` (how the file was made), `bits` per weight, `ppl`, `kld` and its standard `error` in nats, `top`:
share of tokens with the same most likely next token, `there`: how much larger llama-perplexity's figure for the file is
than ours, or null.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
DATA = Path(__file__).with_name("quality.jsonl")
MODELS = {"jamba-trained-bf16": "Jamba", "mamba-trained-bf16": "Mamba"}
# types are chosen for the size of each of these
TARGETS = (
    "IQ2_M", "IQ3_XXS", "Q2_K", "Q2_K_XL", "Q3_K_S", "Q3_K_M", "Q3_K_XL", "Q4_K_S", "Q4_K_M", "Q4_K_XL", "Q5_K_M",
)  # fmt: skip
IMPORTANCE, EFFORT, TARGET = ", importance", ", `--effort 1`", "`--target-bpw` of "


def load(path: Path = DATA) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def of_model(rows: Iterable[Row], model: str) -> dict[str, Row]:
    """The model's rows by name."""
    return {row["name"]: row for row in rows if row["model"] == model}


def table(rows: Iterable[Row]) -> str:
    """All files by size, except those of more effort, which `efforts` shows."""
    lines = [
        "| file | bits per weight | PPL | llama.cpp | KL divergence | same top token |",
        "|---|---|---|---|---|---|",
    ]
    shown = [row for row in rows if EFFORT not in row["name"]]
    lines += [table_row(row) for row in sorted(shown, key=lambda row: (row["bits"], -row["kld"], row["name"]))]
    return "\n".join(lines) + "\n"


def table_row(row: Row) -> str:
    there = "" if row["there"] is None else f"{100 * row['there']:+.2f} %"
    kld = f"{abs(row['kld']) if abs(row['kld']) < 5e-6 else row['kld']:.5f} ± {row['error']:.5f}"
    return f"| {row['name']} | {row['bits']:.2f} | {row['ppl']:.4f} | {there} | {kld} | {100 * row['top']:.1f} % |"


def sizes(rows: Iterable[Row]) -> str:
    """KL divergence of chosen types compared with the recipe of the same size, with and without importance."""
    rows = list(rows)
    lines = [
        "| model | size of | bits per weight | recipe | chosen | | recipe, importance | chosen, importance | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for model, name in MODELS.items():
        files = of_model(rows, model)
        at = [
            (files[f"{recipe}{IMPORTANCE}"]["bits"], recipe) for recipe in TARGETS if f"{recipe}{IMPORTANCE}" in files
        ]
        for bits, recipe in sorted(at):
            cells = []
            for weighted in ("", IMPORTANCE):
                fixed, chosen = files.get(recipe + weighted), files.get(TARGET + recipe + weighted)
                cells += [_kld(fixed), _kld(chosen)]
                cells.append(f"{fixed['kld'] / chosen['kld']:.1f} times" if fixed and chosen else "")
            lines.append(f"| {name} | {recipe} | {bits:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def importances(rows: Iterable[Row]) -> str:
    """KL divergence of every recipe measured with and without importance."""
    return _pairs(rows, IMPORTANCE, "with importance", lambda name: name.startswith(TARGET) or EFFORT in name)


def efforts(rows: Iterable[Row]) -> str:
    """KL divergence of recipes with and without more effort."""
    return _pairs(rows, EFFORT, "with `--effort 1`", lambda name: False)


def _pairs(rows: Iterable[Row], mark: str, title: str, left_out: Any) -> str:
    rows = list(rows)
    by_model = [of_model(rows, model) for model in MODELS]
    names = [name for name in by_model[0] if name + mark in by_model[0] and not left_out(name)]
    lines = ["| file | " + " | ".join(f"{name} | {title} | " for name in MODELS.values()) + "|", "|---" * 7 + "|"]
    for name in sorted(names, key=lambda name: (by_model[0][name]["bits"], name)):
        cells = []
        for of in by_model:
            before, after = of.get(name), of.get(name + mark)
            cells += [_kld(before), _kld(after)]
            cells.append(f"{100 * (after['kld'] / before['kld'] - 1):+.0f} %" if before and after else "")
        if len(set(cells[:2])) > 1 or len(set(cells[3:5])) > 1:
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _kld(row: Row | None) -> str:
    return f"{row['kld']:.5f}" if row else ""
