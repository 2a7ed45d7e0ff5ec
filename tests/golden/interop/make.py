"""Makes NAME.json from the output of llama.cpp's converter and quantizer (README.md): python make.py FOLDER NAME...

FOLDER has, for each checkpoint, NAME-{auto,f32,f16,bf16,q8_0}.gguf of the converter and, made from our NAME-ours.gguf
(f32), NAME-quantized-{F16,BF16,Q8_0,Q4_0}.gguf of the quantizer. Needs the gguf package (0.19.0), not ours.
"""

import hashlib
import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderField

OUTTYPES = ("f32", "f16", "bf16", "q8_0")
LONG = 64  # longer strings (characters) and arrays (elements or runs) are stored as digests


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def shortened(value: Any, kind: str) -> Any:
    """Long strings and arrays as {"n", "sha256"}; repeated numbers as {"runs": [[value, times], ...]}."""
    if isinstance(value, str):
        return value if len(value) <= LONG else {"n": len(value), "sha256": digest(value.encode())}
    if not isinstance(value, list):
        return value
    if kind == "STRING":
        return {"n": len(value), "sha256": digest("\0".join(value).encode())}
    runs = [[x, len(list(same))] for x, same in groupby(value)]
    if len(runs) <= LONG:
        return {"runs": runs}
    return {"n": len(value), "sha256": digest(np.array(value, "<f4" if kind == "FLOAT32" else "<i8").tobytes())}


def key_values(reader: GGUFReader) -> list[list[Any]]:
    """[key, type, value] triples; an array's type is its elements' type in brackets."""

    def entry(key: str, field: ReaderField) -> list[Any]:
        kind = field.types[-1].name
        return [key, f"[{kind}]" if len(field.types) > 1 else kind, shortened(field.contents(), kind)]

    return [entry(key, field) for key, field in reader.fields.items() if not key.startswith("GGUF.")]


def tensors(folder: Path, name: str) -> list[dict[str, Any]]:
    def read(what: str) -> dict[str, Any]:
        return {t.name: t for t in GGUFReader(folder / f"{name}-{what}.gguf").tensors}

    converted = {outtype: read(outtype) for outtype in OUTTYPES}
    quantized = {kind: read(f"quantized-{kind}") for kind in ("F16", "BF16", "Q8_0", "Q4_0")}
    ours = read("ours")
    rows = []
    for key, tensor in converted["f32"].items():
        row: dict[str, Any] = {"name": key, "shape": [int(n) for n in tensor.shape[::-1]]}
        for outtype, file in converted.items():
            row[outtype] = f"{file[key].tensor_type.name} {digest(file[key].data.tobytes())}"
        for kind, file in quantized.items():
            text = f"{file[key].tensor_type.name} {digest(file[key].data.tobytes())}"
            if text.startswith("F32 "):
                assert file[key].data.tobytes() == ours[key].data.tobytes(), key  # unchanged
            elif kind == "Q4_0":
                row["q4_0"] = text
            else:
                assert text == row[kind.lower()], (key, kind)  # quantizer and converter agree
        theirs, own = tensor.data.view(np.int32).reshape(-1), ours[key].data.view(np.int32).reshape(-1)
        if (theirs != own).any():  # by how many units in the last place their magnitudes differ from ours
            row["ulps"] = {int(i): int(theirs[i]) - int(own[i]) for i in np.nonzero(theirs != own)[0]}
        if len({row[outtype] for outtype in OUTTYPES}) == 1:
            row = {"always": row["f32"]} | {k: v for k, v in row.items() if k not in OUTTYPES}
        rows.append(row)
    return rows


def main() -> None:
    folder, *names = sys.argv[1:]
    for name in names:
        keys = ",\n".join(json.dumps(pair) for pair in key_values(GGUFReader(Path(folder, f"{name}-auto.gguf"))))
        rows = ",\n".join(json.dumps(row) for row in tensors(Path(folder), name))
        target = Path(__file__).with_name(f"{name}.json")
        target.write_text(f'{{"keys": [\n{keys}\n],\n"tensors": [\n{rows}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
