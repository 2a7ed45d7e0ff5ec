"""LFM3-VL: gated convolutions over the patches' grid, attention with axial RoPE on some layers. Of Liquid AI.

llama.cpp has no such tower; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.vision.settings import PictureSettings

from ..architectures.blocks import read_kinds
from ..architectures.family import Row, row
from ..checkpoint import Config
from ..transforms import every_other_row
from .processor import PictureConfig
from .smart_resize import FRAMES, read_rope, read_smart_resize
from .tower import SIZES, Sizes, Tower, linear, norm

HF = "model.vision_tower."
_PROJECTOR = "model.multi_modal_projector."
KINDS = {"conv": "conv", "full_attention": "full_attention"}


@dataclass(frozen=True)
class Lfm3VlTower(Tower):
    """One tower of LFM3-VL."""

    architectures: ClassVar[tuple[str, ...]] = ("Lfm3VlForConditionalGeneration",)
    projector = "lfm3"
    in_llama_cpp = False
    order = (
        f"{SIZES.replace('.vision.image_size=image_size ', '')} .projector_type .use_silu stated_eps n_head_kv n_merge "
        "n_taps freq_base?"
    )
    taken = (HF, _PROJECTOR)
    activations = ("silu",)
    usual_activation = "silu"
    without_effect: ClassVar[Mapping[str, str]] = Tower.shared_without_effect
    usual: ClassVar[Mapping[str, int]] = {
        "num_hidden_layers": 14, "hidden_size": 1024, "intermediate_size": 2560, "num_attention_heads": 16,
        "patch_size": 16,
    }  # fmt: skip

    @classmethod
    def read_activation(cls, vision: Config) -> None:
        """The tower has no such setting."""

    @classmethod
    def read_more(cls, config: PictureConfig, vision: Config, sizes: Sizes) -> tuple[PictureSettings, dict[str, Any]]:
        settings = read_smart_resize(config, vision, sizes)
        config.expects("projector_hidden_act", "gelu")
        n = sizes.n_layer
        kinds = ["conv" if i < 2 or i % 2 else "full_attention" for i in range(n)]
        if "layer_types" in vision:
            kinds = read_kinds(vision, KINDS, "layer_types", n_layer=n)
        n_head_kv = vision.integer("num_key_value_heads", default=8)
        if sizes.n_head % n_head_kv or sizes.n_embd % (2 * sizes.n_head):
            raise vision.wrong("num_attention_heads", f"heads of even size, a multiple of {n_head_kv}")
        n_taps = vision.integer("conv_kernel_size", default=3, maximum=63)
        if n_taps % 2 == 0:
            raise vision.wrong("conv_kernel_size", "an odd number")
        return settings, {
            "use_silu": True,
            "n_merge": settings.merge_size,
            "stated_eps": vision.number("norm_eps", default=1e-5),
            "n_head_kv": [n_head_kv if kind == "full_attention" else 0 for kind in kinds],
            "n_taps": n_taps,
            "freq_base": read_rope(vision, 1e6),
            "n_hidden": config.integer("projector_hidden_size", default=4096),
            "bias": config.boolean("projector_bias", default=True),
        }

    def outer(self) -> Iterator[Row]:
        n, p, m = self.n_embd, self.sizes.patch_size, self.more["n_merge"] ** 2
        for frame, end in enumerate(FRAMES):
            yield row(
                f"{HF}patchifier.weight", f"v.patch_embd.weight{end}", n, 3, p, p,
                source_shape=(n, 3 * len(FRAMES) * p * p), transform=every_other_row(3 * len(FRAMES), frame),
            )  # fmt: skip
        yield from norm(f"{HF}embedding_norm", "v.norm_embd", n, bias=False)
        yield from norm(f"{_PROJECTOR}layer_norm", "mm.input_norm", n)
        n_hidden, bias = self.more["n_hidden"], self.more["bias"]
        yield from linear(f"{_PROJECTOR}linear_1", "mm.1", n_hidden, m * n, bias=bias)
        yield from linear(f"{_PROJECTOR}linear_2", "mm.2", self.sizes.n_out, n_hidden, bias=bias)

    def block(self, i: int, blk: str) -> Iterator[Row]:
        hf, n, n_ff, k = f"{HF}layers.{i}.", self.n_embd, self.sizes.n_ff, self.more["n_taps"]
        yield row(f"{hf}operator_norm.weight", f"{blk}ln1.weight", n)
        yield row(f"{hf}ffn_norm.weight", f"{blk}ln2.weight", n)
        if n_kv := self.more["n_head_kv"][i]:
            d = n // self.sizes.n_head
            for part in "qk":
                yield row(f"{hf}self_attn.{part}_layernorm.weight", f"{blk}attn_{part}_norm.weight", d)
            for part, n_out in (("q", n), ("k", n_kv * d), ("v", n_kv * d), ("out", n)):
                yield row(f"{hf}self_attn.{part}_proj.weight", f"{blk}attn_{part}.weight", n_out, n)
        else:
            conv = f"{blk}shortconv."
            yield row(f"{hf}conv.in_proj.weight", f"{conv}in_proj.weight", 3 * n, n)
            yield row(f"{hf}conv.spatial_conv.weight", f"{conv}conv.weight", n, k, k, source_shape=(n, 1, k, k))
            yield row(f"{hf}conv.out_proj.weight", f"{conv}out_proj.weight", n, n)
        for old, new in (("w1", "ffn_gate"), ("w3", "ffn_up")):
            yield row(f"{hf}feed_forward.{old}.weight", f"{blk}{new}.weight", n_ff, n)
        yield row(f"{hf}feed_forward.w2.weight", f"{blk}ffn_down.weight", n, n_ff)
