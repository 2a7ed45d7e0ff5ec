"""Makes rwkv.json from the output of llama.cpp's converter (README.md): python make_rwkv.py FOLDER

FOLDER has files made by convert_hf_to_gguf.py: NAME-{f32,f16}.gguf of the random checkpoints rwkv6 and rwkv7
(tests/random_checkpoints.py) with the vocabulary of tests/reference/tokenizer_files.py; and NAME-f16.gguf of the
checkpoints distilled from Qwen2, without a vocabulary (ARWKV's with the tensor names of `published` in
../test_interop_rwkv.py). Needs the gguf package (0.19.0).
"""

import hashlib
import json
import sys
from pathlib import Path

from gguf import GGUFReader


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def main() -> None:
    record = {}
    for name in ("rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7", "arwkv7-plain"):
        folder = Path(sys.argv[1])
        readers = {
            kind: GGUFReader(path) for kind in ("f32", "f16") if (path := folder / f"{name}-{kind}.gguf").exists()
        }
        fields = readers["f16"].fields
        keys = {
            key: field.contents()
            for key, field in fields.items()
            if key.startswith((f"{name.partition('-')[0]}.", "general.architecture", "tokenizer.ggml."))
            and not key.endswith((".tokens", "_type"))
        }
        tensors = {
            kind: {
                t.name: f"{t.tensor_type.name} {t.shape[::-1].tolist()} {digest(t.data.tobytes())}" for t in r.tensors
            }
            for kind, r in readers.items()
        }
        record[name] = {"keys": keys, **tensors}
        if "tokenizer.ggml.tokens" in fields:
            record[name]["tokens"] = digest("\0".join(fields["tokenizer.ggml.tokens"].contents()).encode())
    Path(__file__).with_name("rwkv.json").write_text(json.dumps(record, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
