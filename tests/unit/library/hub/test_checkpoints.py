"""Exactly the files of a checkpoint that a conversion reads are downloaded."""

import json
import shutil
from pathlib import Path

import pytest

from hybrid.convert import convert
from hybrid.hub import checkpoints
from hybrid.hub.names import Name
from hybrid.hub.repository import Listing, RepoFile
from hybrid.quant.ggml.errors import HybridError, UnsupportedError, UsageError
from hybrid.quant.ggml.types import FileType


def listing(*paths: str, nbytes: int = 1) -> Listing:
    return Listing("org/name", "0" * 40, tuple(RepoFile(path, nbytes, "0" * 64) for path in paths))


def paths(files: list[RepoFile]) -> list[str]:
    return [file.path for file in files]


def test_what_is_chosen_converts_to_the_same_file(bundled: Path, tmp_path: Path) -> None:
    whole = tmp_path / "jamba"
    shutil.copytree(bundled, whole)
    for name in ("model.onnx", "training_args.bin", "flax_model.msgpack", "merges.txt", "sub/config.json"):
        (whole / name).parent.mkdir(exist_ok=True)
        (whole / name).write_bytes(b"x")
    there = listing(*(path.relative_to(whole).as_posix() for path in whole.rglob("*") if path.is_file()))
    chosen = [*checkpoints.small_files(there), *checkpoints.weights(there, whole)]
    folder = tmp_path / "chosen" / "jamba"
    for file in chosen:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(whole / file.path, folder / file.path)
    convert(whole, tmp_path / "whole.gguf")
    convert(folder, tmp_path / "chosen.gguf")
    assert (tmp_path / "whole.gguf").read_bytes() == (tmp_path / "chosen.gguf").read_bytes()
    assert not {"model.onnx", "training_args.bin", "flax_model.msgpack", "sub/config.json"} & set(paths(chosen))


def test_nothing_else_is_opened_by_a_conversion(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks every name that conversions of the tests' folders ask for."""
    asked: set[str] = set()
    original = Path.is_file

    def is_file(self: Path) -> bool:
        if tmp_path in self.parents:
            asked.add(self.relative_to(tmp_path).as_posix().partition("/")[2])
        return original(self)

    monkeypatch.setattr(Path, "is_file", is_file)
    for i, source in enumerate(sorted((data_dir / "checkpoints").iterdir())):
        if (source / "config.json").exists():
            folder = tmp_path / str(i)
            shutil.copytree(source, folder)
            convert(folder, tmp_path.parent / f"{tmp_path.name}.gguf")
    monkeypatch.undo()
    assert asked
    known = listing(*(name for name in asked if name))
    read = {*paths(checkpoints.small_files(known)), *(name for name in asked if checkpoints.is_weights(name))}
    assert {name for name in asked if name} - read == set(), "read by a conversion, and not downloaded"


def test_a_tokenizer_of_two_files() -> None:
    there = ["config.json", "merges.txt", "vocab.json"]
    assert paths(checkpoints.small_files(listing(*there, "vocab.bpe"))) == there


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        (["model.safetensors", "pytorch_model.bin", "consolidated.safetensors"], ["model.safetensors"]),
        (["pytorch_model.bin", "adapter_model.bin"], ["pytorch_model.bin"]),
        (["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"],) * 2,
        (["model-00001-of-00001.safetensors", "original/consolidated.00.pth"], ["model-00001-of-00001.safetensors"]),
        (["onnx/model.onnx", "tf_model.h5"], []),
        (["sub/model.safetensors"], []),
    ],
)
def test_weights(there: list[str], chosen: list[str]) -> None:
    assert paths(checkpoints.weights(listing("config.json", *there), None)) == chosen
    assert checkpoints.has_checkpoint(listing("config.json", *there)) == bool(chosen)
    assert not checkpoints.has_checkpoint(listing(*there))


def test_an_index_says_which_parts(tmp_path: Path) -> None:
    parts = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    there = listing("config.json", "model.safetensors.index.json", "model.fp16.safetensors", *parts)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": parts[0], "b": parts[1], "c": "../../x"}}))
    assert paths(checkpoints.weights(there, tmp_path)) == parts
    for damaged in ("[]", "{", '{"weight_map": 3}', '{"weight_map": {}}'):
        index.write_text(damaged)
        assert set(parts) <= set(paths(checkpoints.weights(there, tmp_path)))


def test_an_absurd_file_beside_the_weights() -> None:
    with pytest.raises(HybridError, match=r"tokenizer\.json has \d+ bytes, too many"):
        checkpoints.small_files(listing("tokenizer.json", nbytes=1 << 40))


def test_types() -> None:
    assert checkpoints.file_type(Name("o/n")) is None
    assert checkpoints.file_type(Name("o/n", "q4_k")) is FileType.Q4_K_M
    assert checkpoints.file_type(Name("o/n", "fp16")) is FileType.F16
    assert checkpoints.file_type(Name("o/n", "nvfp4")) is FileType.NVFP4
    for wrong in ("Q9", "IQ2_XS", "Q2_K_S", "Q4_K_XL"):
        with pytest.raises(UsageError):
            checkpoints.file_type(Name("o/n", wrong))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"quantization_config": {"quant_method": "quanto"}}, "by quanto, which is not read"),
        (
            {"model_type": "nanochat", "quantization": {"bits": 4, "group_size": 64}},
            "nanochat: an MLX folder of a family that is not supported",
        ),
    ],
)
def test_a_quantization_that_cannot_be_read(settings: dict[str, object], says: str, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **settings}))
    with pytest.raises(UnsupportedError, match=f"o/n: .*{says}.* Its weights were not downloaded"):
        checkpoints.check_supported("o/n", config)
