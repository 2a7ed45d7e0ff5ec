"""Our converter's files with vision towers and of their text models, compared with llama.cpp's: metadata key by key,
tensors byte by byte.

    PEER_SOURCE=path/to/llama.cpp PEER_PYTHON=path/to/python pytest tests/golden/test_peer_vision.py

Checkpoints are spelled as published ones where llama.cpp's converter reads no other spelling.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typed_safetensors

from hybrid.convert import convert
from hybrid.convert.checkpoint import Checkpoint
from hybrid.quant.ggml.reader import GGUFFile

SOURCE, PYTHON = os.environ.get("PEER_SOURCE", ""), os.environ.get("PEER_PYTHON", "python3")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SOURCE, reason="PEER_SOURCE names no folder of llama.cpp's sources"),
]
# name -> changed config fields; `text_config` and `vision_config` are added to the checkpoint's
CHECKPOINTS: dict[str, dict[str, Any]] = {
    "qwen35-vl": {},
    "qwen3-vl": {},
    "qwen25-vl": {},
    "smolvlm": {"text_config": {"architectures": ["LlamaForCausalLM"]}},
    "gemma3-vl": {},
    "gemma4-vl": {},
    "granite4-vision": {"text_config": {"architectures": ["GraniteForCausalLM"]}},
    "lfm2-vl": {"text_config": {"architectures": ["Lfm2ForCausalLM"]}},
}
TEXTS = ("qwen3-vl", "qwen25-vl", "smolvlm", "granite4-vision", "lfm2-vl")  # others: test_peer_converter.py
TYPES = ("f32", "f16", "bf16", "q8_0")
EXTRA = {  # keys that its converter leaves out
    "": r"hybrid\.vision\..*|hybrid\.tokenizer\..*",
    "qwen": r"clip\.vision\.image_(min|max)_pixels",
    "lfm2": r"clip\.vision\.preproc_(min|max)_tiles",
}


def published(name: str, source: Path, folder: Path) -> Path:
    """The checkpoint as llama.cpp's converter reads it."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("golden"), copy_function=shutil.copyfile)
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)
    config = json.loads((folder / "config.json").read_text())
    for key, value in CHECKPOINTS[name].items():
        config[key] = {**config[key], **value} if isinstance(value, dict) else value
    stored = Checkpoint(source).tensors
    tensors = {old: tensor.read(0, tensor.size).reshape(tensor.shape) for old, tensor in stored.items()}
    towers = ("vision_tower.embeddings.", "vision_tower.encoder.", "vision_tower.post_layernorm.")
    if name in ("gemma3-vl", "granite4-vision"):  # one more level of names
        for tower in towers:
            end = tower.removeprefix("vision_tower.")
            tensors = {old.replace(tower, f"vision_tower.vision_model.{end}"): x for old, x in tensors.items()}
    if name == "granite4-vision":
        # it takes a positive layer for another output, and the list for sorted
        first, second = config["deepstack_layer_map"]
        first[0], second[0] = -3, -1
        # and it knows only as many projectors as layers
        config["vision_config"]["num_hidden_layers"] = n_layer = 8
        layers = {old: x for old, x in tensors.items() if ".encoder.layers.0." in old}
        for i in range(3, n_layer):
            tensors |= {old.replace(".layers.0.", f".layers.{i}."): x for old, x in layers.items()}
    if name == "lfm2-vl":  # it takes patches of 16 pixels for granted
        patches = "model.vision_tower.vision_model.embeddings.patch_embedding.weight"
        random = np.random.default_rng(1).standard_normal((len(tensors[patches]), 16 * 16 * 3)).astype(np.float32)
        tensors[patches] = (random.view(np.uint32) >> 16).astype(np.uint16)
        config["vision_config"]["patch_size"] = 16
        picture = json.loads((folder / "preprocessor_config.json").read_text())
        (folder / "preprocessor_config.json").write_text(json.dumps({**picture, "encoder_patch_size": 16}))
        (folder / "processor_config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config))
    typed = {old: ("BF16", x) for old, x in sorted(tensors.items())}
    typed_safetensors.save(folder / "model.safetensors", typed, {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def both_files(tmp_path_factory: pytest.TempPathFactory, shared_dir: Path) -> dict[str, tuple[Path, Path]]:
    """Our file and llama.cpp's, by checkpoint and type, or `text`."""
    folder = tmp_path_factory.mktemp("peer")
    jobs, both = [], {}
    for name in CHECKPOINTS:
        source = published(name, shared_dir / "checkpoints" / name, folder / name)
        for kind in TYPES:
            report = convert(source, folder / f"{name}-{kind}.gguf", outtype=kind)
            assert report.vision is not None
            peers = folder / f"{name}-{kind}.peers.gguf"
            both[f"{name} {kind}"] = report.vision.output, peers
            jobs.append({"arguments": [str(source), "--mmproj", "--outfile", str(peers), "--outtype", kind]})
        text = folder / f"{name}-f16.gguf"
        with GGUFFile.open(text) as file:
            pre = file.get("tokenizer.ggml.pre", "default")
        peers = folder / f"{name}-text.peers.gguf"
        both[f"{name} text"] = text, peers
        jobs.append({"arguments": [str(source), "--outfile", str(peers), "--outtype", "f16"], "pre": pre})
    program = Path(__file__).parent / "peer_converter.py"
    jobs = [{"pre": "default", **job} for job in jobs]
    with (folder / "output").open("wb") as log:
        subprocess.run([PYTHON, program, SOURCE, json.dumps(jobs)], stdout=log, stderr=log, check=True, timeout=1200)
    print("\n".join(re.findall("^REFUSED.*", (folder / "output").read_text(errors="replace"), re.MULTILINE)))
    return both


def same(ours: GGUFFile, peers: GGUFFile, name: str) -> list[str]:
    """Differences, except for keys that llama.cpp's converter leaves out."""
    extra = "|".join(pattern for start, pattern in EXTRA.items() if name.startswith(start))
    keys = [key for key in ours.metadata if not re.fullmatch(extra, key)]
    theirs = [key for key in peers.metadata if not re.fullmatch(extra, key)]
    lines = [f"{key} is only in one file" for key in set(keys) ^ set(theirs)]
    lines += [f"{key} differs" for key in set(keys) & set(theirs) if ours.pair(key) != peers.pair(key)]
    if not lines and keys != theirs:
        lines.append("the keys have another order")
    if list(ours.tensors) != list(peers.tensors):
        lines.append(f"tensors differ: {sorted(set(ours.tensors) ^ set(peers.tensors))}, or their order")
    for tensor in set(ours.tensors) & set(peers.tensors):
        one, other = ours.tensors[tensor], peers.tensors[tensor]
        if (one.type, one.shape) != (other.type, other.shape):
            lines.append(f"{tensor} is {one.type.name} {one.shape}, there {other.type.name} {other.shape}")
        elif not np.array_equal(ours.raw(tensor), peers.raw(tensor)):
            lines.append(f"{tensor} has other bytes")
    return lines


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_towers(name: str, kind: str, both_files: dict[str, tuple[Path, Path]]) -> None:
    ours, peers = both_files[f"{name} {kind}"]
    assert peers.exists(), "llama.cpp's converter refused it"
    with GGUFFile.open(ours) as one, GGUFFile.open(peers) as other:
        assert same(one, other, name) == []


@pytest.mark.parametrize("name", TEXTS)
def test_text_models(name: str, both_files: dict[str, tuple[Path, Path]]) -> None:
    ours, peers = both_files[f"{name} text"]
    assert peers.exists(), "llama.cpp's converter refused it"
    with GGUFFile.open(ours) as one, GGUFFile.open(peers) as other:
        lines = same(one, other, name)
    assert [line for line in lines if not re.match(r"tokenizer\.|general\.", line)] == []
