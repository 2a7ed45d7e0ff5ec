"""The files of a checkpoint: which ones contain weights, and whether all are present."""

import re
from functools import cached_property
from pathlib import Path, PurePosixPath

from hybrid.quant.ggml.errors import CheckpointError, Remedy, UsageError, shown
from hybrid.quant.ggml.reader import MAX_TENSORS

from .config import Config, kind_of, read_object
from .folded import folding_of, plain_config
from .safetensors import read_safetensors
from .tensor import DataFile, StoredTensor
from .torch_zip import read_torch

_PART = re.compile(r"(.*-)(\d+)-of-(\d+)(\.(?:safetensors|bin))")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")


class Checkpoint:
    """A folder with config.json and weights."""

    def __init__(self, source: Path | str) -> None:
        """`source`: the folder, its config.json, or one of its weight files (then only that one is read)."""
        source = Path(source)
        if not source.exists():
            raise UsageError(f"{shown(source)} does not exist. Give the folder of a Hugging Face checkpoint.")
        self._only: Path | None = None
        if source.is_file():
            if source.suffix == ".gguf":
                raise UsageError(f"{shown(source)} is a GGUF file already.", remedy=Remedy.QUANTIZE)
            if source.suffix in _WEIGHTS and not source.name.endswith(".index.json"):
                self._only = None if _PART.fullmatch(source.name) else source
            elif source.suffix != ".json":
                raise UsageError(f"{shown(source)} is not a checkpoint. Give its folder, config.json or weights.")
            self.folder = source.parent
        else:
            self.folder = source
        config = self.folder / "config.json"
        if not config.is_file():
            raise CheckpointError(
                f"{shown(self.folder)} has no config.json. Give the folder of a Hugging Face checkpoint."
            )
        stated = self._with_quantization(Config.read(config))
        self.folding = folding_of(stated, self.folder)
        self.config = plain_config(stated)

    def _with_quantization(self, config: Config) -> Config:
        """The config with the quantization settings that older tools store in a separate file."""
        if "quantization_config" in config:
            return config
        stated: dict[str, object] = {}
        if self.file("quantize_config.json"):
            stated = {"quant_method": "gptq", **self.optional_config("quantize_config.json").data}
        elif self.file("hf_quant_config.json"):
            inner = self.optional_config("hf_quant_config.json").section("quantization")
            stated = {"quant_method": "modelopt", **inner.data}
        return Config({**config.data, "quantization_config": stated}, config.where) if stated else config

    @property
    def name(self) -> str:
        """The name of the folder, or `organization/model` for one in Hugging Face's cache."""
        folder = self.folder.absolute()
        parts = folder.parent.parent.name.split("--")
        if folder.parent.name == "snapshots" and parts[0] == "models" and len(parts) > 1:
            return "/".join(parts[1:])
        return folder.resolve().name

    def file(self, name: str) -> Path | None:
        """The path of a file in the folder, or None."""
        path = self.folder / name
        return path if path.is_file() else None

    def optional_config(self, name: str) -> Config:
        """A JSON file in the folder; empty if absent."""
        path = self.file(name)
        return Config.read(path) if path else Config({}, name)

    @cached_property
    def files(self) -> list[Path]:
        """The weight files in reading order. CheckpointError: one is missing."""
        if self._only:
            return [self._only]
        for index, whole, pattern in (
            ("model.safetensors.index.json", "model.safetensors", "model*.safetensors"),
            ("pytorch_model.bin.index.json", "pytorch_model.bin", "pytorch_model*.bin"),
        ):
            if path := self.file(index):
                return self._indexed(path)
            if path := self.file(whole):
                return [path]
            if parts := sorted(self.folder.glob(pattern)):
                self._check_parts(parts)
                return parts
        raise CheckpointError(
            f"{shown(self.folder)} has no weights: neither model.safetensors nor pytorch_model.bin, whole or in parts."
        )

    @cached_property
    def tensors(self) -> dict[str, StoredTensor]:
        """All tensors by name, in reading order: by file, then by name."""
        tensors: dict[str, StoredTensor] = {}
        for path in self.files:
            file = DataFile(path)
            in_file = read_safetensors(file) if path.suffix == ".safetensors" else read_torch(file)
            for name in sorted(in_file):
                if name in tensors:
                    raise CheckpointError(
                        f"tensor {shown(name)} is both in {tensors[name].file.where} and in {file.where}. Keep one."
                    )
                tensors[name] = in_file[name]
            if len(tensors) > MAX_TENSORS:
                raise CheckpointError(
                    f"{shown(self.folder)} has more than {MAX_TENSORS} tensors, the most that are converted."
                )
        self._check_index(tensors)
        return tensors

    @cached_property
    def _weight_map(self) -> dict[str, str]:
        """Tensor -> file, from the index; empty without one."""
        if self._only:
            return {}
        for name in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
            path = self.file(name)
            if path is None:
                continue
            index = Config(read_object(path), name)
            entries = index.section("weight_map").data
            if not entries:
                raise CheckpointError(f"{name} has no weight_map. Download it again.")
            for tensor, file in entries.items():
                if not isinstance(file, str):
                    raise CheckpointError(f"{name}: {shown(tensor)} is in {kind_of(file)}, expected a file name.")
                # Only names of files beside the index: a path could lead anywhere on this machine.
                if PurePosixPath(file).name != file or "\\" in file or not file.endswith((".safetensors", ".bin")):
                    raise CheckpointError(f"{name}: {shown(file)} is not the name of a weight file beside it.")
            return dict(entries)
        return {}

    def _indexed(self, index: Path) -> list[Path]:
        names = sorted(set(self._weight_map.values()))
        missing = [name for name in names if not self.file(name)]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise CheckpointError(f"{shown(missing[0])}{more}, which {index.name} names, is missing. Download it.")
        return [self.folder / name for name in names]

    @staticmethod
    def _check_parts(parts: list[Path]) -> None:
        """CheckpointError: without an index, the names of the parts state more parts than are present."""
        for path in parts:
            match = _PART.fullmatch(path.name)
            if match and len(parts) != int(match[3]):
                raise CheckpointError(f"{shown(path.name)} is one of {int(match[3])} parts; {len(parts)} are there.")

    def _check_index(self, tensors: dict[str, StoredTensor]) -> None:
        for name, file in self._weight_map.items():
            if name not in tensors or tensors[name].file.path.name != file:
                raise CheckpointError(
                    f"{shown(file)} has no tensor {shown(name)}, which the index says it has. Download it again."
                )
