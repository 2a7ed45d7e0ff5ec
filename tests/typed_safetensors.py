"""Writes safetensors of types that numpy lacks."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def save(path: Path, tensors: Mapping[str, tuple[str, np.ndarray]]) -> None:
    """tensors: name -> (type in safetensors, values of that type's size)."""
    header, data = {}, b""
    for name, (kind, values) in tensors.items():
        header[name] = {"dtype": kind, "shape": values.shape, "data_offsets": (len(data), len(data) + values.nbytes)}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
