"""llama.cpp loads what `convert` writes and measures the same perplexity with it. Needs its programs:

PEER=path/to/llama.cpp/build/bin pytest tests/golden/test_peer.py
"""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import random_checkpoints
from golden.models import NOISE
from hybrid.convert import convert
from hybrid.infer import Model
from hybrid.infer.perplexity import perplexity
from random_checkpoints import CONFIGS
from reference.tokenizer_files import world_file, world_vocabulary

PEER = os.environ.get("PEER", "")
# What its loader refuses: other widths than twice the model's; layers without experts beside some with them;
# architectures that it does not have; for Phi-3, a vocabulary that is not Phi's own.
REFUSED = {
    "jamba-dense",
    "bamba",
    "granite-dense",
    "granite-moe",
    "qwen3-next",
    "recurrent-gemma",
    "recurrentgemma",
    "phi3",
    "olmo-hybrid",
    "olmo-hybrid-turned",
    "zamba",
    "zamba2",
    "zamba2-2.7b",
}
N_CTX, CHUNKS = 128, 4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PEER, reason="PEER names no folder of llama.cpp's programs"),
]


def compare(path: Path, prose: Path, log_folder: Path) -> None:
    command = [Path(PEER) / "llama-perplexity", "-m", path, "-f", prose, "-c", N_CTX, "--chunks", CHUNKS, "-t", 2]
    # exact at both ends: no flash attention in f16, keys in f32
    command += ["-ctk", "f32", "-ctv", "f32", "-fa", "off"]
    log = log_folder / "output"
    for _ in range(10):  # it sometimes ends before its last lines are written
        with log.open("wb") as file:
            subprocess.run(list(map(str, command)), stdout=file, stderr=file, timeout=120, check=False)
        found = re.search(r"Final estimate: PPL = ([\d.]+)", text := log.read_text(errors="replace"))
        if found or "Assert" in text or "error" in text:
            break
    assert found, text[-2000:]
    with Model.load(path, n_ctx=N_CTX, n_seq_max=4, precision="exact") as model:
        ours = perplexity(model, prose.read_text(), n_ctx=N_CTX, chunks=CHUNKS).ppl
    print(f"{path.name}: {ours:.4f}, llama.cpp {found[1]}, {ours / float(found[1]) - 1:+.4%}")
    assert ours == pytest.approx(float(found[1]), rel=1e-3)


@pytest.mark.parametrize("name", [name for name in NOISE if name not in REFUSED])
def test_reference_checkpoints(name: str, converted: Callable[..., Path], prose: Path, tmp_path: Path) -> None:
    compare(converted(name), prose, tmp_path)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in REFUSED])
def test_random_checkpoints(name: str, data_dir: Path, tmp_path: Path, prose: Path) -> None:
    folder = random_checkpoints.write(CONFIGS[name], tmp_path / name)
    path = tmp_path / f"{name}.gguf"
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    if name.startswith("rwkv"):
        (folder / "rwkv_vocab_v20230424.txt").write_text(world_file(world_vocabulary()))
        tokenizer = folder
    convert(folder, path, outtype="f32", tokenizer=tokenizer)
    compare(path, prose, tmp_path)
