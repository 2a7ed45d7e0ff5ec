"""ModernBERT: attention in both directions, over a window on most layers, rotary positions, gates. arXiv:2412.13663"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.modern_bert import ModernBertHparams

from ..checkpoint import Config
from .blocks import Heads, read_layers, refuse_scaling
from .classifier import CLASSIFIER_KEYS, LABELS, LABELS_CONDITION, RANK, read_labels
from .family import Family, Row, Shapes, row, vocabulary_rows
from .windows import read_layer_types

POOLINGS = {"mean": 1, "cls": 2}  # llama.cpp's numbers
USUAL_PERIOD = 3
OTHERS = "only training, or another head, uses it"


@dataclass(frozen=True)
class ModernBert(Family):
    """One encoder, without its training heads: it only makes embeddings."""

    arch: ClassVar[str] = "modern-bert"
    architectures: ClassVar[tuple[str, ...]] = ("ModernBertModel", "ModernBertForMaskedLM")
    hparams = ModernBertHparams
    order: ClassVar[str] = (
        "n_layer n_ctx_train n_embd n_ff n_head freq_base freq_base_local .attention.layer_norm_rms_epsilon=eps eps "
        ".general.file_type .attention.causal classifier_pooling window period rope_type .vocab_size=n_vocab activation"
    )
    pre = ("modern-bert",)
    generates: ClassVar[bool] = False
    dropped: ClassVar[tuple[str, ...]] = ("head.", "decoder.")
    without_effect: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            (
                "tie_word_embeddings",
                "decoder_bias",
                "sparse_prediction",
                "sparse_pred_ignore_index",
                "initializer_cutoff_factor",
                "classifier_bias",
                "classifier_activation",
            ),
            OTHERS,
        ),
        **dict.fromkeys(("deterministic_flash_attn", "reference_compile", "repad_logits_with_grad"), "only speed"),
        "position_embedding_type": "transformers does not read it: positions are rotary",
        "layer_norm_eps": "norm_eps counts",
        "rope_theta": "both kinds of layers have their own",
    }
    conditional: ClassVar[Mapping[str, str]] = {
        "global_attn_every_n_layers": "where layer_types is absent",
        "global_rope_theta": "where rope_parameters does not say it",
        "local_rope_theta": "where rope_parameters does not say it",
    }

    n_vocab: int
    tied: bool
    n_layer: int
    n_ctx: int
    n_embd: int
    n_ff: int
    heads: Heads
    window: int  # tokens around a token that it sees on local layers
    period: int  # the first of every `period` layers sees all tokens
    freq_base: float
    freq_base_local: float
    eps: float
    activation: str
    classifier_pooling: int

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        return cls(**cls.fields(config, shapes))

    @classmethod
    def fields(cls, config: Config, shapes: Shapes) -> dict[str, Any]:
        """The fields by name, also of subclasses."""
        for key in ("norm_bias", "attention_bias", "mlp_bias"):
            config.expects(key, False)
        config.expects("hidden_activation", "gelu", "silu")
        config.expects("classifier_pooling", "cls", "mean")
        n_embd, n_layer = config.integer("hidden_size"), read_layers(config)
        heads = Heads.read(config, n_embd, head_dim=False)
        heads.require_even(config)
        freq_base, freq_base_local = _read_bases(config)
        return {
            "n_vocab": vocabulary_rows(config, shapes, "embeddings.tok_embeddings.weight"),
            "tied": True,
            "n_layer": n_layer,
            "n_ctx": config.integer("max_position_embeddings", default=8192),
            "n_embd": n_embd,
            "n_ff": config.integer("intermediate_size"),
            "heads": heads,
            "window": config.integer("local_attention", default=128),
            "period": _read_period(config, n_layer),
            "freq_base": freq_base,
            "freq_base_local": freq_base_local,
            "eps": config.number("norm_eps", default=1e-5),
            "activation": config.string("hidden_activation", default="gelu"),
            "classifier_pooling": POOLINGS[config.string("classifier_pooling", default="cls")],
        }

    def values(self) -> dict[str, Any]:
        return {"attention.causal": False, "rope_type": "none"}

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield row("embeddings.tok_embeddings.weight", "token_embd.weight", self.n_vocab, n)
        yield row("embeddings.norm.weight", "token_embd_norm.weight", n)
        for i in range(self.n_layer):
            hf, blk = f"layers.{i}.", f"blk.{i}."
            if i:
                yield row(hf + "attn_norm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "attn.Wqkv.weight", blk + "attn_qkv.weight", 3 * n, n)
            yield row(hf + "attn.Wo.weight", blk + "attn_output.weight", n, n)
            yield row(hf + "mlp_norm.weight", blk + "ffn_norm.weight", n)
            yield row(hf + "mlp.Wi.weight", blk + "ffn_up.weight", 2 * self.n_ff, n)
            yield row(hf + "mlp.Wo.weight", blk + "ffn_down.weight", n, self.n_ff)
        yield row("final_norm.weight", "output_norm.weight", n)

    def canonical(self, name: str) -> str:
        return name.removeprefix("model.")


@dataclass(frozen=True)
class ModernBertClassifier(ModernBert):
    """ModernBERT with a head that scores a text or a pair of texts: gte-reranker-modernbert."""

    architectures = ("ModernBertForSequenceClassification",)
    order = ModernBert.order.replace("causal", f"causal {CLASSIFIER_KEYS}")
    dropped = ()
    pooling = RANK
    counts = LABELS
    conditional: ClassVar[Mapping[str, str]] = {**ModernBert.conditional, **LABELS_CONDITION}

    labels: tuple[str, ...]

    @classmethod
    def fields(cls, config: Config, shapes: Shapes) -> dict[str, Any]:
        config.expects("classifier_bias", False)
        config.expects("classifier_activation", "gelu")
        return {**super().fields(config, shapes), "labels": read_labels(config)}

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        n, n_labels = self.n_embd, len(self.labels)
        yield row("head.dense.weight", "cls.weight", n, n)
        yield row("head.norm.weight", "cls.norm.weight", n)
        yield row("classifier.weight", "cls.output.weight", n_labels, n)
        yield row("classifier.bias", "cls.output.bias", n_labels)


def _read_period(config: Config, n_layer: int) -> int:
    """The n for which the first of every n layers sees all tokens, and no other layer does."""
    local = read_layer_types(config, n_layer)
    if local is None:
        return config.integer("global_attn_every_n_layers", default=USUAL_PERIOD)
    for n in [USUAL_PERIOD, *range(1, n_layer + 1)]:
        if local == [i % n > 0 for i in range(n_layer)]:
            return int(n)
    raise config.wrong("layer_types", "full_attention for the first of every n layers only")


def _read_bases(config: Config) -> tuple[float, float]:
    """The bases of RoPE, of layers that see all tokens and of local ones."""
    refuse_scaling(config.section("rope_scaling"))
    both = config.section("rope_parameters")
    bases = []
    for kind, key, usual in (
        ("full_attention", "global_rope_theta", 160000.0),
        ("sliding_attention", "local_rope_theta", 10000.0),
    ):
        if both.data and kind not in both:
            raise both.wrong(kind, "the settings of RoPE of these layers")
        own = both.section(kind)
        refuse_scaling(own)
        bases.append(own.number("rope_theta", default=config.number(key, default=usual)))
    return bases[0], bases[1]
