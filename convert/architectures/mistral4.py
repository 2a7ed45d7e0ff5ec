"""Mistral Small 4: DeepSeek-V3 with queries scaled by position, its experts by softmax. Of Mistral AI."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.errors import UnsupportedError, shown
from hybrid.quant.ggml.families.mistral4 import Mistral4Hparams

from ..checkpoint import Config
from .blocks import swiglu
from .deepseek2 import DeepSeekV3
from .experts import read_expert_groups
from .family import Row, Shapes, row
from .rope import read_kind
from .unused_fields import PICTURE_TENSORS, PICTURES

# transformers' rope_parameters where a config has none
_YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 128.0,
    "original_max_position_embeddings": 8192,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}


@dataclass(frozen=True)
class Mistral4(DeepSeekV3):
    """One model; in its checkpoints the experts of a layer are one tensor."""

    arch = "mistral4"
    architectures = ("Mistral4ForCausalLM",)
    hparams = Mistral4Hparams
    order = f"{DeepSeekV3.order} temperature? period?"
    pre = ("tekken",)
    dropped: ClassVar[tuple[str, ...]] = PICTURE_TENSORS
    without_effect: ClassVar[Mapping[str, str]] = {
        **DeepSeekV3.without_effect,
        **PICTURES,
        "rope_parameters.max_position_embeddings": "max_position_embeddings beside it counts, as in transformers",
    }
    scoring = "softmax"
    usual_dense, usual_scale = 0, 1.0

    temperature: float  # queries are times 1 + this * log(1 + number of whole periods before them)
    period: int

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        whole = config
        if not (config.get("rope_parameters") or config.get("rope_scaling")):
            whole = Config({**config.data, "rope_parameters": _YARN}, config.where, config.looked, config.prefixes)
        heads = whole.integer("qk_nope_head_dim") + (turned := whole.integer("qk_rope_head_dim"))
        rope = whole.section("rope_parameters", "rope_scaling")
        rope.expects("partial_rotary_factor", turned / heads)
        if (kind := read_kind(rope)) != "yarn":
            raise UnsupportedError(f"{rope.where}: rope_type = {shown(repr(kind), 60)} is not supported, only yarn is.")
        return super().read(whole, shapes)

    @classmethod
    def read_groups(cls, config: Config, n_expert: int, n_used: int) -> tuple[int, int]:
        return read_expert_groups(config, n_expert, n_used)

    @classmethod
    def read_more(cls, config: Config, n_ctx: int) -> dict[str, Any]:
        rope = config.section("rope_parameters", "rope_scaling")
        beta = rope.number("llama_4_scaling_beta", default=0.0, positive=False)
        if beta < 0:
            raise rope.wrong("llama_4_scaling_beta", "a number of at least 0")
        return {"temperature": beta, "period": rope.integer("original_max_position_embeddings", default=n_ctx)}

    def values(self) -> dict[str, Any]:
        return super().values() | ({} if self.temperature else {"period": None})

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.rope_scaling.stated.get("log_share") != 0.1:
            yield "llama.cpp takes mscale = 1 in this architecture: its results differ"

    def experts(self, hf: str, blk: str) -> Iterator[Row]:
        n, n_ff, n_expert = self.n_embd, self.n_ff_expert, self.n_expert
        yield row(hf + "gate.weight", blk + "ffn_gate_inp.weight", n_expert, n)
        yield row(hf + "experts.gate_up_proj", blk + "ffn_gate_up_exps.weight", n_expert, 2 * n_ff, n)
        yield row(hf + "experts.down_proj", blk + "ffn_down_exps.weight", n_expert, n, n_ff)
        yield from swiglu(hf + "shared_experts.", blk, n, self.n_shared * n_ff, "_shexp")

    def canonical(self, name: str) -> str:
        return name.replace("model.language_model.", "model.", 1).removeprefix("language_model.")
