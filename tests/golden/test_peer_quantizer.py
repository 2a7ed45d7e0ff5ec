"""llama-quantize writes the same bytes as `quantize --ssm-type like-llama`, for every file type. Needs its program:

PEER=path/to/llama.cpp/build/bin pytest tests/golden/test_peer_quantizer.py -s
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.imatrix import collect
from hybrid.pipeline.importance import imatrix_of
from hybrid.quant import quantize
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType
from hybrid.quant.imatrix import Imatrix
from hybrid.quant.policy import TARGETS, Options, SsmType

PEER = os.environ.get("PEER", "")
# The trained Jamba, a trained Mamba, experts beside plain layers; an architecture with rows of partial blocks, and one
# with rules of its own.
MODELS = ("jamba-11m", "mamba-trained-bf16", "jamba-moe", "falcon-h1", "glm5-next")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PEER, reason="PEER names no folder of llama.cpp's programs"),
]


@pytest.fixture(scope="session")
def importance_of(
    converted: Callable[..., Path], prose: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """importance_of(name) -> its importance matrix for a page of prose, as a file that both programs read."""
    folder = tmp_path_factory.mktemp("imatrix")

    def make(name: str) -> Path:
        path = folder / f"{name}.gguf"
        if not path.exists():
            with LoadedModel.load(converted(name, "bf16"), n_ctx=128, n_seq_max=4) as model:
                *_, last = collect(model, prose.read_text(), n_ctx=128, chunks=8)
            imatrix_of(last.sums, "prose.txt", last.done, 128).write(path)
        return path

    return make


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", MODELS)
def test_bytes_are_those_of_llama_quantize(
    name: str, kind: FileType, converted: Callable[..., Path], importance_of: Callable[[str], Path], tmp_path: Path
) -> None:
    """With and without importance. Both refuse the same types, except Q1_0, which falls back to F16 here."""
    source, ours, theirs = converted(name, "bf16"), tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    for imatrix in (None, importance_of(name)):
        given = ["--imatrix", str(imatrix)] if imatrix else []
        done = subprocess.run(
            [str(Path(PEER) / "llama-quantize"), *given, str(source), str(theirs), kind.name, "1"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        options, known = Options(ssm_type=SsmType.LIKE_LLAMA), Imatrix.read(imatrix) if imatrix else None
        if done.returncode:
            if "no tensor type fallback is defined" in done.stderr:
                continue
            with pytest.raises(UsageError, match="importance"):
                quantize(source, ours, kind, options=options, imatrix=known)
            continue
        quantize(source, ours, kind, options=options, imatrix=known)
        with GGUFFile.open(ours) as a, GGUFFile.open(theirs) as b:
            assert list(a.tensors) == list(b.tensors)
            other = [
                f"{n}: {a.tensors[n].type.name}, there {b.tensors[n].type.name}"
                for n in a.tensors
                if a.tensors[n].type is not b.tensors[n].type or a.raw(n).tobytes() != b.raw(n).tobytes()
            ]
            print(
                f"{name} {kind.name}{' with importance' if imatrix else ''}: {len(a.tensors) - len(other)} of", end=" "
            )
            print(f"{len(a.tensors)} tensors equal")
            assert other == []
