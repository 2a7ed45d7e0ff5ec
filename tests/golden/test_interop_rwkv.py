"""RWKV's files equal llama.cpp's, tensor by tensor, byte by byte (interop/README.md)."""

import hashlib
import json
from pathlib import Path

import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from reference.tokenizer_files import world_file, world_vocabulary
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.quant.ggml.reader import GGUFFile

GOLDEN = json.loads(Path(__file__).with_name("interop").joinpath("rwkv.json").read_text())


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def published(name: str) -> str:
    """A tensor's name in ARWKV's checkpoints, whose low-rank matrices have the same layout as ours."""
    name = name.replace(".attn.", ".self_attn.time_mixer.").replace("g_norm", "ln_x")
    for ours, theirs in (("r", "receptance"), ("k", "key"), ("v", "value"), ("o", "output")):
        name = name.replace(f"time_mixer.{ours}_proj", f"time_mixer.{theirs}")
    for ours, theirs in (("0.weight", "1"), ("2.weight", "2"), ("2.bias", "0")):
        name = name.replace(f"_lora.lora.{ours}", theirs)
    return name


@pytest.mark.parametrize(
    ("name", "outtype"), [(n, kind) for n in GOLDEN for kind in ("f32", "f16") if kind in GOLDEN[n]]
)
def test_file(name: str, outtype: str, tmp_path: Path, data_dir: Path) -> None:
    golden = GOLDEN[name]
    folder, tokenizer = random_checkpoints.write(CONFIGS[name], tmp_path / name), None
    if "tokens" in golden:
        (folder / "rwkv_vocab_v20230424.txt").write_text(world_file(world_vocabulary()), encoding="utf-8")
    else:
        tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    if name.startswith("arwkv7"):
        tensors = load_file(folder / "model.safetensors")
        save_file({published(key): values for key, values in tensors.items()}, folder / "model.safetensors")
    convert(folder, tmp_path / "ours.gguf", outtype=outtype, tokenizer=tokenizer)
    with GGUFFile.open(tmp_path / "ours.gguf") as ours:
        as_written = {
            key: f"{t.type.name} {list(t.shape)} {digest(ours.raw(key).tobytes())}" for key, t in ours.tensors.items()
        }
        assert as_written == golden[outtype]
        keys = {key: ours.metadata[key] for key in golden["keys"]}
        if "tokens" in golden:
            assert digest("\0".join(ours.metadata["tokenizer.ggml.tokens"].tolist()).encode()) == golden["tokens"]
            # llama.cpp always writes 261, which is right only for the published vocabulary
            keys["tokenizer.ggml.eot_token_id"] = 261
    assert keys == golden["keys"]
