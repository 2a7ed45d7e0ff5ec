"""RWKV's files equal those of llama.cpp's converter, tensor by tensor, byte by byte (interop/README.md)."""

import hashlib
import json
from pathlib import Path

import pytest
import random_checkpoints
from hybrid.convert import convert
from hybrid.quant.ggml.reader import GGUFFile
from random_checkpoints import CONFIGS
from reference.tokenizer_files import world_file, world_vocabulary

GOLDEN = json.loads(Path(__file__).with_name("interop").joinpath("rwkv.json").read_text())


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.parametrize("outtype", ["f32", "f16"])
@pytest.mark.parametrize("name", GOLDEN)
def test_file(name: str, outtype: str, tmp_path: Path) -> None:
    golden = GOLDEN[name]
    folder = random_checkpoints.write(CONFIGS[name], tmp_path / name)
    (folder / "rwkv_vocab_v20230424.txt").write_text(world_file(world_vocabulary()), encoding="utf-8")
    convert(folder, tmp_path / "ours.gguf", outtype=outtype)
    with GGUFFile.open(tmp_path / "ours.gguf") as ours:
        found = {
            key: f"{t.type.name} {list(t.shape)} {digest(ours.raw(key).tobytes())}" for key, t in ours.tensors.items()
        }
        assert found == golden[outtype]
        keys = {key: ours.metadata[key] for key in golden["keys"]}
        tokens = digest("\0".join(ours.metadata["tokenizer.ggml.tokens"].tolist()).encode())
    # there it is 261 whatever the vocabulary, which is right for the published one only
    keys["tokenizer.ggml.eot_token_id"] = 261
    assert keys == golden["keys"] | {"general.architecture": name}
    assert tokens == golden["tokens"]
