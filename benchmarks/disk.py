"""Converting a large checkpoint compared with copying its files: time, their ratio, and peak memory.

    python benchmarks/disk.py [--folder DIR] [--shape jamba-3b] [--outtype auto] [--rounds 2]

Writes a random bf16 checkpoint of a Jamba (jamba-3b: 6 GB) into DIR, which needs three times its size free, and removes
everything afterwards. Before each run the source's pages are dropped from the page cache, and both runs end with an
fsync, so both read from and write to the disk. Copy and convert alternate; the ratio is that of the medians.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from math import prod
from pathlib import Path
from statistics import median

import numpy as np

from hybrid.infer.bench.random_weights import Fill, RandomWeights
from hybrid.infer.bench.shapes import ModelShape, find_shape
from hybrid.infer.bench.tables import duration, markdown_table, size
from hybrid.quant.ggml.errors import HybridError, UsageError
from hybrid.quant.ggml.types import GGMLType

TOKENIZER = Path(__file__).resolve().parent.parent / "library" / "bundled" / "jamba-11m"
_SHARD = 2 << 30

# GGUF name -> name in a Jamba repository, which stores the logarithm of ssm_a; random weights need not be exact.
_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.final_layernorm.weight",
    "output.weight": "lm_head.weight",
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "pre_ff_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ssm_in.weight": "mamba.in_proj.weight",
    "ssm_conv1d.weight": "mamba.conv1d.weight",
    "ssm_conv1d.bias": "mamba.conv1d.bias",
    "ssm_x.weight": "mamba.x_proj.weight",
    "ssm_dt.weight": "mamba.dt_proj.weight",
    "ssm_dt.bias": "mamba.dt_proj.bias",
    "ssm_dt_norm.weight": "mamba.dt_layernorm.weight",
    "ssm_b_norm.weight": "mamba.b_layernorm.weight",
    "ssm_c_norm.weight": "mamba.c_layernorm.weight",
    "ssm_a": "mamba.A_log",
    "ssm_d": "mamba.D",
    "ssm_out.weight": "mamba.out_proj.weight",
    "ffn_gate.weight": "feed_forward.gate_proj.weight",
    "ffn_up.weight": "feed_forward.up_proj.weight",
    "ffn_down.weight": "feed_forward.down_proj.weight",
}


def main() -> int:
    """Write a random checkpoint, then copy and convert it in turn; print times and peak memory."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="where to write (default: the system's temporary folder)")
    parser.add_argument("--shape", default="jamba-3b", help="a dense Jamba")
    parser.add_argument("--outtype", default="auto")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    try:
        print(run(find_shape(args.shape), args.folder, args.outtype, args.rounds))
    except HybridError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def run(shape: ModelShape, parent: Path | None, outtype: str, rounds: int) -> str:
    """The report as markdown."""
    if shape.arch != "jamba" or shape.n_expert > 1:
        raise UsageError(f"--shape {shape.name}: a dense Jamba is expected, as jamba-3b.")
    with tempfile.TemporaryDirectory(prefix="hybrid-disk-", dir=parent) as name:
        folder = Path(name)
        source = folder / "checkpoint"
        needed = 3 * 2 * shape.n_params
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise UsageError(f"{folder.parent} has {size(free)} free, {size(needed)} are needed. Use --folder.")
        note(f"writing a checkpoint of {size(2 * shape.n_params)}")
        write_checkpoint(shape, source)
        copies, converts, memory = [], [], []
        for i in range(rounds):
            note(f"round {i + 1} of {rounds}")
            drop_from_cache(source)
            copies.append(copy(source, folder / "copy"))
            drop_from_cache(source)
            seconds, peak = convert(source, folder / "converted.gguf", outtype)
            converts.append(seconds)
            memory.append(peak)
            written = (folder / "converted.gguf").stat().st_size
            (folder / "converted.gguf").unlink()
        nbytes = sum(path.stat().st_size for path in source.iterdir())
        largest = max(prod(tensor.shape) * 2 for tensor in shape.tensors())
    ratio = median(converts) / median(copies)
    peak = max(memory)
    rows = [
        ["copy", size(nbytes), size(nbytes), spread(copies), rate(nbytes, copies), "-", "1"],
        ["convert", size(nbytes), size(written), spread(converts), rate(nbytes, converts), size(peak), f"{ratio:.2f}"],
    ]
    header = ["", "read", "written", "time", "rate", "peak memory", "ratio"]
    return f"{markdown_table(header, rows)}\nLargest tensor {size(largest)}; {rounds} rounds, alternating, uncached."


def write_checkpoint(shape: ModelShape, folder: Path) -> None:
    """A Hugging Face folder with sharded bf16 safetensors and the bundled model's tokenizer."""
    folder.mkdir()
    for path in TOKENIZER.iterdir():
        if path.suffix in (".json", ".model") and "safetensors" not in path.name and path.name != "config.json":
            shutil.copy(path, folder)
    (folder / "config.json").write_text(json.dumps(config(shape)))
    weights = RandomWeights(0)
    shards: list[dict[str, tuple[Fill, tuple[int, ...]]]] = [{}]
    filled = 0
    for tensor in shape.tensors():
        nbytes = 2 * prod(tensor.shape)
        if filled + nbytes > _SHARD and shards[-1]:
            shards.append({})
            filled = 0
        dims = (tensor.shape[0], 1, tensor.shape[1]) if tensor.fill is Fill.CONV else tensor.shape
        shards[-1][hf_name(tensor.name)] = (tensor.fill, dims)
        filled += nbytes
    places = {}
    for i, shard in enumerate(shards):
        path = folder / f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_safetensors(path, shard, weights)
        places.update(dict.fromkeys(shard, path.name))
    index = {"metadata": {"total_size": 2 * shape.n_params}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write_safetensors(path: Path, tensors: dict[str, tuple[Fill, tuple[int, ...]]], weights: RandomWeights) -> None:
    """Write random bf16 tensors as one safetensors file, in constant memory."""
    header = {}
    offset = 0
    for name, (_, shape) in tensors.items():
        end = offset + 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for fill, shape in tensors.values():
            matrix = fill in (Fill.WEIGHT, Fill.SSM_WEIGHT)
            for chunk in bf16(weights, fill, shape) if not matrix else weights.chunks(fill, shape, GGMLType.BF16):
                file.write(chunk.data)
        file.flush()
        os.fsync(file.fileno())


def bf16(weights: RandomWeights, fill: Fill, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    for chunk in weights.chunks(Fill.ONE if fill is Fill.SSM_A else fill, shape, GGMLType.F32):
        yield np.ascontiguousarray(chunk.reshape(-1).view(np.uint16)[1::2])


def hf_name(name: str) -> str:
    if name.startswith("blk."):
        _, layer, rest = name.split(".", 2)
        return f"model.layers.{layer}.{_NAMES[rest]}"
    return _NAMES[name]


def config(shape: ModelShape) -> dict[str, object]:
    """The config.json of a Jamba of this shape."""
    return {
        "architectures": ["JambaForCausalLM"], "model_type": "jamba", "torch_dtype": "bfloat16",
        "hidden_size": shape.n_embd, "intermediate_size": shape.n_ff, "num_hidden_layers": shape.n_layer,
        "num_attention_heads": shape.n_head, "num_key_value_heads": shape.n_head_kv, "hidden_act": "silu",
        "attn_layer_offset": shape.attn_offset, "attn_layer_period": shape.attn_period, "num_experts": 1,
        "num_experts_per_tok": 1, "expert_layer_offset": 1, "expert_layer_period": 2, "rms_norm_eps": shape.eps,
        "mamba_d_conv": shape.d_conv, "mamba_d_state": shape.d_state, "mamba_dt_rank": shape.dt_rank, "mamba_expand": 2,
        "mamba_conv_bias": True, "mamba_proj_bias": False, "vocab_size": shape.n_vocab,
        "max_position_embeddings": shape.n_ctx_train, "tie_word_embeddings": shape.tied,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip


def drop_from_cache(folder: Path) -> None:
    """Ask the system to drop the files' pages from its cache; only on Linux."""
    if not hasattr(os, "posix_fadvise"):
        return
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def copy(source: Path, target: Path) -> float:
    start = time.perf_counter()
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    for path in target.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    seconds = time.perf_counter() - start
    shutil.rmtree(target)
    return seconds


def convert(source: Path, target: Path, outtype: str) -> tuple[float, int]:
    """Seconds and peak resident bytes of `hybrid convert`."""
    hybrid = Path(sys.executable).with_name("hybrid")
    start = time.perf_counter()
    words = [str(hybrid), "convert", str(source), "-o", str(target), "--outtype", outtype]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    output = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise UsageError(f"hybrid convert failed: {(output.strip().splitlines() or ['no output'])[-1]}")
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def spread(values: list[float]) -> str:
    return f"{duration(median(values))} ({min(values):.1f} - {max(values):.1f})"


def rate(nbytes: int, seconds: list[float]) -> str:
    return f"{nbytes / median(seconds) / 1e6:.0f} MB/s"


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
