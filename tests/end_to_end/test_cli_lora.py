"""LoRA adapters from the command line: converted, applied, merged."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import peft_adapters
import pytest
from end_to_end.outcomes import Cli

from hybrid.cli.options.loading_options import parse_lora

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def adapter(bundled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random adapter for the bundled model, in PEFT's format."""
    from hybrid.convert.checkpoint import Checkpoint

    rng, thin = np.random.default_rng(6), {}
    for name, tensor in Checkpoint(bundled).tensors.items():
        if name.endswith(("in_proj.weight", "o_proj.weight", "k_proj.weight")):
            rows, n = tensor.shape
            a = rng.standard_normal((4, n)) / np.sqrt(n)
            thin[name] = a.astype(np.float32), (rng.standard_normal((rows, 4)) / 8).astype(np.float32)
    assert len(thin) > 3
    return peft_adapters.write(tmp_path_factory.mktemp("peft") / "tuned", thin, 4)


def ppl(cli: Cli, prose: Path, *args: object) -> float:
    code, out, err = cli("perplexity", *args, "-f", prose, "-c", 64, "--chunks", 2, "--json", "--exact")
    assert code == 0, err
    return float(json.loads(out)["ppl"])


def test_convert_apply_merge(
    adapter: Path, bundled: Path, files: dict[str, Path], prose: Path, tmp_path: Path, cli: Cli
) -> None:
    lora = tmp_path / "tuned.gguf"
    code, out, _ = cli("convert", bundled, "--lora", adapter, "-o", lora)
    assert code == 0 and "tuned.gguf: LoRA for jamba" in out and "rank 4, alpha 4" in out
    base = ppl(cli, prose, files["bf16"])
    tuned, twice = (ppl(cli, prose, files["bf16"], "--lora", f"{lora}{scale}") for scale in ("", ":2"))
    assert base < tuned < twice
    assert ppl(cli, prose, files["bf16"], "--lora", lora, "--lora", f"{lora}:-1") == pytest.approx(base, rel=1e-5)
    code, out, _ = cli("gguf", "merge-lora", files["bf16"], lora, "-o", tmp_path / "merged.gguf")
    assert code == 0 and "tensors changed" in out
    assert ppl(cli, prose, tmp_path / "merged.gguf") == pytest.approx(tuned, rel=2e-3)
    prompt = ("-p", "The state", "-n", 4, "--temp", 0)
    outputs = [cli("run", files["q8_0"], "--raw", *prompt, *more)[1] for more in ((), ("--lora", f"{lora}:8"))]
    assert outputs[0] != outputs[1]
    code, out, _ = cli("bench", files["q8_0"], "-p", 8, "-n", 0, "-r", 1, "--no-start", "--lora", lora)
    assert code == 0 and "pp8" in out


def test_mistakes(
    adapter: Path, bundled: Path, files: dict[str, Path], tmp_path: Path, refused: Callable[..., str]
) -> None:
    assert "--lora goes with DIR" in refused("convert", bundled, "--lora", adapter, "--vocab-only", code=2)
    assert "is not here. Give its folder" in refused("convert", "--lora", adapter, code=2)
    assert "has no adapter_config.json" in refused("convert", "--lora", bundled, code=1)
    assert "is not a LoRA adapter" in refused("run", files["q8_0"], "--raw", "-p", "x", "--lora", files["q8_0"], code=1)
    assert "none.gguf does not exist" in refused("run", "-p", "x", "--lora", tmp_path / "none.gguf", code=2)


def test_merging_is_for_files_that_are_not_quantized(
    adapter: Path, bundled: Path, files: dict[str, Path], tmp_path: Path, cli: Cli, refused: Callable[..., str]
) -> None:
    lora = tmp_path / "tuned.gguf"
    assert cli("convert", bundled, "--lora", adapter, "-o", lora)[0] == 0
    line = refused("gguf", "merge-lora", files["q8_0"], lora, "-o", tmp_path / "m.gguf", code=2)
    assert "is Q8_0. Merge into the F32, F16 or BF16 file and quantize that" in line
    assert "tuned.gguf is an adapter, not a model. Give the model" in refused("run", lora, "--raw", "-p", "x", code=2)
    line = refused("gguf", "merge-lora", files["bf16"], lora, "-o", lora, code=2)
    assert "tuned.gguf is a source itself" in line


def test_scales(tmp_path: Path) -> None:
    assert parse_lora("a.gguf") == (Path("a.gguf"), 1.0)
    assert parse_lora("a.gguf:0.5") == (Path("a.gguf"), 0.5)
    assert parse_lora("a:b.gguf") == (Path("a:b.gguf"), 1.0)
    (tmp_path / "a:2").touch()
    assert parse_lora(f"{tmp_path}/a:2") == (tmp_path / "a:2", 1.0)
