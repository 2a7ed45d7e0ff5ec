"""Importance matrices equal llama-imatrix's: collected values, both file formats, and statistics."""

import json
from pathlib import Path

import numpy as np
import pytest

from hybrid.cli.main import run
from hybrid.quant.imatrix import Imatrix
from hybrid.quant.source import GGUFSource

INTEROP = Path(__file__).with_name("interop")
THEIRS = INTEROP / "jamba-11m.imatrix.gguf"


@pytest.mark.slow
def test_collected_values(bundled: Path, prose: Path, tmp_path: Path) -> None:
    """Every column within 0.1 % (1e-5 measured), equal counts of experts; the older format has the same values."""
    model, out = tmp_path / "f32.gguf", tmp_path / "imatrix.gguf"
    assert run(["convert", str(bundled), "--outtype", "f32", "-o", str(model)]) == 0
    assert run(["imatrix", str(model), "-f", str(prose), "-c", "64", "--chunks", "8", "-o", str(out)]) == 0
    ours, theirs, older = (Imatrix.read(path) for path in (out, THEIRS, THEIRS.with_suffix(".dat")))
    with GGUFSource(model) as source:
        older.check({name: t.shape for name, t in source.tensors.items()})
    assert ours.entries.keys() == theirs.entries.keys() == older.entries.keys() and len(theirs.entries) == 60
    assert (ours.chunk_count, ours.chunk_size) == (theirs.chunk_count, theirs.chunk_size) == (8, 64)
    for name, entry in theirs.entries.items():
        np.testing.assert_array_equal(ours.entries[name].counts, entry.counts, err_msg=name)
        np.testing.assert_allclose(ours.entries[name].importance(), entry.importance(), rtol=1e-3, err_msg=name)
        np.testing.assert_allclose(older.entries[name].importance(), entry.importance(), rtol=1e-6, err_msg=name)


def test_statistics() -> None:
    """Equal in all printed digits."""
    theirs = json.loads((INTEROP / "jamba-11m.imatrix.json").read_text())
    ours = {s.name: s for s in Imatrix.read(THEIRS).statistics()}
    assert ours.keys() == theirs.keys()
    half = np.array([5e-3, 5e-5, 5e-5, 5e-3, 5e-3, 5e-3, 0, 5e-5, 5e-3, 5e-3, 5e-5])
    for name, printed in theirs.items():
        s = ours[name]
        values = [
            s.total, s.least, s.most, s.mean, s.deviation, 100 * s.active, s.n, s.entropy, 100 * s.evenness,
            100 * s.outliers, s.similarity or 0,
        ]  # fmt: skip
        assert (np.abs(np.array(values) - printed) <= 1.2 * half).all(), f"{name}: {values}, there {printed}"
