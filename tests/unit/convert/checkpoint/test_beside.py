"""Two matrices of a checkpoint that become one in the file, read in pieces of any size."""

from pathlib import Path

import numpy as np
import pytest
from typed_safetensors import save

from hybrid.convert.checkpoint import Checkpoint, Dtype
from hybrid.convert.checkpoint.beside import beside


@pytest.mark.parametrize("kinds", [("F32", "F32"), ("F16", "F16"), ("F32", "F16")])
def test_rows_of_both_follow_one_another(kinds: tuple[str, str], tmp_path: Path) -> None:
    rng, types = np.random.default_rng(4), {"F32": np.float32, "F16": np.float16}
    halves = [rng.standard_normal((7, n)).astype(types[kind]) for n, kind in zip((5, 3), kinds, strict=True)]
    save(tmp_path / "model.safetensors", {name: (kinds[i], halves[i]) for i, name in enumerate("ab")})
    (tmp_path / "config.json").write_text("{}")
    tensors = Checkpoint(tmp_path).tensors
    joined = beside(tensors["a"], tensors["b"])
    expected = np.concatenate(halves, axis=1).reshape(-1)
    assert joined.shape == (7, 8) and joined.name == "a | b"
    assert joined.dtype is joined.kept is (Dtype.F16 if kinds == ("F16", "F16") else Dtype.F32)
    for start in (0, 3, 5, 8, 17):
        for stop in (start, start + 1, start + 9, 56):
            read = joined.read(start, stop)
            np.testing.assert_array_equal(read, expected[start:stop])
            assert read.dtype == expected.dtype
