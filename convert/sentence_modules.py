"""The parts of a sentence-transformers or PyLate model, from modules.json: how the rows of a text are pooled, and dense
layers that change its vector."""

from collections.abc import Iterator
from dataclasses import dataclass

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown

from .checkpoint import Checkpoint, Config, StoredTensor, read_json
from .checkpoint.safetensors import read_safetensors
from .checkpoint.tensor import DataFile

# `pooling_type` of GGUF (llama.h, LLAMA_POOLING_TYPE_*), by the settings' keys and by the newer `pooling_mode`.
MEAN, CLS, LAST = 1, 2, 3
_KEYS = {"pooling_mode_mean_tokens": MEAN, "pooling_mode_cls_token": CLS, "pooling_mode_lasttoken": LAST}
_MODES = {"mean": MEAN, "cls": CLS, "lasttoken": LAST}


@dataclass(frozen=True)
class DenseModule:
    """One dense layer: n_out rows of n_in weights, and perhaps biases."""

    folder: str
    n_in: int
    n_out: int
    tensors: dict[str, StoredTensor]  # "weight", "bias"


def _modules(checkpoint: Checkpoint, ending: str) -> Iterator[Config]:
    """The settings of the modules whose type ends so; `where` begins with the folder."""
    path = checkpoint.file("modules.json")
    modules = read_json(path) if path else None
    for module in modules if isinstance(modules, list) else []:
        kind = module.get("type") if isinstance(module, dict) else None
        if not isinstance(kind, str) or not kind.endswith(ending):
            continue
        folder = module.get("path")
        if not isinstance(folder, str) or folder in (".", "..") or "/" in folder or "\\" in folder:
            raise CheckpointError(f"modules.json: the path of {shown(kind)} is {shown(folder)}, expected a folder.")
        name = f"{folder}/config.json"
        if checkpoint.file(name) is None:
            raise CheckpointError(f"modules.json names {shown(name)}, which is not there. Download it again.")
        yield Config(checkpoint.optional_config(name).data, shown(name))


def read_pooling(checkpoint: Checkpoint) -> int | None:
    """The number of the pooling type; None if the folder does not say. UnsupportedError: another type."""
    config = next(_modules(checkpoint, "Pooling"), None)
    if config is None:
        return None
    for key, number in _KEYS.items():
        if config.get(key) is True:
            return number
    if (mode := config.get("pooling_mode")) in _MODES:
        return _MODES[mode]
    asked = [
        key.removeprefix("pooling_mode_") for key, value in config.data.items() if value is True and "mode_" in key
    ]
    raise UnsupportedError(
        f"{config.where}: pooling by {shown(', '.join(asked) or mode)} is not supported, "
        "only mean, cls and lasttoken are."
    )


def read_dense(checkpoint: Checkpoint) -> list[DenseModule]:
    """The dense layers after the pooling, in order. UnsupportedError: one with an activation."""
    found = []
    for config in _modules(checkpoint, "Dense"):
        folder = config.where.removesuffix("/config.json")
        act = config.string("activation_function", default="torch.nn.modules.linear.Identity")
        if not act.endswith("Identity"):
            raise UnsupportedError(
                f"{config.where}: activation_function = {shown(act)} is not supported, only none is."
            )
        config.expects("use_residual", False)
        path = checkpoint.file(f"{folder}/model.safetensors")
        if path is None:
            raise CheckpointError(
                f"{shown(folder)} has no model.safetensors, the weights of a layer. Download it again."
            )
        stored = {name.removeprefix("linear."): tensor for name, tensor in read_safetensors(DataFile(path)).items()}
        n_in, n_out = config.integer("in_features"), config.integer("out_features")
        shapes = {"weight": (n_out, n_in), **({"bias": (n_out,)} if config.boolean("bias", default=True) else {})}
        if {name: tensor.shape for name, tensor in stored.items()} != shapes:
            has = ", ".join(f"{shown(name)} {list(tensor.shape)}" for name, tensor in stored.items())
            raise CheckpointError(
                f"{shown(folder)}: model.safetensors has {has}, expected {shapes} by its config.json."
            )
        found.append(DenseModule(folder, n_in, n_out, stored))
    return found
