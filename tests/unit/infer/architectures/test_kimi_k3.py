"""Kimi K3 from damaged files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import random_checkpoints
from random_checkpoints import CONFIGS

from hybrid.convert import convert
from hybrid.convert.architectures.kimi_k3 import KimiK3
from hybrid.infer import LoadedModel
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.types import FileType

KEYS = KimiK3.keys


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attn_res.block_size", 0, r"attn_res\.block_size = 0, expected .*1"),
        ("attn_res.block_size", None, r"kimi-k3\.attn_res\.block_size"),
        ("activation.situ_beta", 0.0, r"activation\.situ_beta = 0\.0, expected a positive number"),
        ("kda.gate_lower_bound", 0.5, r"kda\.gate_lower_bound = 0\.5, expected a negative number, or none"),
        ("expert_latent_length", 16, r"ffn_(routed_down|gate_exps|up_exps|down_exps).* has shape"),
        ("expert_gating_func", 3, r"expert_gating_func = 3, expected 1, softmax, or 2"),
    ],
)
def test_errors(
    key: str, value: Any, message: str, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keys(self: KimiK3, file_type: FileType) -> Iterator[tuple[str, Any]]:
        for name, stated in KEYS(self, file_type):
            if (changed := value if name == key else stated) is not None:
                yield name, changed

    monkeypatch.setattr(KimiK3, "keys", keys)
    source = random_checkpoints.write(CONFIGS["kimi-k3"], tmp_path / "model")
    convert(source, tmp_path / "m.gguf", outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    with pytest.raises(FormatError, match=message):
        LoadedModel.load(tmp_path / "m.gguf", n_ctx=32)
