"""Pooling of sentence-transformers models: modules.json and the settings of its pooling module."""

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown

from .checkpoint import Checkpoint, Config, read_json

# `pooling_type` of GGUF (llama.h, LLAMA_POOLING_TYPE_*), by the settings' keys and by the newer `pooling_mode`.
MEAN, CLS, LAST = 1, 2, 3
_KEYS = {"pooling_mode_mean_tokens": MEAN, "pooling_mode_cls_token": CLS, "pooling_mode_lasttoken": LAST}
_MODES = {"mean": MEAN, "cls": CLS, "lasttoken": LAST}


def read_pooling(checkpoint: Checkpoint) -> int | None:
    """The number of the pooling type; None if the folder does not say. UnsupportedError: another type."""
    path = checkpoint.file("modules.json")
    if path is None:
        return None
    modules = read_json(path)
    for module in modules if isinstance(modules, list) else []:
        kind = module.get("type") if isinstance(module, dict) else None
        if isinstance(kind, str) and kind.endswith("Pooling"):
            folder = module.get("path")
            if not isinstance(folder, str) or folder in (".", "..") or "/" in folder or "\\" in folder:
                raise CheckpointError(f"modules.json: the path of {shown(kind)} is {shown(folder)}, expected a folder.")
            name = f"{folder}/config.json"
            if checkpoint.file(name) is None:
                raise CheckpointError(f"modules.json names {shown(name)}, which is not there. Download it again.")
            return _read(Config(checkpoint.optional_config(name).data, shown(name)))
    return None


def _read(config: Config) -> int:
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
