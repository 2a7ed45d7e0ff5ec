"""`verify` on sound GGUF files with any contents: a difference gives one line that names it, never a crash."""

import struct
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import gguf_bytes as b
import numpy as np
import pytest
import random_checkpoints
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert, verify
from hybrid.convert.plan import prepare
from hybrid.quant.ggml.errors import CheckpointError, FormatError, HybridError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType, GGMLType

pytestmark = pytest.mark.exhaustive

FAMILIES = [  # keys that are numbers, lists of them, strings, flags
    "nemotron-h",
    *(pytest.param(name, marks=pytest.mark.matrix) for name in ("recurrentgemma", "zamba2")),
]

NAN = struct.pack("<f", float("nan"))
VALUES: dict[str, tuple[int, bytes]] = {
    "text": (b.STR, b.string("three\n\x1b[31m")),
    "no text": (b.STR, b.string("")),
    "negative": (b.I32, struct.pack("<i", -1)),
    "zero": (b.U32, struct.pack("<I", 0)),
    "large": (b.U64, struct.pack("<Q", 2**64 - 1)),
    "nan": (b.F32, NAN),
    "infinite": (b.F64, struct.pack("<d", float("inf"))),
    "huge": (b.F64, struct.pack("<d", 1e300)),
    "half": (b.F32, struct.pack("<f", 2.5)),
    "flag": (b.BOOL, b"\x01"),
    "no flag": (b.BOOL, b"\x00"),
    "empty list": (b.ARR, b.array(b.U32, [])),
    "list of texts": (b.ARR, b.array(b.STR, [b.string("x"), b.string("y")])),
    "list": (b.ARR, b.array(b.I32, [struct.pack("<i", i) for i in range(5)])),
    "list of one": (b.ARR, b.array(b.F32, [NAN])),
    "list of lists": (b.ARR, b.array(b.ARR, [b.array(b.U32, [struct.pack("<I", 1)])])),
}


def rewritten(source: Path, target: Path, change: Callable[[dict[str, bytes], dict[str, list]], object]) -> Path:
    """A copy with changed pairs (key -> bytes) and tensors (name -> [dims, type, bytes])."""
    with GGUFFile.open(source) as file:
        key_values = {key: file.pair(key) for key in file.metadata}
        tensors = {n: [list(t.shape[::-1]), int(t.type), file.raw(n).tobytes()] for n, t in file.tensors.items()}
    change(key_values, tensors)
    infos, data = [], b""
    for name, (dims, kind, raw) in tensors.items():
        infos.append(b.info(name, dims, kind, len(data)))
        data += raw + bytes(-len(raw) % 32)
    target.write_bytes(b.changed(key_values=list(key_values.values()), infos=infos, data=data))
    return target


@pytest.fixture(scope="module", params=FAMILIES)
def converted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, data_dir: Path
) -> tuple[Path, Path]:
    """A checkpoint and its conversion, without the vocabulary."""
    folder = tmp_path_factory.mktemp("verify")
    source = random_checkpoints.write(random_checkpoints.CONFIGS[request.param], folder / "model")
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    convert(source, folder / "whole.gguf", outtype="f16", tokenizer=tokenizer)

    def strip(key_values: dict[str, bytes], tensors: dict[str, list]) -> None:
        for key in [key for key in key_values if key.startswith("tokenizer.")]:
            del key_values[key]  # verify does not look at it, and reading it takes most of the time

    return source, rewritten(folder / "whole.gguf", folder / "o.gguf", strip)


def refused(source: Path, gguf: Path, kind: type[HybridError] = FormatError) -> str:
    with pytest.raises(kind) as caught:
        verify(source, gguf)
    says = str(caught.value)
    assert says.isprintable() and len(says) < 800, says
    return says


def test_any_value_of_any_key(converted: tuple[Path, Path], tmp_path: Path) -> None:
    source, gguf = converted
    verify(source, rewritten(gguf, tmp_path / "same.gguf", lambda key_values, tensors: None))
    family = prepare(source, file_type=FileType.F16, with_vocabulary=False).family
    names = [k if k.startswith("general.") else f"{family.arch}.{k}" for k, _ in family.keys(FileType.F16)]
    agreed = 0
    elsewhere = ("general.file_type", "general.alignment", "split.count")  # their changes are reported differently
    turn = cycle(VALUES.items())
    for key in [*names, "general.architecture", *elsewhere]:
        for what, (kind, value) in islice(turn, 5):  # not all for every key: that takes a minute
            path = rewritten(
                gguf, tmp_path / "o.gguf", lambda p, t, k=key, v=(kind, value): p.update({k: b.pair(k, *v)})
            )
            with GGUFFile.open(gguf) as file:
                right = file.get(key, None)
            try:
                verify(source, path)
            except HybridError as error:
                says = str(error)
                assert says.isprintable() and len(says) < 800, (key, what, says)
                assert key in says or key in elsewhere, (key, what, says)
            else:
                agreed += 1
                same = {"zero": 0, "no flag": False, "flag": True, "no text": ""}.get(what, "-")
                assert key in elsewhere or (type(right), right) == (type(same), same), (
                    f"{key}: {what} passes for {right!r}"
                )
        if key in names:
            says = refused(source, rewritten(gguf, tmp_path / "o.gguf", lambda p, t, k=key: p.pop(k)))
            assert key in says
    print(f"{len(names)} keys, {agreed} values were those of the config")


def test_any_tensor_that_is_not_the_one(converted: tuple[Path, Path], tmp_path: Path) -> None:
    source, gguf = converted
    with GGUFFile.open(gguf) as file:
        names = list(file.tensors)

    def check(change: Callable[[dict, dict], object], name: str, *says: str) -> None:
        line = refused(source, rewritten(gguf, tmp_path / "o.gguf", change))
        assert name in line and all(s in line for s in says), (name, line)

    for name in (names[0], names[len(names) // 2], names[-1]):
        check(lambda p, t, n=name: t.pop(n), name, "has no tensor")
        check(lambda p, t, n=name: t.update({"x\n\x1b": t[n]}), "x", "does not make")
        check(lambda p, t, n=name: t[n].__setitem__(0, [*t[n][0], 1]), name, "expected")
        check(lambda p, t, n=name: t.update({n: [[8], 0, bytes(32)]}), name, "expected")
        check(lambda p, t, n=name: t.update({n: [[32], int(GGMLType.Q8_0), bytes(34)]}), name, "Q8_0")
        for fill in (b"\xff", b"\x00", b"\x7f"):
            check(lambda p, t, n=name, f=fill: t[n].__setitem__(2, f * len(t[n][2])), name, "differs from")
    assert "has no tensor" in refused(source, rewritten(gguf, tmp_path / "o.gguf", lambda p, t: t.popitem()))


def test_a_dimension_of_zero(converted: tuple[Path, Path], tmp_path: Path) -> None:
    source, gguf = converted
    with GGUFFile.open(gguf) as file:
        name = list(file.tensors)[1]
    assert name in refused(source, rewritten(gguf, tmp_path / "o.gguf", lambda p, t: t.update({name: [[0], 0, b""]})))


def damaged(source: Path, target: Path, change: Callable[[dict[str, np.ndarray]], object]) -> Path:
    """The checkpoint with changed tensors."""
    target.mkdir()
    for file in source.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            (target / file.name).write_bytes(file.read_bytes())
    tensors: dict[str, np.ndarray] = {}
    for file in source.glob("*.safetensors"):
        tensors |= load_file(file)
    change(tensors)
    save_file(tensors, target / "model.safetensors")
    return target


@pytest.mark.parametrize(
    "what", ["missing", "extra", "shape", "no rows", "no columns", "nan", "infinite", "other values", "integers"]
)
def test_a_checkpoint_that_is_not_the_one(what: str, tmp_path: Path, data_dir: Path) -> None:
    source = random_checkpoints.write(random_checkpoints.CONFIGS["zamba2"], tmp_path / "model")
    gguf = convert(source, tmp_path / "o.gguf", outtype="f16", tokenizer=data_dir / "checkpoints" / "mamba-bf16").output
    name = "model.final_layernorm.weight" if what == "no columns" else "model.embed_tokens.weight"

    def change(tensors: dict[str, np.ndarray]) -> None:
        x = tensors[name].copy()
        match what:
            case "missing":
                del tensors[name]
                return
            case "extra":
                tensors["model.nothing"] = x[:1].copy()
            case "shape":
                x = x[:-1].copy()
            case "no rows" | "no columns":
                x = x[:0].copy()
            case "nan":
                x.reshape(-1)[5] = np.nan
            case "infinite":
                x.reshape(-1)[-1] = np.inf
            case "other values":
                x.reshape(-1)[5] += 1
            case "integers":
                x = x.astype(np.int32)
        tensors[name] = x

    folder = damaged(source, tmp_path / "damaged", change)
    expected = FormatError if what == "other values" else (CheckpointError, UnsupportedError)
    says = refused(folder, gguf, expected)  # type: ignore[arg-type]
    assert (name in says) or (what == "extra" and "model.nothing" in says) or "token_embd.weight" in says, says
