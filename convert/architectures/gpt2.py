"""GPT-2: learned positions, layer norms with biases, a feed-forward part without a gate. OpenAI 2019"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from hybrid.quant.ggml.families.gpt2 import Gpt2Hparams

from ..checkpoint import Config
from ..transforms import turned_over
from .blocks import MAX_LAYERS
from .family import Family, Row, Shapes, row, vocabulary_rows

NORMS = {"ln_1": "attn_norm", "ln_2": "ffn_norm"}


@dataclass(frozen=True)
class Gpt2(Family):
    """One model. Its linear layers are stored as [in, out] in the checkpoint and are transposed."""

    arch: ClassVar[str] = "gpt2"
    architectures: ClassVar[tuple[str, ...]] = ("GPT2LMHeadModel",)
    hparams = Gpt2Hparams
    order = "n_layer n_ctx_train n_embd n_ff n_head eps .general.file_type"
    pre: ClassVar[tuple[str, ...]] = ("gpt-2",)
    without_effect: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            "summary_type",
            "summary_use_proj",
            "summary_activation",
            "summary_proj_to_labels",
            "summary_first_dropout",
            "predict_special_tokens",
            "n_special",
        ),
        "only of a head for classification, which is not converted",
    )

    n_vocab: int
    tied: bool
    n_layer: int
    n_ctx: int
    n_embd: int
    n_ff: int
    n_head: int
    eps: float

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("activation_function", "gelu_new")
        config.expects("scale_attn_weights", True)
        config.expects("scale_attn_by_inverse_layer_idx", False)
        # transformers lets the usual names overrule GPT-2's own
        n_embd, n_head = config.integer("hidden_size", "n_embd"), config.integer("num_attention_heads", "n_head")
        if n_embd % n_head:
            raise config.wrong("n_head", f"a divisor of n_embd = {n_embd}")
        return cls(
            n_vocab=vocabulary_rows(config, shapes, "wte.weight"),
            tied=config.boolean("tie_word_embeddings", default=True),
            n_layer=config.integer("num_hidden_layers", "n_layer", maximum=MAX_LAYERS),
            n_ctx=config.integer("max_position_embeddings", "n_positions", "n_ctx"),
            n_embd=n_embd,
            n_ff=config.integer("n_inner", default=4 * n_embd),
            n_head=n_head,
            eps=config.number("layer_norm_epsilon", default=1e-5),
        )

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield row("wte.weight", "token_embd.weight", self.n_vocab, n)
        yield row("wpe.weight", "position_embd.weight", self.n_ctx, n)
        yield from _norm("ln_f", "output_norm", n)
        yield row("lm_head.weight", "output.weight", self.n_vocab, n, tied_to="wte.weight")
        for i in range(self.n_layer):
            hf, blk = f"h.{i}.", f"blk.{i}."
            for source, target in NORMS.items():
                yield from _norm(hf + source, blk + target, n)
            yield from _linear(hf + "attn.c_attn", blk + "attn_qkv", 3 * n, n)
            yield from _linear(hf + "attn.c_proj", blk + "attn_output", n, n)
            yield from _linear(hf + "mlp.c_fc", blk + "ffn_up", self.n_ff, n)
            yield from _linear(hf + "mlp.c_proj", blk + "ffn_down", n, self.n_ff)

    def canonical(self, name: str) -> str:
        return name.removeprefix("transformer.")


def _norm(source: str, target: str, n: int) -> Iterator[Row]:
    yield row(source + ".weight", target + ".weight", n)
    yield row(source + ".bias", target + ".bias", n)


def _linear(source: str, target: str, n_out: int, n_in: int) -> Iterator[Row]:
    """A matrix stored as [in, out], as in TensorFlow, with its bias."""
    yield row(
        source + ".weight", target + ".weight", n_out, n_in, transform=turned_over(n_in), source_shape=(n_in, n_out)
    )
    yield row(source + ".bias", target + ".bias", n_out)
