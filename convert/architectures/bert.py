"""BERT and (XLM-)RoBERTa: attention in both directions, learned positions, norms after the parts. arXiv:1810.04805"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.families.bert import BertHparams

from ..checkpoint import Config
from .blocks import Heads, read_layers
from .classifier import CLASSIFIER_KEYS, LABELS, LABELS_CONDITION, RANK, read_labels
from .family import Family, Row, Shapes, TensorBlock, row, vocabulary_rows

# Parts of a layer: the checkpoint's and GGUF's names.
LINEAR = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
}
POSITIONS = "embeddings.position_embeddings.weight"
NORMS = {"attention.output.LayerNorm": "attn_output_norm", "output.LayerNorm": "layer_output_norm"}
# Parts of a layer in jinaai's checkpoints of XLM-RoBERTa.
JINA = {
    "mixer.out_proj.": "attention.output.dense.",
    "norm1.": "attention.output.LayerNorm.",
    "mlp.fc1.": "intermediate.dense.",
    "mlp.fc2.": "output.dense.",
    "norm2.": "output.LayerNorm.",
}
_JINA_LAYER = re.compile(r"encoder\.layers\.(\d+)\.")
OLD = {".gamma": ".weight", ".beta": ".bias"}  # a norm's tensors in TensorFlow's checkpoints


@dataclass(frozen=True)
class Bert(Family):
    """One encoder, without its training heads: it only makes embeddings."""

    arch: ClassVar[str] = "bert"
    architectures: ClassVar[tuple[str, ...]] = ("BertModel", "BertForMaskedLM")
    hparams = BertHparams
    order = (
        "n_layer n_ctx_train n_embd n_ff n_head eps .general.file_type .attention.causal "
        ".tokenizer.ggml.token_type_count=n_types"
    )
    generates: ClassVar[bool] = False
    without_effect: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            "tie_word_embeddings",
            "directionality",
            "pooler_fc_size",
            "pooler_num_attention_heads",
            "pooler_num_fc_layers",
            "pooler_size_per_head",
            "pooler_type",
            "output_past",
        ),
        "only heads after the encoder use it, and they are left out",
    )
    # heads for training; an embedding is taken before them
    dropped: ClassVar[tuple[str, ...]] = (
        "pooler.",
        "bert.pooler.",
        "cls.",
        "embeddings.position_ids",
        "bert.embeddings.position_ids",
    )

    n_vocab: int
    tied: bool
    n_layer: int
    n_ctx: int
    n_embd: int
    n_ff: int
    heads: Heads
    n_types: int
    eps: float

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        return cls(**cls.fields(config, shapes))

    @classmethod
    def fields(cls, config: Config, shapes: Shapes) -> dict[str, Any]:
        """The fields by name, also of subclasses."""
        config.expects("hidden_act", "gelu")
        config.expects("position_embedding_type", "absolute")
        config.expects("is_decoder", False)
        n_embd = config.integer("hidden_size")
        return {
            "n_vocab": vocabulary_rows(config, shapes, "embeddings.word_embeddings.weight"),
            "tied": True,
            "n_layer": read_layers(config),
            "n_ctx": config.integer("max_position_embeddings"),
            "n_embd": n_embd,
            "n_ff": config.integer("intermediate_size"),
            "heads": Heads.read(config, n_embd, head_dim=False),
            "n_types": config.integer("type_vocab_size", default=2),
            "eps": config.number("layer_norm_eps", default=1e-12),
        }

    def values(self) -> dict[str, Any]:
        return {"attention.causal": False}

    def rows(self) -> Iterator[Row]:
        n, hf = self.n_embd, "embeddings."
        yield row(hf + "word_embeddings.weight", "token_embd.weight", self.n_vocab, n)
        yield row(POSITIONS, "position_embd.weight", self.n_ctx, n)
        yield row(hf + "token_type_embeddings.weight", "token_types.weight", self.n_types, n)
        yield from _with_bias(hf + "LayerNorm", "token_embd_norm", n)
        for i in range(self.n_layer):
            hf, blk = f"encoder.layer.{i}.", f"blk.{i}."
            shapes = {"ffn_up": (self.n_ff, n), "ffn_down": (n, self.n_ff)}
            for source, target in LINEAR.items():
                yield from _with_bias(hf + source, blk + target, *shapes.get(target, (n, n)))
            for source, target in NORMS.items():
                yield from _with_bias(hf + source, blk + target, n)

    def canonical(self, name: str) -> str:
        for old, new in OLD.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return name.removeprefix("bert.")


@dataclass(frozen=True)
class BertClassifier(Bert):
    """BERT with a head that scores a text or a pair of texts: tanh(first row * cls) * cls.output.

    llama.cpp's converter leaves out the first matrix, the pooler of the checkpoint, but its reader uses it.
    """

    architectures = ("BertForSequenceClassification",)
    order = Bert.order.replace(".attention.causal", f".attention.causal {CLASSIFIER_KEYS}")
    dropped = tuple(name for name in Bert.dropped if "pooler." not in name)
    pooling = RANK
    counts = LABELS
    conditional: ClassVar[Mapping[str, str]] = LABELS_CONDITION

    labels: tuple[str, ...]

    @classmethod
    def fields(cls, config: Config, shapes: Shapes) -> dict[str, Any]:
        return {**super().fields(config, shapes), "labels": read_labels(config)}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.n_types > 1:
            yield "llama.cpp gives every token the first type: its scores of pairs differ"

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        yield from _with_bias("pooler.dense", "cls", self.n_embd, self.n_embd)
        yield from _with_bias("classifier", "cls.output", len(self.labels), self.n_embd)


@dataclass(frozen=True)
class Roberta(Bert):
    """One model whose positions start after the number of its padding token. arXiv:1907.11692"""

    architectures: ClassVar[tuple[str, ...]] = (
        "RobertaModel",
        "XLMRobertaModel",
        "CamembertModel",
        "RobertaForMaskedLM",
        "XLMRobertaForMaskedLM",
    )
    dropped = (
        *Bert.dropped,
        "lm_head.",
        *(f"roberta.{name}" for name in Bert.dropped if not name.startswith("bert.")),
    )

    skipped: int  # rows of the positions that no token has

    @classmethod
    def fields(cls, config: Config, shapes: Shapes) -> dict[str, Any]:
        if config.get("lora_adaptations"):
            raise UnsupportedError(
                f"{config.where}: lora_adaptations: adapters that depend on the task (jina-embeddings-v3) are not "
                "supported."
            )
        skipped = 1 + config.integer("pad_token_id", default=1, minimum=0)
        n_ctx = config.integer("max_position_embeddings") - skipped
        if n_ctx < 1:
            raise config.wrong("max_position_embeddings", f"more than {skipped}: positions begin there")
        return {**super().fields(config, shapes), "n_ctx": n_ctx, "skipped": skipped}

    def canonical(self, name: str) -> str:
        name = super().canonical(name.removeprefix("roberta."))
        if layer := _JINA_LAYER.match(name):
            part = name[layer.end() :]
            new = next((new + part.removeprefix(old) for old, new in JINA.items() if part.startswith(old)), part)
            return f"encoder.layer.{layer[1]}.{new}"
        return "embeddings.LayerNorm." + name.removeprefix("emb_ln.") if name.startswith("emb_ln.") else name

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        prefix, fused, kind = name.partition("mixer.Wqkv.")
        if fused and shape and shape[0] == 3 * self.n_embd:
            for i, part in enumerate(("query", "key", "value")):
                start, rest = (i * self.n_embd, *[0] * (len(shape) - 1)), shape[1:]
                yield TensorBlock(f"{prefix}attention.self.{part}.{kind}", start, (self.n_embd, *rest))
        if name == POSITIONS and len(shape) == 2 and shape[0] > self.skipped:
            yield TensorBlock(name, (self.skipped, 0), (shape[0] - self.skipped, shape[1]))


@dataclass(frozen=True)
class RobertaClassifier(Roberta):
    """RoBERTa with a head that scores a text or a pair of texts: bge-reranker."""

    architectures = ("RobertaForSequenceClassification", "XLMRobertaForSequenceClassification")
    order = BertClassifier.order
    pooling = RANK
    counts = LABELS
    conditional: ClassVar[Mapping[str, str]] = LABELS_CONDITION

    labels: tuple[str, ...]

    @classmethod
    def fields(cls, config: Config, shapes: Shapes) -> dict[str, Any]:
        return {**super().fields(config, shapes), "labels": read_labels(config)}

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        yield from _with_bias("classifier.dense", "cls", self.n_embd, self.n_embd)
        yield from _with_bias("classifier.out_proj", "cls.output", len(self.labels), self.n_embd)


def _with_bias(source: str, target: str, *shape: int) -> Iterator[Row]:
    yield row(source + ".weight", target + ".weight", *shape)
    yield row(source + ".bias", target + ".bias", shape[0])
