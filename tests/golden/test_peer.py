"""llama.cpp loads files of `convert` and measures the same perplexity with them. Needs its programs:

PEER=path/to/llama.cpp/build/bin pytest tests/golden/test_peer.py
"""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import peft_adapters
import pytest
import random_checkpoints
from families import listed
from golden.models import NOISE
from random_checkpoints import CONFIGS
from reference.tokenizer_files import world_file, world_vocabulary

from hybrid.cli.main import run
from hybrid.convert import convert, convert_lora
from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.perplexity import perplexity
from hybrid.quant.hashing import hashes as of

PEER = os.environ.get("PEER", "")
# Files that its loader refuses: widths other than twice the model's; layers without experts beside layers with them,
# biases of attention and convolutions and OLMoE's fewer KV heads in architectures that have none there; architectures
# that it lacks; biases in Mamba layers; for Phi-3, a vocabulary other than Phi's own.
REFUSED = {*listed("refused")}
# Models that it runs otherwise: without a window, with other YaRN bounds, with RoPE on other layers, with the epsilon
# for heads of 64 values (RWKV), with one factor for all residuals (MiniMax), with RMS norms and another router
# (Phi-MoE).
DIFFERENT = {*listed("different")}
# Permitted difference of perplexities, if not 0.1 %: Gemma 4's scores are not scaled and so large that they amplify the
# difference to GELU from ggml's table of f16 values.
APART = {"gemma4-window": 3e-3}
N_CTX, CHUNKS = 128, 4
# Tokens per chunk for models that it runs otherwise with longer texts: it selects other groups of tokens.
SHORT = {"qwen4-exp": 32}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PEER, reason="PEER names no folder of llama.cpp's programs"),
]


def compare(
    path: Path, prose: Path, log_folder: Path, lora: Path | None = None, apart: float = 1e-3, n_ctx: int = N_CTX
) -> None:
    command = [Path(PEER) / "llama-perplexity", "-m", path, "-f", prose, "-c", n_ctx, "--chunks", CHUNKS, "-t", 2]
    # exact on both sides: no flash attention in f16, keys in f32
    command += ["-ctk", "f32", "-ctv", "f32", "-fa", "off"]
    command += ["--lora-scaled", f"{lora}:0.6"] if lora else []
    # for this architecture it mixes up the rows of several sequences in a batch
    command += ["-b", n_ctx] if path.stem.startswith("plamo2") else []
    log = log_folder / "output"
    for _ in range(10):  # it sometimes ends before its last lines are written
        with log.open("wb") as file:
            subprocess.run(list(map(str, command)), stdout=file, stderr=file, timeout=120, check=False)
        match = re.search(r"Final estimate: PPL = ([\d.]+)", text := log.read_text(errors="replace"))
        if match or "Assert" in text or "error" in text:
            break
    assert match, text[-2000:]
    given = [(lora, 0.6)] if lora else []
    with LoadedModel.load(path, n_ctx=n_ctx, n_seq_max=4, precision="exact", lora=given) as model:
        ours = perplexity(model, prose.read_text(), n_ctx=n_ctx, chunks=CHUNKS).ppl
    print(f"{path.name}: {ours:.4f}, llama.cpp {match[1]}, {ours / float(match[1]) - 1:+.4%}")
    assert ours == pytest.approx(float(match[1]), rel=apart)


@pytest.mark.parametrize("name", [name for name in NOISE if name not in REFUSED | DIFFERENT])
def test_reference_checkpoints(name: str, converted: Callable[..., Path], prose: Path, tmp_path: Path) -> None:
    compare(converted(name), prose, tmp_path, n_ctx=SHORT.get(name, N_CTX))


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in REFUSED | DIFFERENT])
def test_random_checkpoints(name: str, data_dir: Path, tmp_path: Path, prose: Path) -> None:
    folder = random_checkpoints.write(CONFIGS[name], tmp_path / name)
    path = tmp_path / f"{name}.gguf"
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    if name.startswith("rwkv"):
        (folder / "rwkv_vocab_v20230424.txt").write_text(world_file(world_vocabulary()))
        tokenizer = folder
    convert(folder, path, outtype="f32", tokenizer=tokenizer)
    compare(path, prose, tmp_path, apart=APART.get(name, 1e-3))


@pytest.mark.parametrize("name", ["llama-biased", "qwen3moe", "qwen35", "falcon-h1", "nemotron-h", "lfm2", "gemma2"])
def test_adapters(name: str, data_dir: Path, tmp_path: Path, prose: Path) -> None:
    """Our GGUF adapters, made from random PEFT adapters."""
    folder, path = random_checkpoints.write(CONFIGS[name], tmp_path / name), tmp_path / f"{name}.gguf"
    convert(folder, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    thin = peft_adapters.factors(random_checkpoints.tensors(json.loads((folder / "config.json").read_text())), rank=8)
    peft = peft_adapters.write(tmp_path / "adapter", thin, alpha=6)
    convert_lora(peft, tmp_path / "lora.gguf", base=folder)
    compare(path, prose, tmp_path, tmp_path / "lora.gguf")


@pytest.mark.skipif(not (Path(PEER) / "llama-gguf-split").exists(), reason="PEER has no llama-gguf-split")
@pytest.mark.parametrize(
    "options", [("--split-max-size", "3M"), ("--split-max-tensors", "9", "--no-tensor-first-split")]
)
def test_parts_are_those_of_gguf_split(options: tuple[str, ...], bundled: Path, tmp_path: Path) -> None:
    """Byte for byte; and it merges our parts."""
    path, folders = tmp_path / "m.gguf", [tmp_path / "ours", tmp_path / "theirs"]
    convert(bundled, path)
    for folder in folders:
        folder.mkdir()
    assert run(["gguf", "split", str(path), str(folders[0] / "m"), *options]) == 0
    tool = str(Path(PEER) / "llama-gguf-split")
    subprocess.run([tool, *options, path, folders[1] / "m"], check=True, timeout=120, capture_output=True)
    ours, theirs = (sorted(folder.iterdir()) for folder in folders)
    assert [p.name for p in ours] == [p.name for p in theirs] and len(ours) > 3
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(ours, theirs, strict=True))
    subprocess.run([tool, "--merge", ours[0], tmp_path / "merged.gguf"], check=True, timeout=120, capture_output=True)
    hashes = [list(of(file, tensors=False)) for file in (path, tmp_path / "merged.gguf", theirs[0])]
    assert hashes[0] == hashes[1] == hashes[2]
