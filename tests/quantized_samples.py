"""Cuts samples out of quantized checkpoints (config, some tensors, and facts on their values) for tests/data/quantized:

    python tests/quantized_samples.py SHARED/lowbits/sources tests/data/quantized

The checkpoints were made with the formats' own libraries, the facts with their own functions (`golden/meta.json`).
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

KEPT = re.compile(r"layers\.[01]\.(self_attn\.k_|linear_attn\.(in_proj_a|conv1d|norm)|mamba\.conv1d|input_layernorm)")


def cut(source: Path, folder: Path) -> None:
    """Write a sample of one checkpoint."""
    with (source / "model.safetensors").open("rb") as file:
        n = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(n))
        noted = header.pop("__metadata__", {})
        new: dict[str, Any] = {"__metadata__": {k: v for k, v in noted.items() if k == "format" or KEPT.search(k)}}
        data = b""
        for name, entry in header.items():
            if KEPT.search(name):
                start, stop = entry["data_offsets"]
                file.seek(8 + n + start)
                new[name] = {**entry, "data_offsets": [len(data), len(data) + stop - start]}
                data += file.read(stop - start)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(new).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (folder / "config.json").write_text(json.dumps(json.loads((source / "config.json").read_text())) + "\n")
    meta = json.loads((source / "golden" / "meta.json").read_text())
    facts = {name: fact for name, fact in meta["weights"].items() if KEPT.search(name)}
    (folder / "expected.json").write_text(json.dumps({"how": meta["how"], "weights": facts}) + "\n")


if __name__ == "__main__":
    for path in sorted(Path(sys.argv[1]).iterdir()):
        cut(path, Path(sys.argv[2]) / path.name)
