"""Ministral 3: Llama with queries that grow with their position; also Mistral Small 3.1, without. arXiv:2601.08584"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.mistral3 import Mistral3Hparams

from ..checkpoint import Config
from .family import Shapes
from .llama import LLAMA, Llama
from .mistral4 import Mistral4
from .unused_fields import PICTURE_TENSORS, PICTURES
from .windows import read_window

# transformers' defaults, by the model_type of the text's part
_YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "ministral3": {
        "head_dim": 128,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 262144,
        "sliding_window": None,
    },
    "mistral": {
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
}


@dataclass(frozen=True)
class Mistral3(Llama):
    """The text model."""

    arch = "mistral3"
    architectures = ("Ministral3ForCausalLM", "Mistral3ForConditionalGeneration")
    hparams = Mistral3Hparams
    order = f"{LLAMA} .vocab_size n_rot temperature? original=own_ctx windows?"
    pre = ("tekken",)
    dropped: ClassVar[tuple[str, ...]] = PICTURE_TENSORS
    reads_yarn = True
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "rope_theta": "where rope_parameters does not say it",
        "rope_scaling": "where rope_parameters is absent",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        **PICTURES,
        **dict.fromkeys(
            ("rope_parameters.max_position_embeddings", "rope_scaling.max_position_embeddings"),
            "max_position_embeddings beside it counts, as in transformers",
        ),
    }

    temperature: float  # queries are times 1 + this * log(1 + number of whole contexts before them)
    first_ctx: int  # such a context

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        text, tied = config, {}
        if config.get("architectures") == ["Mistral3ForConditionalGeneration"]:
            text = config.section("text_config")
            text.expects("model_type", *_DEFAULTS, "mistral4")
            inner = text.boolean("tie_word_embeddings", default=True)  # transformers asks the outer config
            tied = {"tie_word_embeddings": config.boolean("tie_word_embeddings", default=inner)}
            if text.get("model_type") == "mistral4":
                latent = Config({**text.data, **tied}, text.where, text.looked, text.prefixes)
                return Mistral4.read(latent, shapes)  # type: ignore[return-value]
        kind = "ministral3" if text is config else text.string("model_type", default="mistral")
        whole = {**_DEFAULTS[kind], **text.data, **tied, "model_type": kind}
        if kind == "ministral3" and not (whole.get("rope_parameters") or whole.get("rope_scaling")):
            whole["rope_parameters"] = _YARN
        return super().read(Config(whole, text.where, text.looked, text.prefixes), shapes)

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        return (read_window(config),) * n_layer

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        if config.get("model_type") == "mistral":
            return {"temperature": 0.0, "first_ctx": 0}
        rope = config.section("rope_parameters", "rope_scaling")
        beta = rope.number("llama_4_scaling_beta", default=0.0, positive=False)
        if beta < 0:
            raise rope.wrong("llama_4_scaling_beta", "a number of at least 0")
        n_ctx = config.integer("max_position_embeddings")
        return {"temperature": beta, "first_ctx": rope.integer("original_max_position_embeddings", default=n_ctx)}

    def values(self) -> dict[str, Any]:
        scaled = not self.temperature or "original" in self.scaling.stated
        return super().values() | {"own_ctx": None if scaled else self.first_ctx}

    def canonical(self, name: str) -> str:
        name = name.replace("model.language_model.", "model.", 1).removeprefix("language_model.")
        return super().canonical(name)
