"""Which workers may work together: programs, code paths, files."""

from pathlib import Path

import pytest
from converted_models import converted

from hybrid.infer import LoadOptions
from hybrid.infer.stages.worker_fit import (
    MODELS,
    FileAsked,
    ModelAsked,
    WorkerFacts,
    find,
    identity,
    misfit,
    program_version,
)
from hybrid.quant.ggml.errors import ClusterError
from hybrid.quant.ggml.split import open_gguf


@pytest.fixture(scope="module")
def model(bundled: Path) -> Path:
    return converted(bundled)


def test_facts() -> None:
    here = WorkerFacts.here()
    assert here.version == program_version() != "missing"
    assert misfit(here, here.version, here) is None
    old = WorkerFacts("node", "0.0.1", here.path, here.bf16)
    assert (
        misfit(old, here.version, here) == f"it has hybrid 0.0.1, the client {here.version}. Install the same version"
    )


def test_bits_differ_for_bf16_weights_only(model: Path, bundled: Path, tmp_path: Path) -> None:
    a = WorkerFacts("a", program_version(), "avx512-bf16", True)
    b = WorkerFacts("b", program_version(), "avx2", False)
    fast = ModelAsked.of(model, LoadOptions(n_ctx=64))
    said = misfit(b, program_version(), a, fast)
    assert said is not None and said.startswith("its code path is avx2, a has avx512-bf16: products of BF16 weights")
    assert misfit(b, program_version(), b, fast) is None and misfit(a, program_version(), a, fast) is None
    assert misfit(b, program_version(), a, ModelAsked.of(model, LoadOptions(n_ctx=64, precision="exact"))) is None
    other = converted(bundled, "f16")
    assert misfit(b, program_version(), a, ModelAsked.of(other, LoadOptions(n_ctx=64))) is None


def test_every_part_of_a_file_counts(model: Path, tmp_path: Path) -> None:
    whole = identity(open_gguf(model))
    data = model.read_bytes()
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(data)
    assert identity(open_gguf(copy)) == whole
    with open_gguf(model) as file:
        last = max(file.tensors.values(), key=lambda t: t.offset)
        ends = [last.offset, last.offset + last.nbytes - 1]
    at = data.index(b"general.name") + 12 + 4 + 8  # after the key, its type and the length of the value
    for place in [at, *ends]:
        copy.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert identity(open_gguf(copy)) != whole, place


def test_a_copy_is_found_by_what_it_holds(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "there" / "model.gguf"
    there.parent.mkdir()
    there.write_bytes(model.read_bytes())
    asked = FileAsked.of(there)
    assert find(asked, []) == there
    there.unlink()
    with pytest.raises(ClusterError, match=rf"model\.gguf is not there\. Use a shared folder, or .* in {MODELS}$"):
        find(asked, [])
    own = tmp_path / "own"
    own.mkdir()
    (own / "model.gguf").write_bytes(b"GGUF no more")
    with pytest.raises(ClusterError, match=r"own/model\.gguf is another file there than at the client"):
        find(asked, ["", str(own)])
    (own / "z-other-name.gguf").write_bytes(model.read_bytes())
    monkeypatch.setenv(MODELS, f"{tmp_path / 'none'}:{own}")
    assert find(asked) == own / "z-other-name.gguf"
    (own / f"{asked.identity}.gguf").write_bytes(model.read_bytes())
    assert find(asked) == own / f"{asked.identity}.gguf"
