"""A GGUF file with two kinds of layers, for tests of commands that describe a file; it cannot run."""

from pathlib import Path

import numpy as np

from hybrid.quant.ggml import formats
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter

D_INNER, D_STATE, D_CONV, N_KV, D_HEAD = 96, 7, 4, 3, 32
TENSORS = {
    "token_embd.weight": ((11, 64), GGMLType.Q8_0),
    "blk.0.ssm_a": ((D_INNER, D_STATE), GGMLType.F32),
    "blk.0.ssm_conv1d.weight": ((D_INNER, D_CONV), GGMLType.F32),
    "blk.1.attn_q.weight": ((64, 64), GGMLType.Q4_0),
    "blk.1.attn_k.weight": ((N_KV * D_HEAD, 64), GGMLType.F16),
    "blk.1.attn_v.weight": ((N_KV * D_HEAD, 64), GGMLType.F16),
    "blk.1.ffn_gate_inp.weight": ((2, 64), GGMLType.F32),
    "blk.1.ffn_up_exps.weight": ((2, 5, 64), GGMLType.Q8_0),
}


def write(path: Path) -> Path:
    """A layer of Mamba, one of attention with experts, one without tensors; a name with an escape sequence."""
    with GGUFWriter(path, "jamba") as writer:
        writer.add("general.name", "Tiny\x1b[31m")
        writer.add("general.file_type", 7)
        writer.add("jamba.block_count", 3)
        writer.add("jamba.ssm.inner_size", D_INNER)
        writer.add("jamba.ssm.state_size", D_STATE)
        writer.add("tokenizer.ggml.tokens", [f"t{i}" for i in range(11)])
        for name, (shape, kind) in TENSORS.items():
            writer.declare(name, shape, kind)
        for name, (shape, kind) in TENSORS.items():
            writer.write(name, formats.encode(kind, np.zeros(shape, np.float32)))
    return path
