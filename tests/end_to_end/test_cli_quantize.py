"""hybrid quantize, imatrix and the KL divergence of their files, with the bundled model."""

import json
from pathlib import Path

import numpy as np
import pytest
from end_to_end.outcomes import Cli, failed, ok
from numba import njit

from hybrid.quant.ggml import formats
from hybrid.quant.ggml.errors import HybridError
from hybrid.quant.ggml.kernels import compiling
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.imatrix import Imatrix
from hybrid.quant.imatrix_data import InputSums

PROMPT = "A file that comes from somewhere else should"


pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("own_cache")]


def test_quantize_reports_every_tensor(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    target = tmp_path / "q4.gguf"
    out = ok(cli("quantize", files["bf16"], target, "Q4_0"))
    assert "bits per weight" in out and len(out.splitlines()) == 7
    kind = next(line for line in out.splitlines() if line.startswith("BF16 -> Q4_0")).split()
    assert kind[3:5] == ["44", "4.50"] and kind[-4:-1] == [kind[-4], "%", "in"]
    out = ok(cli("quantize", files["bf16"], target, "Q4_0", "--verbose"))
    assert "BF16 -> Q4_0" in out and "blk.7.ssm_out.weight" in out and "bits per weight" in out
    report = json.loads(ok(cli("quantize", files["bf16"], target, "Q4_0", "--json")))
    assert report["file_type"] == "Q4_0" and len(report["tensors"]) == 126
    assert all(t["target"] == "F32" for t in report["tensors"] if "ssm_x" in t["name"])
    as_llama = json.loads(ok(cli("quantize", files["bf16"], target, "Q4_0", "--ssm-type", "like-llama", "--json")))
    assert all(t["target"] == "Q4_0" for t in as_llama["tensors"] if "ssm_x" in t["name"])


def test_compiling_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note is printed once, before the first of several kernels, so that a user learns the reason for waiting."""

    def compiles(*args: object, **options: object) -> None:
        compiling.watch()
        for kind in (int, float):
            njit(lambda x: x + 1)(kind(1))
        raise HybridError("enough")

    monkeypatch.setattr("hybrid.quant.quantization.quantize", compiles)
    said = "compiling kernels for this processor (only the first time)"
    assert cli("quantize", "in.gguf", "out.gguf", "Q8_0")[2].splitlines() == [said, "error: enough"]


def test_quantize_dry_run_and_requantize(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    target = tmp_path / "x.gguf"
    assert "nothing written" in ok(cli("quantize", files["bf16"], target, "Q8_0", "--dry-run"))
    assert "Q8_0 already" in failed(cli("quantize", files["q8_0"], target, "Q4_0"), code=2)
    assert not target.exists()
    ok(cli("quantize", files["q8_0"], target, "Q4_0", "--allow-requantize"))


def test_quantize_reports_other_types_and_growth(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    like = ("Q4_K_M", "--ssm-type", "like-llama")
    for more in ((), ("--dry-run",)):
        out = ok(cli("quantize", files["bf16"], tmp_path / "x.gguf", *like, *more))
        assert out.endswith("6 tensors fell back (6 Q4_K -> F16): width 16 is no multiple of 256\n"), out
    assert "fell back" not in ok(cli("quantize", files["bf16"], tmp_path / "x.gguf", "Q4_K_M"))
    out = ok(cli("quantize", files["q8_0"], tmp_path / "x.gguf", "F16"))
    assert out.endswith("\nThe file is larger than its source.\n")


def test_quantize_names_the_output(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    model = tmp_path / "jamba-bf16.gguf"
    model.symlink_to(files["bf16"])
    assert f"{tmp_path / 'jamba-Q8_0.gguf'}: Q8_0, " in ok(cli("quantize", model, "Q8_0"))
    assert "exists already" in failed(cli("quantize", model, "q8_0"), code=2)
    assert "nothing written" in ok(cli("quantize", model, "q8_0", "--dry-run"))
    assert f"{tmp_path / 'jamba-Q4_K_XL.gguf'}: Q4_K_XL, " in ok(cli("quantize", model, "q4_k_xl"))
    assert f"{tmp_path / 'jamba-COPY.gguf'}: BF16, " in ok(cli("quantize", model, "copy"))
    says = failed(cli("quantize", model, "--target-bpw", "4"), code=2)
    assert "the name of the output is missing" in says
    assert "give one of TYPE (for example Q4_K_M), --target-bpw" in failed(cli("quantize", model, "x.gguf"), code=2)
    assert "Q9 is not a file type. Choose one of F32" in failed(cli("quantize", model, "Q9"), code=2)
    says = failed(cli("quantize", model, "q8_0", "x.gguf"), code=2)
    assert "OUT comes before TYPE: hybrid quantize IN x.gguf q8_0" in says


@pytest.mark.slow
def test_quantize_a_checkpoint_without_a_file_between(
    cli: Cli, files: dict[str, Path], bundled: Path, tmp_path: Path
) -> None:
    """A folder gives the same bytes as converting it and then quantizing."""
    for name, source in (("folder", bundled), ("file", files["bf16"])):
        ok(cli("quantize", source, tmp_path / f"{name}.gguf", "Q4_K_M"))
    assert (tmp_path / "folder.gguf").read_bytes() == (tmp_path / "file.gguf").read_bytes()
    assert "ssm_in" in ok(cli("quantize", bundled, tmp_path / "x.gguf", "Q4_K_M", "--dry-run"))
    assert {p.name for p in tmp_path.iterdir()} == {"folder.gguf", "file.gguf"}


def test_quantize_options(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    target = tmp_path / "x.gguf"
    out = ok(
        cli(
            "quantize", files["bf16"], target, "q3_k", "--tensor-type", "ssm_in=q6_k",
            "--tensor-type", "attn_(q|k)=F16",
            "--token-embedding-type", "Q5_K", "--ssm-type", "q8_0", "--override-kv", "general.name=str:a b",
            "--override-kv", "x.n=int:-3", "--override-kv", "x.f=float:0.5", "--override-kv", "x.b=bool:true", "--json",
        )
    )  # fmt: skip
    report = json.loads(out)
    types = {t["name"]: t["target"] for t in report["tensors"]}
    assert report["file_type"] == "Q3_K_M"
    assert types["token_embd.weight"] == "Q5_K" and types["blk.0.ssm_in.weight"] == "Q6_K"
    assert types["blk.2.attn_q.weight"] == types["blk.6.attn_k.weight"] == "F16"
    assert types["blk.0.ssm_x.weight"] == "Q8_0" and types["blk.0.ssm_dt.weight"] == "F16"
    row = next(t for t in report["tensors"] if t["name"] == "blk.0.ssm_in.weight")
    assert 0 < row["rmse"] < 0.03 * row["rms"] and 0.999 < row["cosine"] < 1
    assert 0 <= row["worst_row"] < 1024 and row["worst_error"] >= row["rmse"] / row["rms"]
    assert row["bits_per_weight"] == 6.5625
    with GGUFFile.open(target) as f:
        overridden = [f.metadata[k] for k in ("general.name", "x.n", "x.f", "x.b")]
    assert overridden == ["a b", -3, 0.5, True]
    rules = tmp_path / "rules.txt"
    rules.write_text("ssm_in=Q5_K attn_q=Q8_0\n\nffn_up=Q4_0\n")
    chosen = ["--tensor-type-file", rules, "--tensor-type", "ssm_in=Q6_K", "--json", "--dry-run"]
    types = {t["name"]: t["target"] for t in json.loads(ok(cli("quantize", files["bf16"], target, "q3_k", *chosen)))}
    assert types["blk.0.ssm_in.weight"] == "Q6_K" and types["blk.2.attn_q.weight"] == "Q8_0"
    assert {kind for name, kind in types.items() if "ffn_up" in name} == {"Q4_0"}
    rules.write_text("attn_q")
    err = failed(cli("quantize", files["bf16"], target, "q3_k", "--tensor-type-file", rules), code=2)
    assert "rules.txt: attn_q: expected REGEX=TYPE" in err
    pure = json.loads(ok(cli("quantize", files["bf16"], target, "Q4_K_M", "--pure", "--json", "--dry-run")))
    assert {t["target"] for t in pure} == {"F32", "Q4_K"}


def test_rotate(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    """Rotated weights of 16 bits say what the model says; the file of few bits is rotated too."""
    target = tmp_path / "rotated.gguf"
    code, _, err = cli("quantize", files["bf16"], target, "F16", "--rotate")
    assert code == 0 and "45 matrices are rotated, in blocks of 256 values" in err
    answers = [ok(cli("run", "-no-cnv", path, "-p", PROMPT, "-n", 16, "--temp", 0)) for path in (files["bf16"], target)]
    assert answers[0] == answers[1] != ""
    ok(cli("quantize", target, tmp_path / "q4.gguf", "Q4_0"))
    with GGUFFile.open(tmp_path / "q4.gguf") as f:
        assert "blk.0.ssm_in.weight" in f.metadata["prism.hadamard.weight_names"].tolist()
    assert "has rotated weights already" in failed(cli("quantize", target, tmp_path / "x.gguf", "Q4_0", "--rotate"), 2)
    assert "other than COPY" in failed(cli("quantize", files["bf16"], tmp_path / "x.gguf", "copy", "--rotate"), 2)
    err = failed(cli("quantize", files["bf16"], tmp_path / "x.gguf", "--target-bpw", 5, "--rotate"), code=2)
    assert "--rotate works with a TYPE other than COPY" in err and not (tmp_path / "x.gguf").exists()


def test_quantize_without_some_layers(cli: Cli, files: dict[str, Path], bundled: Path, tmp_path: Path) -> None:
    """Types go by the new numbers of layers, importance by the old ones."""
    sums = InputSums(np.random.default_rng(3).uniform(0, 1, (1, 256)).astype(np.float32), np.ones(1, np.float32))
    Imatrix({"blk.4.ssm_in.weight": sums}).write(tmp_path / "imatrix.gguf")
    target = tmp_path / "x.gguf"
    how = ["--prune-layers", "1,3", "--imatrix", tmp_path / "imatrix.gguf", "--tensor-type", "blk.3.ssm_in=Q8_0"]
    plan = json.loads(ok(cli("quantize", files["bf16"], target, "q4_0", *how, "--dry-run", "--json")))
    assert {t["name"].split(".")[1] for t in plan if t["name"].startswith("blk.")} == set("012345")
    report = json.loads(ok(cli("quantize", files["bf16"], target, "q4_0", *how, "--json")))
    assert {t["name"]: t["target"] for t in report["tensors"]} == {t["name"]: t["target"] for t in plan}
    assert next(t["name"] for t in plan if t["target"] == "Q8_0" and "ssm_in" in t["name"]) == "blk.3.ssm_in.weight"
    with GGUFFile.open(target) as pruned, GGUFFile.open(files["bf16"]) as whole:
        assert pruned.get("jamba.block_count") == 6 and pruned.get("jamba.attention.head_count_kv").tolist() == [
            0, 2, 0, 0, 2, 0,
        ]  # fmt: skip
        raw = {name: pruned.raw(name).copy() for name in pruned.tensors}
        x = whole.f32("blk.4.ssm_in.weight")
    weighted, plain = (formats.encode(GGMLType.Q4_0, x, importance=w) for w in (sums.sums[0], None))
    assert np.array_equal(raw["blk.2.ssm_in.weight"], weighted) and not np.array_equal(weighted, plain)
    ok(cli("run", target, "-p", PROMPT, "-n", 4))
    ok(cli("quantize", bundled, target, "q4_0", *how))
    with GGUFFile.open(target) as pruned:
        assert all(np.array_equal(pruned.raw(name), value) for name, value in raw.items())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--prune-layers", "8"], "has layers 0 to 7: there is no layer 8 to leave out."),
        (["--prune-layers", "3-1"], "3-1 are not layers: expected numbers and ranges of them, for example 3,5-8."),
        (["--prune-layers", "0-7"], "Leave out fewer."),
        (["--tensor-type", "nothing=Q8_0"], "the pattern 'nothing' matches. `hybrid inspect --tensors` lists them."),
        (["--tensor-type", "ssm_in"], "--tensor-type ssm_in: expected REGEX=TYPE"),
        (["--tensor-type", "=Q8_0"], "expected REGEX=TYPE"),
        (["--tensor-type", "ssm_in=IQ1_S"], "blk.0.ssm_in.weight: IQ1_S needs an importance matrix. Add --imatrix"),
        (["--tensor-type", "ssm_dt=Q8_0"], "blk.0.ssm_dt.weight: row of 16 values is not a multiple of 32 (Q8_0)."),
        (["--output-tensor-type", "Q"], "--output-tensor-type: Q is not a type"),
        (["--override-kv", "a=int:x"], "--override-kv a=int:x: expected KEY=TYPE:VALUE"),
        (["--override-kv", "a=bool:1"], "expected KEY=TYPE:VALUE"),
        (["--override-kv", "general.alignment=int:64"], "general.alignment cannot be set: it says how the file is"),
        (["--override-kv", "jamba.block_count=str:8"], "jamba.block_count is an integer in"),
        (["--override-kv", "tokenizer.ggml.tokens=str:a"], "tokenizer.ggml.tokens is a list in"),
        (["--include-weights", "ssm"], "choose from an --imatrix. Give one."),
        (["--imatrix", "missing.gguf"], "missing.gguf does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_quantize_refuses(cli: Cli, files: dict[str, Path], tmp_path: Path, options: list[str], says: str) -> None:
    assert says in failed(cli("quantize", files["bf16"], tmp_path / "x.gguf", "Q4_K_M", *options), code=2)
    assert list(tmp_path.iterdir()) == []


def test_imatrix(
    cli: Cli, files: dict[str, Path], prose: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Collected in one or two runs, merged, shown, used."""
    whole, parts, both = (tmp_path / f"{name}.gguf" for name in ("whole", "parts", "both"))
    measure = ("imatrix", files["bf16"], "-f", prose, "-c", "64", "-b", "64")
    ok(cli("imatrix", files["bf16"], prose, *measure[4:], "-o", whole, "--chunks", 4))  # as with -f
    assert "and -f b are both given" in failed(cli("imatrix", files["bf16"], "a", "-f", "b"), code=2)
    ok(cli(*measure, "-o", parts, "--chunks", 2))
    assert "going on after chunk 2" in cli(*measure, "-o", parts, "--chunks", 4, "--resume")[2]
    a, b = Imatrix.read(whole), Imatrix.read(parts)
    assert (
        (a.chunk_count, a.chunk_size, a.datasets) == (4, 64, [str(prose)]) == (b.chunk_count, b.chunk_size, b.datasets)
    )
    assert len(a.entries) == 60 and "blk.1.ffn_up_exps.weight" in a.entries
    for name, entry in a.entries.items():
        np.testing.assert_allclose(b.entries[name].sums, entry.sums, rtol=1e-6)
        assert entry.counts.sum() == 256 * (2 if "_exps" in name else 1)
    ok(cli("imatrix", "--in-file", whole, "--in-file", parts, "-o", both))
    np.testing.assert_allclose(
        Imatrix.read(both).entries["blk.0.ssm_in.weight"].sums, 2 * a.entries["blk.0.ssm_in.weight"].sums, rtol=1e-6
    )
    monkeypatch.chdir(tmp_path)
    own = f"{files['bf16'].stem}-imatrix.gguf"
    said = cli(*measure, "--chunks", 1)
    assert said[0] == 0 and f"the importance matrix is written to {own}" in said[2]
    assert "exists already. --resume continues it" in failed(cli(*measure, "--chunks", 2), code=2)
    ok(cli(*measure, "--chunks", 2, "--resume"))
    assert Imatrix.read(tmp_path / own).chunk_count == 2
    rows = json.loads(ok(cli("imatrix", "--in-file", whole, "--json")))
    shown = next(row for row in rows if row["name"] == "blk.2.attn_q.weight")
    assert shown["n"] == 256 and 0 < shown["evenness"] < 1 and shown["similarity"] is None
    assert "blk.2.attn_q.weight" in ok(cli("imatrix", "--in-file", whole, "--show-statistics"))
    plain, weighted = (
        json.loads(ok(cli("quantize", files["bf16"], tmp_path / "q.gguf", "Q3_K_S", "--json", *options)))
        for options in ((), ("--imatrix", whole))
    )
    changed = [r["name"] for r, s in zip(plain["tensors"], weighted["tensors"], strict=True) if r["rmse"] != s["rmse"]]
    assert "blk.0.ssm_in.weight" in changed and "token_embd.weight" not in changed
    other = tmp_path / "other.gguf"
    Imatrix({"blk.0.attn_q.weight": a.entries["blk.2.attn_q.weight"]}, [str(prose)], 2, 64).write(other)
    before = other.read_bytes()
    for says, args in {
        "other.gguf is of another model: this one has no tensor blk.0.attn_q": (*measure, "-o", other, "--resume"),
        "nothing to do": ("imatrix",),
        "only that text and chunk size can be added to it": (
            "imatrix",
            files["bf16"],
            "-f",
            prose,
            "-c",
            "32",
            "-o",
            whole,
            "--resume",
        ),
        "4 of 4 chunks are done already": (*measure, "-o", whole, "--chunks", 4, "--resume"),
    }.items():
        assert says in failed(cli(*args), code=2)
    assert other.read_bytes() == before
    mixed = cli("imatrix", "--in-file", whole, "--in-file", other, "-o", tmp_path / "mixed.gguf")
    assert "is of another model than the others: it has blk.0.attn_q.weight and not" in failed(mixed, code=1)


def test_kl_divergence(cli: Cli, files: dict[str, Path], prose: Path, tmp_path: Path) -> None:
    """Near 0 for the original against itself; larger with fewer bits."""
    base, small = tmp_path / "base.kld", tmp_path / "q3.gguf"
    out = ok(cli("perplexity", files["bf16"], "-f", prose, "-c", "64", "--chunks", 4, "--kl-divergence-base", base))
    assert "Final estimate: PPL = " in out
    ok(cli("quantize", files["bf16"], small, "Q3_K_S"))
    reports = {}
    for name, file in (("bf16", files["bf16"]), ("q8_0", files["q8_0"]), ("q3", small)):
        args = ("perplexity", file, "--kl-divergence-base", base, "--kl-divergence")
        reports[name] = json.loads(ok(cli(*args, "--json")))
        assert reports[name]["n_scored"] == 4 * 31
    assert "Mean    KLD:" in ok(cli("perplexity", small, "--kl-divergence-base", base, "--kl-divergence"))
    kld = {name: result["kld"]["value"] for name, result in reports.items()}
    assert abs(kld["bf16"]) < 1e-6 < kld["q8_0"] < 0.1 * kld["q3"] < 0.1
    assert reports["bf16"]["same_top"]["value"] == 1 and reports["q3"]["same_top"]["value"] < 1
    plain = json.loads(ok(cli("perplexity", small, "-f", prose, "-c", "64", "--chunks", 4, "--json")))
    assert reports["q3"]["ppl"]["value"] == pytest.approx(plain["ppl"], rel=1e-4)
    for says, args in {
        "Missing option '--kl-divergence-base'": ("perplexity", small, "--kl-divergence"),
        "leave out --stride": ("perplexity", small, "-f", prose, "--kl-divergence-base", base, "--stride", 4),
        "none.kld cannot be read": ("perplexity", small, "--kl-divergence", "--kl-divergence-base", "none.kld"),
    }.items():
        assert says in failed(cli(*args), code=2)


def test_quantize_to_a_size(cli: Cli, small: dict[str, Path], tmp_path: Path) -> None:
    """The size is at most the target and close to it; tensors that the user names keep their type."""
    out = tmp_path / "x.gguf"
    for args, low, high in (
        (("--target-bpw", "4.5"), 4.45, 4.5),
        (("--target-size", "1.8M", "--tensor-type", "attn_v=Q8_0"), 5.4, 5.6),
    ):
        report = json.loads(ok(cli("quantize", small["bf16"], out, *args, "--json")))
        assert low < report["bits_per_weight"] <= high
        types = {t["name"]: t["target"] for t in report["tensors"]}
        assert len({kind for name, kind in types.items() if "ffn_" in name or "ssm_in" in name}) > 1
        assert types["blk.0.ssm_x.weight"] == "F32"
    assert {kind for name, kind in types.items() if "attn_v" in name} == {"Q8_0"}
    assert 1_780_000 < out.stat().st_size == report["nbytes"] <= 1_800_000
    for says, more in {
        "(for example Q4_K_M), --target-bpw, --target-size and --max-kld": (
            "Q8_0",
            "--target-bpw",
            "4",
        ),
        "give one of TYPE (for example Q4_K_M), --target-bpw": ("--max-kld", "0.1", "--target-bpw", "4"),
        "--max-kld measures on a text. Give one with -f.": ("--max-kld", "0.1"),
        "expected a size like 900M": ("--target-size", "big"),
        "1.5 bits per weight are too few: the smallest that is possible here is 3.": ("--target-bpw", "1.5"),
        "-f is for --target-bpw": ("Q8_0", "-f", "x.txt"),
        "--prune-layers goes with a TYPE.": ("--target-bpw", "4", "--prune-layers", "1"),
    }.items():
        assert says in failed(cli("quantize", small["bf16"], out, *more), code=2)
    assert "give one of TYPE" in failed(cli("quantize", small["bf16"], out), code=2)


@pytest.mark.matrix
def test_quantize_to_a_size_by_what_matters(
    cli: Cli, files: dict[str, Path], prose: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Types chosen by measuring give a smaller divergence than the fixed recipe of the same size."""
    monkeypatch.setattr("hybrid.pipeline.target.N_CTX", 64)
    monkeypatch.setattr("hybrid.pipeline.target.CHUNKS", 2)
    base, recipe, chosen = (tmp_path / name for name in ("base.kld", "recipe.gguf", "chosen.gguf"))
    ok(cli("perplexity", files["bf16"], "-f", prose, "-c", "128", "--kl-divergence-base", base))
    bits = json.loads(ok(cli("quantize", files["bf16"], recipe, "Q3_K_M", "--json")))["bits_per_weight"]
    noted: list[Path] = []
    monkeypatch.setattr("hybrid.pipeline.recent.note", noted.append)
    report = json.loads(ok(cli("quantize", files["bf16"], chosen, "--target-bpw", bits, "-f", prose, "--json")))
    assert set(noted) <= {files["bf16"]}, "temporary files are nobody's models"
    assert bits - 0.1 < report["bits_per_weight"] <= bits

    def divergence(file: Path) -> float:
        args = ("perplexity", file, "--kl-divergence-base", base, "--kl-divergence", "--json")
        return float(json.loads(ok(cli(*args)))["kld"]["value"])

    assert divergence(chosen) < divergence(recipe)


def test_quantize_within_a_divergence(
    cli: Cli, small: dict[str, Path], prose: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reported divergence of the file equals the result of `perplexity`, and is within the limit."""
    monkeypatch.setattr("hybrid.pipeline.target.CHUNKS", 1)
    for module in ("target", "max_kld"):
        monkeypatch.setattr(f"hybrid.pipeline.{module}.N_CTX", 64)
    monkeypatch.setattr("hybrid.pipeline.max_kld.CHUNKS", 4)
    base, out = tmp_path / "base.kld", tmp_path / "out.gguf"
    text = cli("quantize", small["bf16"], out, "--max-kld", "0.03", "-f", prose, "--json")
    report = json.loads(ok(text))
    assert "within 0.03" in text[2] and report["bits_per_weight"] < 8
    ok(cli("perplexity", small["bf16"], "-f", prose, "-c", "64", "--chunks", 4, "--kl-divergence-base", base))
    measured = json.loads(ok(cli("perplexity", out, "--kl-divergence-base", base, "--kl-divergence", "--json")))
    assert 0.02 < measured["kld"]["value"] <= 0.03
    assert measured["kld"]["value"] == pytest.approx(report["kl_divergence"]["value"], rel=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base.kld", "out.gguf"]
    impossible = cli("quantize", small["bf16"], out, "--max-kld", "1e-7", "-f", prose)
    assert "the largest types to choose from give" in impossible[2] and impossible[0] == 2
