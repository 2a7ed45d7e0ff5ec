"""Tests of kernels, repeated with aarch64 code in an emulator (see emulated_arm64.py and emulated_i8mm.py)."""

import os
import subprocess
import sys
from typing import Any

import emulated_arm64
import emulated_i8mm
import forced_isa
import pytest

# Files, -m, -k: each is a process, which compiles what it needs. The logarithm of a likelihood is the C library's,
# which is not emulated. The first is the thin slice of `make test`.
SELECTIONS = [
    ("products", "not slow", "test_product and Q4_0-True and 160"),
    ("elementwise", "not slow", "not likelihood and not log"),
    (
        "products",
        "not slow",
        "(test_product and (160 or 256) and not 2560 and (True or BF16 or F16)) or extreme or groups",
    ),
    # values from a table, from codebooks with signs, digits of base 3
    (
        "products",
        "slow",
        "test_product and ((IQ4_NL and 160) or ((IQ3_S or IQ2_XXS or TQ1_0) and 256 and not 2560))",
    ),
    ("attention", "not slow", "window or cap or sequences"),
    ("attention_codes", "not slow and not matrix", "twin and (q4_0 or q5_1 or iq4_nl)"),
    ("delta mamba1 mamba2", "not slow", "float64"),
    ("rglru gated_norm wkv", "not slow", "float64"),
    ("rwkv layer_norm", "not slow", ""),
    ("conv moe rope", "not slow", ""),
]


# Only products with many columns differ: all types of integers, factors of half blocks, minima; then models.
I8MM = [
    ("products", "not slow", "test_product and Q4_0-True and 160"),
    ("products", "not slow", "(test_product and (160 or 256) and not 2560 and True) or extreme or groups"),
    ("products", "slow", "test_product and all and (160 or 256) and True and not 2560"),
]
ROWS = [
    *((emulated_arm64, "neon", row, i == 0) for i, row in enumerate(SELECTIONS)),
    *((emulated_i8mm, "neon-i8mm", row, False) for row in I8MM),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("emulator", "path", "names", "marked", "selection"),
    [
        pytest.param(
            emulator,
            path,
            *row,
            id="thin" if thin else f"{path}-{row[0]}-{row[1]}",
            marks=() if thin else pytest.mark.emulated,
        )
        for emulator, path, row, thin in ROWS
    ],
)
def test_kernels(emulator: Any, path: str, names: str, marked: str, selection: str) -> None:
    if reason := emulator.missing():
        pytest.skip(reason)
    command = [sys.executable, "-m", "pytest", "-v", "-x", "-p", emulator.__name__, "-p", "no:cacheprovider"]
    folder = forced_isa.ROOT / "tests/unit/infer/kernels"
    for name in names.split():
        (file,) = folder.glob(f"*/test_{name}.py")
        command.append(str(file))
    command += ["-m", marked, "-k", selection]
    env = {**os.environ, "PYTHONPATH": "tests"}
    done = subprocess.run(command, cwd=forced_isa.ROOT, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-1000:]}"
    assert all(f"test_{name}.py ." in done.stdout for name in names.split()), done.stdout
    forced_isa.ran.add(f"{path} (emulated)")
