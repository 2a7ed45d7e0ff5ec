"""The tables of QUALITY.md from rows, and required facts of the stored rows."""

from typing import Any

import quality

from hybrid.quant.policy import TARGETS as FILE_TYPES


def row(name: str, kld: float, model: str = "jamba-trained-bf16", bits: float = 4.0) -> dict[str, Any]:
    return {
        "model": model,
        "name": name,
        "bits": bits,
        "ppl": 11.5,
        "kld": kld,
        "error": 0.001,
        "top": 0.9,
        "there": None,
    }


def test_tables() -> None:
    rows = [
        row("Q2_K", 0.2),
        row("`--target-bpw` of Q2_K", 0.1),
        row("Q2_K, importance", 0.15),
        row("`--target-bpw` of Q2_K, importance", 0.03, bits=3.9),
        row("Q2_K, `--effort 1`", 0.19),
        row("BF16", -1e-9, bits=16.0),
        row("Q2_K", 0.4, "mamba-trained-bf16"),
    ]
    lines = quality.table(quality.of_model(rows, "jamba-trained-bf16").values()).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == [
        "| `--target-bpw` of Q2_K, importance",
        "| Q2_K",
        "| Q2_K, importance",
        "| `--target-bpw` of Q2_K",
        "| BF16",
    ]
    assert lines[1] == "| Q2_K | 4.00 | 11.5000 |  | 0.20000 ± 0.00100 | 90.0 % |"
    assert "| 0.00000 ± 0.00100 |" in lines[-1], "no minus before nothing"
    assert quality.sizes(rows).splitlines()[2:] == [
        "| Jamba | Q2_K | 4.00 | 0.20000 | 0.10000 | 2.0 times | 0.15000 | 0.03000 | 5.0 times |"
    ]
    assert quality.importances(rows).splitlines()[2:] == ["| Q2_K | 0.20000 | 0.15000 | -25 % | 0.40000 |  |  |"]
    assert quality.efforts(rows).splitlines()[2:] == ["| Q2_K | 0.20000 | 0.19000 | -5 % | 0.40000 |  |  |"]


def test_every_file_type_was_measured_and_chosen_types_win() -> None:
    rows = quality.load()
    for model in quality.MODELS:
        files = quality.of_model(rows, model)
        missing = [t.name for t in FILE_TYPES if t.name not in files and f"{t.name}, importance" not in files]
        assert missing == ["PQ2_0", "PTQ1_0"], "not of llama.cpp, and for models that were trained ternary"
        chosen = [name for name in files if name.startswith(quality.TARGET)]
        assert len(chosen) == 20
        for name in chosen:
            fixed = files[name.removeprefix(quality.TARGET)]
            assert files[name]["kld"] < fixed["kld"] and files[name]["bits"] <= fixed["bits"] + 0.005
        assert all(abs(r["there"]) <= 0.003 for r in files.values()), "llama-perplexity agrees"
