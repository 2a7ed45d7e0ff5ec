"""A model gives the same bits on every code path: x86's are forced one by one, aarch64's is emulated."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import emulated_arm64
import emulated_i8mm
import forced_isa
import pytest
from logits_digest import digests

from hybrid.infer.bench.shapes import ModelShape
from hybrid.infer.kernels.emit.isa import host
from hybrid.quant.ggml.types import FileType

LLAMA = ModelShape(
    "paths-llama", "llama", 1, 96, 320, 512, 1e-5, n_ff=224, n_head=6, n_head_kv=2, head_dim=16, rope_base=10000.0
)
JAMBA = ModelShape(
    "paths-jamba", "jamba", 2, 256, 320, 512, 1e-6, n_ff=256, n_head=4, n_head_kv=2, head_dim=64, attn_offset=1,
    attn_period=2, d_state=16, d_conv=4, dt_rank=16, n_expert=3, n_expert_used=2, expert_offset=1, expert_period=2,
)  # fmt: skip
GRANITE = ModelShape(
    "paths-granite", "granitehybrid", 2, 96, 320, 512, 1e-5, n_ff=32, n_head=3, n_head_kv=1, head_dim=32, n_ssm_head=6,
    d_state=7, attn_offset=1, attn_period=2, n_expert=3, n_expert_used=2, n_ff_shared=64, rope_base=10000.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def cases(random_model: Callable[[ModelShape, FileType], Path]) -> list[str]:
    """Q8_0; Q4_K with Q6_K and F32; Q8_0 with F32."""
    llama, granite = random_model(LLAMA, FileType.Q8_0), random_model(GRANITE, FileType.Q8_0)
    jamba = random_model(JAMBA, FileType.Q4_K_M)
    return [f"{llama}:fast", f"{jamba}:fast", f"{jamba}:exact", f"{granite}:fast"]


@pytest.mark.slow
@pytest.mark.parametrize("some", [slice(1), pytest.param(slice(1, 4), marks=pytest.mark.paths)], ids=["one", "others"])
@pytest.mark.parametrize("path", list(forced_isa.FEATURES))
def test_x86(path: str, some: slice, cases: list[str]) -> None:
    """One model on every path of this processor, with attention and products; the long suite runs the others."""
    forced_isa.require(path)
    if path == host().name:
        pytest.skip("this is the path that the others are compared with")
    done = forced_isa.python(path, "tests/logits_digest.py", *cases[some])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [path, *digests(*cases[some])]


@pytest.mark.slow
@pytest.mark.emulated
@pytest.mark.parametrize(
    ("emulator", "path"),
    [pytest.param(emulated_arm64, "neon", id="neon"), pytest.param(emulated_i8mm, "neon-i8mm", id="neon-i8mm")],
)
def test_arm64(emulator: Any, path: str, cases: list[str]) -> None:
    """One model only, because everything is compiled anew; unit/infer/kernels/test_arm64.py has the rest."""
    if reason := emulator.missing():
        pytest.skip(reason)
    command = [sys.executable, "tests/logits_digest.py", f"--{emulator.__name__}", cases[1]]
    env = {**os.environ, "PYTHONPATH": "tests"}
    done = subprocess.run(command, cwd=forced_isa.ROOT, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [path, *digests(cases[1])]
    forced_isa.ran.add(f"{path} (emulated)")
