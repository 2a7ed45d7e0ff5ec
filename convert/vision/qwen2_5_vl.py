"""Qwen2.5-VL: gated layers with RMS norms, most of which see a window, axial RoPE. arXiv:2502.13923"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.vision.settings import PictureSettings

from ..architectures.family import Row, TensorBlock, row
from ..checkpoint import Config
from ..transforms import every_other_row
from .processor import PictureConfig
from .smart_resize import FRAMES, check_output, read_rope, read_smart_resize
from .tower import SIZES, Sizes, Tower, linear, norm

HF = "visual."
IMAGE_SIZE = 560  # llama.cpp reads one, though pictures have any size


@dataclass(frozen=True)
class Qwen25VlTower(Tower):
    """One tower of Qwen2.5-VL."""

    architectures: ClassVar[tuple[str, ...]] = ("Qwen2_5_VLForConditionalGeneration",)
    projector = "qwen2.5vl_merger"
    order = f"{SIZES} .projector_type .use_silu period? stated_eps full? window? freq_base?"
    left_to_readers: ClassVar[Mapping[str, Any]] = {"clip.vision.spatial_merge_size": 2}
    taken = (HF, f"model.{HF}")
    activations = ("silu",)
    usual_activation = "silu"
    without_effect: ClassVar[Mapping[str, str]] = Tower.shared_without_effect
    usual: ClassVar[Mapping[str, int]] = {
        "num_hidden_layers": 32, "hidden_size": 3584, "intermediate_size": 3420, "num_attention_heads": 16,
        "patch_size": 14,
    }  # fmt: skip

    @classmethod
    def read_more(cls, config: PictureConfig, vision: Config, sizes: Sizes) -> tuple[PictureSettings, dict[str, Any]]:
        settings = read_smart_resize(config, vision, sizes)
        check_output(vision, sizes)
        vision.expects("spatial_patch_size", sizes.patch_size)
        full = vision.get("fullatt_block_indexes")
        full = [7, 15, 23, 31] if full is None else full
        numbers = isinstance(full, list) and all(type(i) is int and 0 <= i < sizes.n_layer for i in full)
        if not numbers or sorted(set(full)) != full:
            raise vision.wrong("fullatt_block_indexes", f"increasing numbers of the {sizes.n_layer} layers")
        window, unit = vision.integer("window_size", default=112), sizes.patch_size * settings.merge_size
        if window < unit:
            raise vision.wrong("window_size", f"at least the {unit} pixels of a feature")
        period = full[0] + 1 if full else 0
        regular = list(range(period - 1, sizes.n_layer, period)) == full if full else False
        return settings, {
            "image_size": IMAGE_SIZE,
            "n_merge": settings.merge_size,
            "use_silu": True,
            "stated_eps": 1e-6,
            "period": period if regular else None,
            "full": None if regular else full,
            "window": window,
            "freq_base": read_rope(vision),
        }

    def notes(self) -> Iterator[str]:
        if self.more["period"] is None:
            yield "llama.cpp cannot load this tower: there every n-th layer sees the whole picture"
        if self.more["window"] != 112:
            yield f"llama.cpp assumes windows of 112 pixels a side, not of {self.more['window']}"

    def canonical(self, name: str) -> str:
        return name.removeprefix("model.")

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """Queries, keys and values are one tensor in checkpoints."""
        if ".qkv." in name and shape and shape[0] == 3 * self.n_embd:
            for i, part in enumerate("qkv"):
                start = (i * self.n_embd, *[0] * (len(shape) - 1))
                yield TensorBlock(name.replace(".qkv.", f".{part}."), start, (self.n_embd, *shape[1:]))

    def outer(self) -> Iterator[Row]:
        n, p, m = self.n_embd, self.sizes.patch_size, self.more["n_merge"] ** 2
        for frame, end in enumerate(FRAMES):
            yield row(
                f"{HF}patch_embed.proj.weight", f"v.patch_embd.weight{end}", n, 3, p, p,
                source_shape=(n, 3, len(FRAMES), p, p), transform=every_other_row(3 * len(FRAMES), frame),
            )  # fmt: skip
        yield from norm(f"{HF}merger.ln_q", "v.post_ln", n, bias=False)
        yield from linear(f"{HF}merger.mlp.0", "mm.0", m * n, m * n)
        yield from linear(f"{HF}merger.mlp.2", "mm.2", self.sizes.n_out, m * n)

    def block(self, i: int, blk: str) -> Iterator[Row]:
        hf, n, n_ff = f"{HF}blocks.{i}.", self.n_embd, self.sizes.n_ff
        yield from norm(f"{hf}norm1", f"{blk}ln1", n, bias=False)
        yield from norm(f"{hf}norm2", f"{blk}ln2", n, bias=False)
        for part in "qkv":
            yield from linear(f"{hf}attn.{part}", f"{blk}attn_{part}", n, n)
        yield from linear(f"{hf}attn.proj", f"{blk}attn_out", n, n)
        yield from linear(f"{hf}mlp.gate_proj", f"{blk}ffn_gate", n_ff, n)
        yield from linear(f"{hf}mlp.up_proj", f"{blk}ffn_up", n_ff, n)
        yield from linear(f"{hf}mlp.down_proj", f"{blk}ffn_down", n, n_ff)
