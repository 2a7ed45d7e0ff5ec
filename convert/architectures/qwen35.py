"""Qwen3.5 (text): gated delta rule, gated attention on every fourth layer; dense or with experts. Of Qwen."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from hybrid.quant.ggml.errors import UnsupportedError

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP, columns_in_order, rows_in_order
from .family import Row, Shapes, row, text_part
from .qwen3next import Qwen3Next
from .rope import read_sections
from .unused_fields import HEADS, MROPE, PICTURES

SECTIONS = (11, 11, 10)  # where the config has no sections


@dataclass(frozen=True)
class Qwen35(Qwen3Next):
    """The text model, dense."""

    arch = "qwen35"
    architectures: ClassVar[tuple[str, ...]] = ("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration")
    pre = ("qwen35",)
    without_effect: ClassVar[Mapping[str, str]] = {**Qwen3Next.without_effect, **PICTURES, **HEADS, **MROPE}
    dropped: ClassVar[tuple[str, ...]] = ("model.visual.",)

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        text = text_part(config)
        text.expects("output_gate_type", "swish", "silu")  # of vLLM, in published configs; transformers has no such key
        model = super().read(text, shapes)
        if (model.n_expert > 0) != issubclass(cls, Qwen35Moe):
            raise UnsupportedError(f"{config.where}: num_experts = {model.n_expert} does not fit its architecture.")
        return model

    @classmethod
    def read_weights_norm(cls, config: Config) -> bool:
        # transformers has no such key here
        config.expects("norm_topk_prob", True)
        return True

    @classmethod
    def read_sections(cls, rope: Config) -> tuple[int, ...]:
        return read_sections(rope, SECTIONS)

    def canonical(self, name: str) -> str:
        return super().canonical(name.replace("model.language_model.", "model.", 1))

    def delta(self, hf: str, blk: str) -> Iterator[Row]:
        """Heads with the same keys are neighbours in checkpoints; in GGUF head h has the keys of head h % n_k_head."""
        heads = np.arange(self.n_v_head).reshape(self.n_k_head, -1).T.reshape(-1)
        values = (heads[:, None] * self.d_v + np.arange(self.d_v)).reshape(-1)
        mixed = np.concatenate([np.arange(2 * self.n_key), 2 * self.n_key + values])
        n, by_head, by_value = self.n_embd, rows_in_order(heads), rows_in_order(values)
        yield row(hf + "in_proj_qkv.weight", blk + "attn_qkv.weight", len(mixed), n, transform=rows_in_order(mixed))
        yield row(hf + "in_proj_z.weight", blk + "attn_gate.weight", self.n_value, n, transform=by_value)
        yield row(hf + "in_proj_b.weight", blk + "ssm_beta.weight", self.n_v_head, n, transform=by_head)
        yield row(hf + "in_proj_a.weight", blk + "ssm_alpha.weight", self.n_v_head, n, transform=by_head)
        yield from self.delta_rest(
            hf, blk, rows_in_order(heads, NEGATIVE_EXP), by_head, rows_in_order(mixed),
            None if self.grouped else columns_in_order(values),
        )  # fmt: skip


@dataclass(frozen=True)
class Qwen35Moe(Qwen35):
    """The text model, with experts beside a shared one."""

    arch = "qwen35moe"
    architectures: ClassVar[tuple[str, ...]] = ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration")
