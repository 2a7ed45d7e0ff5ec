"""Tests of kernels, repeated with aarch64 code in an emulator (see emulated_arm64.py)."""

import os
import subprocess
import sys

import emulated_arm64
import forced_isa
import pytest

# File, -m, -k. The logarithm of a likelihood is the C library's, which is not emulated.
SELECTIONS = [
    ("elementwise", "not slow", "not likelihood and not log"),
    (
        "products",
        "not slow",
        "(test_product and (160 or 256) and not 2560 and (True or BF16 or F16)) or extreme or groups",
    ),
    # values from a table, from codebooks with signs, digits of base 3
    ("products", "slow", "test_product and ((IQ4_NL and 160) or ((IQ3_S or IQ2_XXS or TQ1_0) and 256 and not 2560))"),
    ("attention", "not slow", "window or cap or sequences"),
    ("conv", "not slow", ""),
    ("delta", "not slow", "float64"),
    ("mamba1", "not slow", "float64"),
    ("mamba2", "not slow", "float64"),
    ("rglru", "not slow", "float64"),
    ("gated_norm", "not slow", "float64"),
    ("layer_norm", "not slow", ""),
    ("rwkv", "not slow", ""),
    ("wkv", "not slow", "float64"),
    ("moe", "not slow", ""),
    ("rope", "not slow", ""),
]


def passes(name: str, marked: str, selection: str) -> None:
    if reason := emulated_arm64.missing():
        pytest.skip(reason)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "emulated_arm64", "-p", "no:cacheprovider"]
    (file,) = (forced_isa.ROOT / "tests/unit/infer/kernels").glob(f"*/test_{name}.py")
    command += [str(file), "-m", marked, "-k", selection]
    env = {**os.environ, "PYTHONPATH": "tests"}
    done = subprocess.run(command, cwd=forced_isa.ROOT, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-1000:]}"
    forced_isa.ran.add("neon (emulated)")


@pytest.mark.slow
def test_a_product() -> None:
    passes("products", "not slow", "test_product and Q8_0-True and 160")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "marked", "selection"), SELECTIONS, ids=[f"{n}-{m}" for n, m, _ in SELECTIONS])
def test_kernels(name: str, marked: str, selection: str) -> None:
    passes(name, marked, selection)
