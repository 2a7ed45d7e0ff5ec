"""Checkpoints with rotated ternary weights, written as an MLX pack, beside a packing file, and without the rotation."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import random_checkpoints
from reference.attention import hadamard
from safetensors.numpy import save_file

BLOCK = 128
CONFIG: dict[str, Any] = {
    **random_checkpoints.CONFIGS["qwen35"], "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4,
    "linear_num_value_heads": 8, "linear_key_head_dim": 32, "linear_value_head_dim": 32, "tie_word_embeddings": False,
}  # fmt: skip
EMBEDDING = "model.embed_tokens.weight"
_KINDS = ("_proj.weight", "in_proj_qkv.weight", "in_proj_z.weight", "lm_head.weight")
_UNROTATED = ("in_proj_a.weight", "in_proj_b.weight")
_SHIFTED = ("input_layernorm.weight", "post_attention_layernorm.weight", "model.norm.weight", "q_norm.weight",
            "k_norm.weight")  # fmt: skip


class Rotated:
    """codes i8 and scales f32 of every rotated matrix; the other tensors of the checkpoint."""

    def __init__(self, *, tied: bool = False) -> None:
        self.config = random_checkpoints.complete({**CONFIG, "tie_word_embeddings": tied})
        rng = np.random.default_rng(8)
        every = random_checkpoints.tensors(self.config)
        self.folded = sorted(n for n in every if n.endswith(_KINDS) and not n.endswith(_UNROTATED))
        self.signs = {width: rng.choice([-1, 1], width) for width in (128, 256)}
        self.codes, self.scales = {}, {}
        for name in (*self.folded, EMBEDDING):
            rows, width = every[name].shape
            self.codes[name] = rng.integers(0, 3, (rows, width)).astype(np.uint8)
            scales = rng.uniform(0.5, 1.5, (rows, width // BLOCK)) / np.sqrt(width)
            self.scales[name] = scales.astype(np.float16)
        self.others = {name: x for name, x in every.items() if name not in self.codes}

    def rotated(self, name: str) -> np.ndarray:
        return (self.codes[name] - 1.0) * np.repeat(self.scales[name].astype(np.float64), BLOCK, axis=1)

    def write_plain(self, folder: Path) -> Path:
        """The weights as they were before the rotation."""
        weights = {
            name: (hadamard(self.rotated(name), BLOCK) * self.signs[self.codes[name].shape[1]]).astype(np.float32)
            for name in self.codes
        }
        return self._write(folder, self.config, self.others | weights)

    def write_beside_file(self, folder: Path, **changes: Any) -> Path:
        """The rotated weights in f32, and hadamard_packing.json."""
        roles = [(name, "fold-before-matmul") for name in self.folded] + [(EMBEDDING, "inverse-after-lookup")]
        packing: dict[str, Any] = {
            "schema_version": 1, "kind": "hadamard-weight-fold", "status": "requires-matching-runtime",
            "transform": {
                "name": "normalized-signed-sylvester-walsh-hadamard", "block_size": BLOCK, "sign_mode": "explicit",
            },
            "signs": {str(width): signs.tolist() for width, signs in self.signs.items()},
            "tensors": [{"name": name, "axis": -1, "role": role} for name, role in roles],
        }  # fmt: skip
        self._write(folder, self.config, self.others | {n: self.rotated(n).astype(np.float32) for n in self.codes})
        (folder / "hadamard_packing.json").write_text(json.dumps(packing | changes))
        return folder

    def write_pack(self, folder: Path, schema: int = 2, keys: dict[str, Any] | None = None, **changes: Any) -> Path:
        """As mlx-lm stores it. keys, changes: of hadamard.json and config.json."""
        prefix = "language_model." if schema == 2 else ""
        weights: dict[str, np.ndarray] = {}
        for name, x in self.others.items():
            x = x.transpose(0, 2, 1) if name.endswith("conv1d.weight") else x
            weights[prefix + name] = np.ascontiguousarray(x + 1 if name.endswith(_SHIFTED) else x)
        for name, codes in self.codes.items():
            base = prefix + name.removesuffix("weight")
            shifts = 2 * np.arange(16, dtype=np.uint32)
            words = codes.reshape(len(codes), -1, 16).astype(np.uint32) << shifts
            weights[base + "weight"] = np.bitwise_or.reduce(words, axis=2)
            weights[base + "scales"], weights[base + "biases"] = self.scales[name], -self.scales[name]
            weights[base + "signs"] = self.signs[codes.shape[1]].astype(np.float32)
        modules = [
            {"path": name.removesuffix(".weight"), "block": BLOCK, "embedding": name == EMBEDDING, "dtype": "float16"}
            for name in self.codes
        ]
        hadamard_keys = {
            "version": 1, "block_size": BLOCK, "transform": "normalized-sylvester-walsh-hadamard",
            "axis": "input-last-dimension", "sign_mode": "explicit", "gdn_v_grouped": True,
            "weight_names": [prefix + name for name in self.folded], "inverse_weight_names": [prefix + EMBEDDING],
            "sign_widths": [*self.signs], "sign_values": np.concatenate([*self.signs.values()]).tolist(),
        } | (keys or {})  # fmt: skip
        text = {**self.config, "model_type": "qwen3_5_text"}
        del text["architectures"]
        config = {
            "schema_version": schema, "model_type": "prism_hadamard_qwen35", "text_config": text, "modules": modules,
            "quantization": {"bits": 2, "group_size": 128, "mode": "affine"}, "requires_runtime": "runtime/artifact.py",
            "hadamard_config": "hadamard.json", "gdn_activation_layout": "grouped", "base_model_type": "qwen3_5",
            "tensor_namespace": "mlx-vlm-qwen3_5" if schema == 2 else "mlx-lm-text", "tie_word_embeddings": False,
            "components": {"text": True, "vision": False, "mtp": False},
        }  # fmt: skip
        self._write(folder, config | changes, weights, {"format": "mlx"})
        named = {f"prism.hadamard.{key}": value for key, value in hadamard_keys.items() if value is not None}
        (folder / "hadamard.json").write_text(json.dumps(named))
        return folder

    @staticmethod
    def _write(
        folder: Path, config: dict[str, Any], weights: dict[str, np.ndarray], metadata: dict[str, str] | None = None
    ) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        save_file(weights, folder / "model.safetensors", metadata)
        return folder
