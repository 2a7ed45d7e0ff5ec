"""Qwen2 and Qwen3: Llama with biases, then with norms on queries and keys, also with experts. arXiv:2505.09388"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.qwen2 import Qwen3MoeHparams, Qwen3VLHparams

from ..checkpoint import Config
from .blocks import attention_bias_notes, read_layers, stacked_experts
from .classifier import CLASSIFIER_KEYS, LABELS, LABELS_CONDITION, RANK, read_labels
from .experts import read_moe_layers, weights_norm_note
from .family import Row, Shapes, TensorBlock, row, text_part
from .llama import LLAMA, Llama
from .rope import SCALING, read_sections
from .unused_fields import MROPE, PICTURES
from .windows import read_layer_types, read_window, windows_of

ANSWERS = ("yes", "no")  # of Qwen3-Reranker
_ANSWER = "the row of the output for "


@dataclass(frozen=True)
class Qwen2(Llama):
    """One model of Qwen2, with biases on queries, keys and values. arXiv:2407.10671"""

    arch = "qwen2"
    architectures: ClassVar[tuple[str, ...]] = ("Qwen2ForCausalLM", "Qwen2Model")
    order = f"{LLAMA} windows?"
    pre: ClassVar[tuple[str, ...]] = ("qwen2",)
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "sliding_window": "where use_sliding_window is true",
        "use_sliding_window": "where a layer has a window",
        "max_window_layers": "where layer_types is absent and use_sliding_window is true",
    }
    usual_ctx = 32768

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        """Windows on the layers that layer_types names, else from layer max_window_layers on."""
        window = _window(config)
        local = read_layer_types(config, n_layer)
        if local is None:
            first = config.integer("max_window_layers", default=28, minimum=0) if window else n_layer
            local = [i >= first for i in range(n_layer)]
        return windows_of(config, window, local)

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        """Queries, keys and values have biases, the output does not."""
        yield from self.heads.rows(hf, blk, self.n_embd, bias=True, out_bias=False)


@dataclass(frozen=True)
class Qwen3(Qwen2):
    """One model of Qwen3, with norms on queries and keys."""

    arch = "qwen3"
    architectures: ClassVar[tuple[str, ...]] = ("Qwen3ForCausalLM", "Qwen3Model")

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias)
        yield from self.heads.norm_rows(hf, blk)

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        yield from attention_bias_notes(self.attention_bias)


@dataclass(frozen=True)
class Qwen3Reranker(Qwen3):
    """Qwen3-Reranker, of which only the answers "yes" and "no" count (reranker.py)."""

    architectures = ()
    order = Qwen3.order.replace(".general.file_type", f".general.file_type {CLASSIFIER_KEYS}")
    pooling = RANK

    answers: tuple[int, ...]  # tokens
    labels: tuple[str, ...] = ANSWERS

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {**super().read_more(config), "answers": tuple(config.get("answer_tokens"))}

    def rows(self) -> Iterator[Row]:
        yield from (one for one in super().rows() if one.target != "output.weight")
        names = tuple(_ANSWER + answer for answer in ANSWERS)
        yield Row("cls.output.weight", (len(names), self.n_embd), names, lengths=(1,) * len(names))

    def left_out(self) -> tuple[str, ...]:
        return (*super().left_out(), "lm_head.") if self.tied else super().left_out()

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        if name == (self.embedding if self.tied else "lm_head.weight") and len(shape) == 2:
            if self.tied:
                yield TensorBlock(name, (0, 0), shape)
            for answer, token in zip(ANSWERS, self.answers, strict=True):
                if token < shape[0]:
                    yield TensorBlock(_ANSWER + answer, (token, 0), (1, shape[1]))


@dataclass(frozen=True)
class Qwen3Classifier(Qwen3):
    """Qwen3 with a head that scores a text after its last token."""

    architectures = ("Qwen3ForSequenceClassification",)
    order = Qwen3Reranker.order
    pooling = RANK
    counts = LABELS
    conditional: ClassVar[Mapping[str, str]] = {**Qwen3.conditional, **LABELS_CONDITION}

    labels: tuple[str, ...]

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {**super().read_more(config), "labels": read_labels(config)}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if len(self.labels) == 1:
            yield "llama.cpp scores every text 1: it takes the softmax of the labels, and there is one"

    def rows(self) -> Iterator[Row]:
        yield from (one for one in super().rows() if one.target != "output.weight")
        yield row("score.weight", "cls.output.weight", len(self.labels), self.n_embd)

    def canonical(self, name: str) -> str:
        return name if name == "score.weight" else super().canonical(name)


@dataclass(frozen=True)
class Qwen2VL(Qwen2):
    """The text model of Qwen2-VL and Qwen2.5-VL. arXiv:2502.13923"""

    arch = "qwen2vl"
    architectures = ("Qwen2_5_VLForConditionalGeneration", "Qwen2VLForConditionalGeneration")
    order = f"{LLAMA.replace(SCALING, f'.rope.dimension_sections=sections {SCALING}', 1)} windows?"
    rope_kinds: ClassVar[dict[str, str]] = {"mrope": "default"}
    without_effect: ClassVar[Mapping[str, str]] = PICTURES
    dropped: ClassVar[tuple[str, ...]] = ("visual.", "model.visual.")

    sections: tuple[int, ...]  # pairs of a head that turn by a picture's time, row and column

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        return super().read(text_part(config), shapes)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {"sections": read_sections(cls.read_rope(config)[0], (16, 24, 24))}

    def canonical(self, name: str) -> str:
        return super().canonical(name.replace("model.language_model.", "model.", 1))


@dataclass(frozen=True)
class Qwen3VL(Qwen3):
    """The text model of Qwen3-VL: features of a picture are added after its first layers. arXiv:2511.21631"""

    arch = "qwen3vl"
    architectures = ("Qwen3VLForConditionalGeneration",)
    hparams = Qwen3VLHparams
    order = f"{LLAMA.replace(SCALING, f'.rope.dimension_sections=sections {SCALING}', 1)} n_deepstack windows?"
    without_effect: ClassVar[Mapping[str, str]] = {**PICTURES, **MROPE}
    dropped: ClassVar[tuple[str, ...]] = ("model.visual.",)

    sections: tuple[int, ...]  # pairs of a head that turn by a picture's time, row and column
    n_deepstack: int

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        return super().read(text_part(config), shapes)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        layers = config.section("vision_config").get("deepstack_visual_indexes")
        layers = [8, 16, 24] if layers is None else layers
        if not isinstance(layers, list):
            raise config.wrong("vision_config", "deepstack_visual_indexes with numbers of layers")
        sections = read_sections(cls.read_rope(config)[0], (24, 20, 20))
        return {"sections": sections, "n_deepstack": len(layers)}

    def canonical(self, name: str) -> str:
        return super().canonical(name.replace("model.language_model.", "model.", 1))


@dataclass(frozen=True)
class Qwen3Moe(Qwen3):
    """One model with experts on all layers, or on some."""

    arch = "qwen3moe"
    architectures = ("Qwen3MoeForCausalLM",)
    hparams: ClassVar[type[Any]] = Qwen3MoeHparams
    order = f"{LLAMA} n_expert n_expert_used n_ff_expert weights_norm? windows?"
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "sliding_window": "where use_sliding_window is true",
        "use_sliding_window": "where sliding_window is not null",
    }
    without_effect: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("max_window_layers", "layer_types"), "transformers gives every layer the window, or none"
    )

    weights_normed: ClassVar[bool] = True  # in llama.cpp, which has no key for it in this architecture

    n_expert: int
    n_expert_used: int
    n_ff_expert: int
    moe: tuple[bool, ...]  # per layer
    weights_norm: bool

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        n_expert = config.integer("num_experts", "num_local_experts", maximum=4096)
        moe = read_moe_layers(config, read_layers(config), n_expert)
        if not any(moe):
            raise config.wrong(config.named("mlp_only_layers", "decoder_sparse_step"), "a layer with experts left")
        return {
            "n_expert": n_expert,
            "n_expert_used": config.integer("num_experts_per_tok", maximum=n_expert),
            "n_ff_expert": config.integer("moe_intermediate_size"),
            "moe": moe,
            "weights_norm": config.boolean("norm_topk_prob", default=False),
        }

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        """A window on all layers: transformers ignores max_window_layers and layer_types here."""
        return (_window(config),) * n_layer

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.weights_norm != self.weights_normed:
            yield weights_norm_note(self.weights_norm)
        if not all(self.moe):
            yield "llama.cpp cannot load this file: there all layers have experts, here some have not"

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        if not self.moe[i]:
            yield from super().feed_forward(hf, blk, i)
            return
        yield row(hf + "gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, self.n_embd)
        names = tuple((part, part + "_proj") for part in ("down", "gate", "up"))
        yield from stacked_experts(hf + "experts.", blk, self.n_expert, self.n_embd, self.n_ff_expert, names)


def _window(config: Config) -> int:
    """The window of layers that have one; 0: none."""
    return read_window(config, 4096) if config.boolean("use_sliding_window", default=False) else 0
