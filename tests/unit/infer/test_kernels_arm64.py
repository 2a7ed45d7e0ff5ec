"""Tests of kernels, repeated with aarch64 code in an emulator (see emulated_arm64.py)."""

import os
import subprocess
import sys

import emulated_arm64
import forced_isa
import pytest

# -k of each file; the logarithm of a likelihood is the C library's, which is not emulated
SELECTIONS = {
    "elementwise": "not likelihood and not log",
    "matmul": "(test_product and (160 or 384 or 256) and not 2560) or extreme or groups",
    "attention": "window or cap or sequences",
    "recurrent": "layout",
    "conv": "",
    "delta": "float64",
    "mamba1": "float64",
    "mamba2": "float64",
    "rglru": "float64",
    "gated_norm": "float64",
    "moe": "",
    "rope": "",
}


def passes(name: str, selection: str) -> None:
    if reason := emulated_arm64.missing():
        pytest.skip(reason)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "emulated_arm64", "-p", "no:cacheprovider"]
    command += [f"tests/unit/infer/test_kernels_{name}.py", "-m", "not slow", "-k", selection]
    env = {**os.environ, "PYTHONPATH": "tests"}
    done = subprocess.run(command, cwd=forced_isa.ROOT, env=env, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-1000:]}"


def test_a_product() -> None:
    passes("matmul", "test_product and Q8_0-True and 160")


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SELECTIONS))
def test_kernels(name: str) -> None:
    passes(name, SELECTIONS[name])
