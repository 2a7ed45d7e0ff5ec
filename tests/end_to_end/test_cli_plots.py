"""--plot of perplexity, KL divergence and quantize: the picture beside the report, and options that exclude it."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from hybrid.cli.main import run

pytestmark = pytest.mark.exhaustive


def texts(path: Path) -> list[str]:
    return ["".join(e.itertext()) for e in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def test_pictures(files: dict[str, Path], prose: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, text = str(files["bf16"]), str(prose)
    options = ["-c", "64", "--chunks", "2"]
    by_position = tmp_path / "p.svg"
    assert (
        run(["perplexity", model, "-f", text, *options, "--by-position", "4", "--plot", str(by_position), "--json"])
        == 0
    )
    assert len(json.loads(capsys.readouterr().out)["by_position"]) == 4
    assert {"Perplexity by position", Path(model).name} <= set(texts(by_position))

    base, picture = str(tmp_path / "base.kld"), tmp_path / "k.svg"
    assert run(["perplexity", model, "-f", text, *options, "--kl-divergence-base", base, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"file", "ppl", "n_chunks", "n_ctx"} and report["n_chunks"] == 2
    command = ["perplexity", model, "--kl-divergence-base", base, "--kl-divergence", "--plot", str(picture)]
    assert run([*command, "--json"]) == 0
    assert "kld_by_token" not in json.loads(capsys.readouterr().out)
    assert {"KL divergence by token", f"{Path(model).name} beside base.kld"} <= set(texts(picture))

    out, errors = tmp_path / "q.gguf", tmp_path / "q.svg"
    assert run(["quantize", model, str(out), "Q4_0", "--plot", str(errors)]) == 0
    assert out.exists() and any(text.startswith("q.gguf (Q4_0): error in % of the weights") for text in texts(errors))
    capsys.readouterr()
    errors.unlink()
    assert run(["quantize", str(model), str(tmp_path / "f32.gguf"), "F32", "--plot", str(errors)]) == 0
    assert "no matrix was quantized: there is nothing to draw" in capsys.readouterr().err and not errors.exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["-f", "text"], "--plot draws perplexity by position or KL divergence: add --by-position N"),
        (["-f", "text", "--hellaswag"], "--hellaswag scores tasks: leave out --plot"),
        (["-f", "text", "--winogrande", "--by-position", "3"], "leave out --by-position and --plot"),
        (["-f", "text", "--kl-divergence-base", "b"], "writes chunks side by side: leave out --plot"),
        (["--kl-divergence", "--kl-divergence-base", "b", "--by-position", "3"], "leave out --by-position"),
    ],
)
def test_refused(more: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["perplexity", "no-model", "--plot", str(tmp_path / "a.svg"), *more]) == 2
    assert says in capsys.readouterr().err


def test_a_bad_name_is_refused_before_anything_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["perplexity", "no-model", "-f", "x"], ["quantize", "no-model", str(tmp_path / "o.gguf"), "Q4_0"]):
        assert run([*command, "--plot", "a.pdf"]) == 2
        assert "--plot a.pdf: expected a name that ends in .svg or .png." in capsys.readouterr().err
    assert run(["quantize", "no-model", "o.gguf", "Q4_0", "--dry-run", "--plot", str(tmp_path / "a.svg")]) == 2
    assert "leave out --dry-run" in capsys.readouterr().err
