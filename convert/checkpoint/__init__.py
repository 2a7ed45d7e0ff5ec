"""Reads Hugging Face checkpoints from disk: configuration files and weights, which are checked first."""

from .config import Config, read_json, read_object
from .folder import Checkpoint
from .tensor import Dtype, StoredTensor

__all__ = ["Checkpoint", "Config", "Dtype", "StoredTensor", "read_json", "read_object"]
