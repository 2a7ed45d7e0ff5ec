"""A target is a maximum: of the whole file with metadata, padding and all parts, or of its tensors' bits per weight."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid.convert import convert
from hybrid.pipeline.target import Measuring, measured
from hybrid.quant import Imatrix, InputSums, quantize
from hybrid.quant.budget import Measured, of_bits_per_weight, of_file_size, tensor_nbytes
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.progress import Progress
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType, ValueType
from hybrid.quant.layout import file_nbytes
from hybrid.quant.policy import Options, SsmType
from hybrid.reporting import Reporter

pytestmark = pytest.mark.exhaustive

METADATA = {"general.description": ("x" * 5000, ValueType.STRING)}
# contents of a file beside the matrices with chosen types
WAYS: dict[str, tuple[Options, dict[str, Any]]] = {
    "plain": (Options(), {}),
    "metadata": (Options(), {"metadata": METADATA}),
    "parts": (Options(ssm_type=SsmType.LIKE_LLAMA), {"split_max_size": 400_000}),
    "named types": (Options(leave_output=True, pure=True), {"metadata": METADATA}),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    convert(data_dir / "checkpoints" / "jamba-dense", path)
    return path


# the inner loop runs these two fully, except importance, which is slowest
QUICK = ("parts", "named types")


@pytest.fixture(
    scope="module", params=[w if w in QUICK else pytest.param(w, marks=pytest.mark.exhaustive) for w in WAYS]
)
def way(request: pytest.FixtureRequest, model: Path) -> tuple[Options, dict[str, Any], Measured]:
    options, how = WAYS[request.param]
    imatrix = None
    if request.param == "metadata":
        with GGUFFile.open(model) as file:
            matrices = {n: t.shape for n, t in file.tensors.items() if len(t.shape) == 2}
        entries = {n: InputSums(np.ones((1, s[-1]), np.float32), np.ones(1, np.float32)) for n, s in matrices.items()}
        imatrix = Imatrix(entries, ["a text" * 50], 1, 512)
    return options, {**how, "imatrix": imatrix}, measured(model, None, Measuring(options, imatrix, effort=0))


def test_the_stages_are_told(model: Path) -> None:
    told: list[tuple[Any, ...]] = []

    @contextmanager
    def stage(label: str, unit: str) -> Iterator[Progress]:
        told.append((label, unit))
        yield lambda *step: told.append(step)

    known = measured(model, None, Measuring(Options(), effort=0, reporter=Reporter(print, stage)))
    assert told[0] == ("measuring errors", "tensors")
    assert told[1:] == [(name, i, len(known.choices)) for i, name in enumerate(known.choices)]


def sizes(folder: Path) -> Iterator[int]:
    return (path.stat().st_size for path in folder.iterdir())


def test_the_size_of_a_file_is_known_before(
    model: Path, way: tuple[Options, dict[str, Any], Measured], tmp_path: Path
) -> None:
    for kind in (FileType.Q8_0, FileType.Q4_0):
        folder = tmp_path / kind.name
        folder.mkdir()
        quantize(model, folder / "f.gguf", kind, options=way[0], **way[1])
        assert file_nbytes(model, kind, options=way[0], **way[1]) == sum(sizes(folder))


@pytest.mark.exhaustive
def test_no_file_is_larger_than_its_target(
    model: Path, way: tuple[Options, dict[str, Any], Measured], tmp_path: Path
) -> None:
    options, how, known = way

    def size(kind: FileType, chosen: Options) -> int:
        return file_nbytes(model, kind, options=chosen, **how)

    with pytest.raises(
        UsageError, match=r"^a file of 1000 bytes cannot be made: the smallest that is possible"
    ) as refused:
        of_file_size(known, 1000, options, size)
    match = re.search(r"has (\d+) bytes\. Give at least that\.$", str(refused.value))
    assert match is not None
    least = int(match[1])
    with pytest.raises(UsageError, match=f"has {least} bytes"):
        of_file_size(known, least - 1, options, size)
    most = file_nbytes(model, FileType.Q8_0, options=options, **how)
    rng = np.random.default_rng(0)
    for i, target in enumerate([least, least + 1, *rng.integers(least, most, 12).tolist()]):
        kind, chosen = of_file_size(known, target, options, size)
        folder = tmp_path / str(i)
        folder.mkdir()
        report = quantize(model, folder / "f.gguf", kind, options=chosen, **how)
        written = sum(sizes(folder))
        assert written == report.nbytes <= target
        # the unused rest is less than one step of the largest matrix
        assert written > target - 0.15 * most


def test_no_file_has_more_bits_per_weight_than_its_target(
    model: Path, way: tuple[Options, dict[str, Any], Measured], tmp_path: Path
) -> None:
    options, how, known = way
    tensors = tensor_nbytes(model, how["imatrix"])
    with pytest.raises(
        UsageError, match=r"^1 bits per weight are too few: the smallest that is possible here is \d+\.\d{4}\."
    ) as no:
        of_bits_per_weight(known, 1, options, tensors)
    least = float(str(no.value).split(" is ")[2].split(". ")[0])
    with pytest.raises(UsageError, match="bits per weight are too few"):
        of_bits_per_weight(known, least - 2e-4, options, tensors)
    for target in (least, least + 0.1, 4.5, 5.123456789, 8.0):
        if target >= least:
            kind, chosen = of_bits_per_weight(known, target, options, tensors)
            report = quantize(model, tmp_path / "f.gguf", kind, options=chosen, **how)
            assert target - 0.8 < report.bits_per_weight <= target
