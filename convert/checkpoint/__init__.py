"""A Hugging Face checkpoint as it lies on disk: configuration files and weights, checked before they are believed."""

from .config import Config, read_json, read_object
from .folder import Checkpoint
from .tensor import Dtype, StoredTensor

__all__ = ["Checkpoint", "Config", "Dtype", "StoredTensor", "read_json", "read_object"]
