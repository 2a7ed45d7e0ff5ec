"""Writes safetensors of types that numpy lacks."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def save(path: Path, tensors: Mapping[str, tuple[str, np.ndarray]], metadata: Mapping[str, str] | None = None) -> None:
    """tensors: name -> (type in safetensors, values of that type's size)."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    data = b""
    for name, (kind, values) in tensors.items():
        header[name] = {"dtype": kind, "shape": values.shape, "data_offsets": (len(data), len(data) + values.nbytes)}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
