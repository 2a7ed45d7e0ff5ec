"""Checks of the files and lines that an interrupted command may leave."""

from pathlib import Path

import numpy as np
import peft_adapters

from hybrid.cli.main import run
from hybrid.convert.checkpoint import Checkpoint


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def check_said(err: str) -> None:
    """Assert that stderr has only notes and one line at the end."""
    assert "Traceback" not in err and "Exception ignored" not in err and "rror" not in err, err
    assert err.splitlines()[-1].startswith("interrupted") and err.count("interrupted") == 1, err


def parts_and_adapter(bf16: Path, checkpoint: Path, folder: Path) -> tuple[Path, Path]:
    """The first part of a split model, and an adapter for it."""
    assert run(["gguf", "split", str(bf16), str(folder / "p"), "--split-max-size", "2M"]) == 0
    thin = {
        name: (np.ones((4, tensor.shape[1]), np.float32), np.ones((tensor.shape[0], 4), np.float32))
        for name, tensor in Checkpoint(checkpoint).tensors.items()
        if name.endswith("in_proj.weight")
    }
    adapter, tuned = folder / "lora.gguf", peft_adapters.write(folder / "tuned", thin, 4)
    assert run(["convert", str(checkpoint), "--lora", str(tuned), "-o", str(adapter)]) == 0
    return next(folder.glob("p-00001-*")), adapter
