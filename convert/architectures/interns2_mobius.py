"""Intern-S2-Mobius (text): Qwen3.5 whose layers share a few banks of experts in turns. Of Shanghai AI Laboratory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from hybrid.quant.ggml.families.interns2_mobius import MobiusHparams

from ..checkpoint import Config
from .blocks import HEAD_SIZE
from .family import Row, Shapes, text_part
from .qwen35 import Qwen35Moe
from .rope import SCALING

ROUTED = ("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")  # tensors of a bank


@dataclass(frozen=True)
class Mobius(Qwen35Moe):
    """The text model. Layer i has the router and the experts of bank i % n_bank, and a shared expert of its own."""

    arch = "interns2-mobius"
    architectures: ClassVar[tuple[str, ...]] = ("InternS2MobiusForConditionalGeneration",)
    hparams = MobiusHparams
    in_llama_cpp: ClassVar[bool] = False
    order = (
        f"n_layer n_ctx_train n_embd n_head n_head_kv .rope.dimension_sections? {SCALING} freq_base eps n_expert "
        f"n_expert_used {HEAD_SIZE} .general.file_type .vocab_size n_ff_expert n_ff_shared d_conv d_state=d_k "
        "n_group=n_k_head n_ssm_head=n_v_head d_inner n_rot n_bank"
    )
    dropped: ClassVar[tuple[str, ...]] = (*Qwen35Moe.dropped, "mtp.", "model.mtp.")
    conditional: ClassVar[Mapping[str, str]] = {"full_attention_interval": "where layer_types is absent"}
    without_effect: ClassVar[Mapping[str, str]] = {
        **Qwen35Moe.without_effect,
        "intermediate_size": "all layers have experts",
    }

    n_bank: int = 0

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        text = text_part(config)
        text.expects("decoder_sparse_step", 1)
        text.expects("mlp_only_layers", [])
        model = super().read(config, shapes)
        return replace(model, n_bank=text.integer("num_blocks", default=4), heads_ahead=())

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        yield "llama.cpp cannot load this file: it has no such architecture"

    def rows(self) -> Iterator[Row]:
        routed = {f"blk.{i}.{name}.weight": i for i in range(self.n_layer) for name in ROUTED}
        for one in super().rows():
            i = routed.get(one.target, -1)
            if i < 0:
                yield one
            elif i < self.n_bank:
                layer, bank = f"model.layers.{i}.mlp.", f"model.meta_mlp.{i}."
                yield replace(one, sources=tuple(bank + name.removeprefix(layer) for name in one.sources))
