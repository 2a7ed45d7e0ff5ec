"""Gemma 4: patches with positions of two tables, norms around both parts of a layer, averages of patches. Of Google."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.vision.gemma4 import Gemma4PictureSettings
from hybrid.quant.ggml.vision.settings import PictureSettings

from ..architectures.family import Row, row
from ..checkpoint import Config
from ..transforms import colours_first
from .processor import PictureConfig
from .smart_resize import read_rope
from .tower import SIZES, Sizes, Tower, linear

HF = "model.vision_tower."
IMAGE_SIZE = 224  # llama.cpp reads one, though pictures have any size
CLAMPS = ("input_min", "input_max", "output_min", "output_max")
NORMS = {
    "input_layernorm": "ln1",
    "post_attention_layernorm": "attn_post_norm",
    "pre_feedforward_layernorm": "ln2",
    "post_feedforward_layernorm": "ffn_post_norm",
}


@dataclass(frozen=True)
class Gemma4Tower(Tower):
    """One tower of Gemma 4."""

    architectures: ClassVar[tuple[str, ...]] = ("Gemma4ForConditionalGeneration",)
    projector = "gemma4v"
    order = f"{SIZES} .vision.projector_type=projector_type stated_eps own_eps? freq_base?"
    left_to_readers: ClassVar[Mapping[str, Any]] = {"clip.vision.projector.scale_factor": 3}
    taken = (HF, "model.embed_vision.")
    without_effect: ClassVar[Mapping[str, str]] = {
        **Tower.shared_without_effect,
        "max_position_embeddings": "the tables of positions have position_embedding_size rows",
        "image_seq_length": "max_soft_tokens counts",
        **dict.fromkeys(("audio_token_id", "audio_config"), "only sound"),
    }
    usual: ClassVar[Mapping[str, int]] = {
        "num_hidden_layers": 16, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
        "patch_size": 16,
    }  # fmt: skip

    @classmethod
    def read_more(cls, config: PictureConfig, vision: Config, sizes: Sizes) -> tuple[PictureSettings, dict[str, Any]]:
        processor = config.processor
        vision.expects("attention_bias", False)
        processor.expects("patch_size", sizes.patch_size)
        pool = vision.integer("pooling_kernel_size", default=3, maximum=64)
        processor.expects("pooling_kernel_size", pool)
        found = {"max_tokens": processor.integer("max_soft_tokens")} if "max_soft_tokens" in processor else {}
        settings = Gemma4PictureSettings.make(
            patch_size=sizes.patch_size,
            pool=pool,
            **found,
            **config.pixels(),
            **config.texts(image_token="image_token", start="boi_token", end="eoi_token"),
        )
        n_head_kv = vision.integer("num_key_value_heads", default=sizes.n_head)
        if sizes.n_head % n_head_kv:
            raise vision.wrong("num_key_value_heads", f"a divisor of the {sizes.n_head} attention heads")
        eps = vision.number("rms_norm_eps", default=1e-6)
        return settings, {
            "image_size": IMAGE_SIZE,
            "stated_eps": 1e-6,
            "own_eps": None if eps == 1e-6 else eps,
            "freq_base": read_rope(vision, 100.0),
            "n_head_kv": n_head_kv,
            "d_head": vision.integer("head_dim", default=64, maximum=1 << 16),
            "n_positions": vision.integer("position_embedding_size", default=10240, maximum=1 << 20),
            "clamped": vision.boolean("use_clipped_linears", default=False),
            "standardized": vision.boolean("standardize", default=False),
        }

    def outer(self) -> Iterator[Row]:
        n, p = self.n_embd, self.sizes.patch_size
        yield row(
            f"{HF}patch_embedder.input_proj.weight", "v.patch_embd.weight", n, 3, p, p, source_shape=(n, p * p * 3),
            transform=colours_first(p),
        )  # fmt: skip
        positions = f"{HF}patch_embedder.position_embedding_table"
        yield row(positions, "v.position_embd.weight", 2, self.more["n_positions"], n)
        for part in ("std_bias", "std_scale") if self.more["standardized"] else ():
            yield row(HF + part, f"v.{part}", n)
        yield from linear(
            "model.embed_vision.embedding_projection", "mm.input_projection", self.sizes.n_out, n, bias=False
        )

    def block(self, i: int, blk: str) -> Iterator[Row]:
        hf, n, n_ff, d = f"{HF}encoder.layers.{i}.", self.n_embd, self.sizes.n_ff, self.more["d_head"]
        for old, new in NORMS.items():
            yield row(f"{hf}{old}.weight", f"{blk}{new}.weight", n)
        for part in "qk":
            yield row(f"{hf}self_attn.{part}_norm.weight", f"{blk}attn_{part}_norm.weight", d)
        n_q, n_kv = self.sizes.n_head * d, self.more["n_head_kv"] * d
        for old, new, n_out, n_in in (
            ("self_attn.q_proj", "attn_q", n_q, n),
            ("self_attn.k_proj", "attn_k", n_kv, n),
            ("self_attn.v_proj", "attn_v", n_kv, n),
            ("self_attn.o_proj", "attn_out", n, n_q),
            ("mlp.gate_proj", "ffn_gate", n_ff, n),
            ("mlp.up_proj", "ffn_up", n_ff, n),
            ("mlp.down_proj", "ffn_down", n, n_ff),
        ):
            yield row(f"{hf}{old}.linear.weight", f"{blk}{new}.weight", n_out, n_in)
            for clamp in CLAMPS if self.more["clamped"] else ():
                yield row(f"{hf}{old}.{clamp}", f"{blk}{new}.{clamp}", 1)
