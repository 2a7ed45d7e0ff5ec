"""Qwen3-VL and Qwen3.5: patches in merged blocks, axial RoPE, full attention; outputs of some layers go to text layers
of their own (Qwen3-VL only). arXiv:2511.21631"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.vision.settings import PictureSettings

from ..architectures.family import Row, row
from ..checkpoint import Config
from ..transforms import every_other_row
from .processor import PictureConfig
from .smart_resize import FRAMES, check_output, read_rope, read_smart_resize
from .tower import SIZES, Sizes, Tower, exact, linear, norm

HF = "model.visual."


@dataclass(frozen=True)
class Qwen3VlTower(Tower):
    """One tower of Qwen3-VL or Qwen3.5."""

    architectures: ClassVar[tuple[str, ...]] = (
        "Qwen3VLForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    )
    projector = "qwen3vl_merger"
    order = f"{SIZES} .projector_type .use_gelu n_merge stated_eps .vision.is_deepstack_layers=deepstack freq_base?"
    taken = (HF, "visual.")
    without_effect: ClassVar[Mapping[str, str]] = Tower.shared_without_effect
    usual: ClassVar[Mapping[str, int]] = {
        "num_hidden_layers": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16,
        "patch_size": 16,
    }  # fmt: skip

    @classmethod
    def read_more(cls, config: PictureConfig, vision: Config, sizes: Sizes) -> tuple[PictureSettings, dict[str, Any]]:
        settings = read_smart_resize(config, vision, sizes)
        check_output(vision, sizes)
        n_positions = vision.integer("num_position_embeddings", default=2304, maximum=1 << 20)
        side = math.isqrt(n_positions)
        if side * side != n_positions:
            raise vision.wrong("num_position_embeddings", "a square number")
        return settings, {
            "image_size": side * sizes.patch_size,
            "n_positions": n_positions,
            "n_merge": settings.merge_size,
            "stated_eps": config.section("text_config").number("rms_norm_eps", default=1e-6),  # as in llama.cpp
            "deepstack": cls.read_deepstack(config, vision, sizes.n_layer),
            "freq_base": read_rope(vision),
        }

    @classmethod
    def read_deepstack(cls, config: Config, vision: Config, n_layer: int) -> list[bool]:
        """Per layer, whether a merger of its own reads its output."""
        usual = [8, 16, 24] if "Qwen3VL" in str(config.get("architectures")) else []
        found = vision.get("deepstack_visual_indexes")
        found = usual if found is None else found
        layers = isinstance(found, list) and all(type(i) is int and 0 <= i < n_layer for i in found)
        if not layers or sorted(set(found)) != found:
            raise vision.wrong("deepstack_visual_indexes", f"increasing numbers of the {n_layer} layers")
        return [i in found for i in range(n_layer)]

    def canonical(self, name: str) -> str:
        return HF + name.removeprefix("visual.") if name.startswith("visual.") else name

    def outer(self) -> Iterator[Row]:
        n, p, m = self.n_embd, self.sizes.patch_size, self.more["n_merge"] ** 2
        for frame, end in enumerate(FRAMES):
            yield row(
                f"{HF}patch_embed.proj.weight", f"v.patch_embd.weight{end}", n, 3, p, p,
                source_shape=(n, 3, len(FRAMES), p, p), transform=every_other_row(3 * len(FRAMES), frame),
            )  # fmt: skip
        yield row(f"{HF}patch_embed.proj.bias", "v.patch_embd.bias", n)
        yield from exact(linear(f"{HF}pos_embed", "v.position_embd", self.more["n_positions"], n, bias=False))
        yield from norm(f"{HF}merger.norm", "v.post_ln", n)
        yield from linear(f"{HF}merger.linear_fc1", "mm.0", m * n, m * n)
        yield from linear(f"{HF}merger.linear_fc2", "mm.2", self.sizes.n_out, m * n)
        layers = [i for i, is_read in enumerate(self.more["deepstack"]) if is_read]
        for k, i in enumerate(layers):
            hf, target = f"{HF}deepstack_merger_list.{k}.", f"v.deepstack.{i}."
            yield from norm(f"{hf}norm", f"{target}norm", m * n)
            yield from linear(f"{hf}linear_fc1", f"{target}fc1", m * n, m * n)
            yield from linear(f"{hf}linear_fc2", f"{target}fc2", self.sizes.n_out, m * n)

    def block(self, i: int, blk: str) -> Iterator[Row]:
        hf, n, n_ff = f"{HF}blocks.{i}.", self.n_embd, self.sizes.n_ff
        yield from norm(f"{hf}norm1", f"{blk}ln1", n)
        yield from norm(f"{hf}norm2", f"{blk}ln2", n)
        yield from linear(f"{hf}attn.qkv", f"{blk}attn_qkv", 3 * n, n)
        yield from linear(f"{hf}attn.proj", f"{blk}attn_out", n, n)
        yield from linear(f"{hf}mlp.linear_fc1", f"{blk}ffn_up", n_ff, n)
        yield from linear(f"{hf}mlp.linear_fc2", f"{blk}ffn_down", n, n_ff)
