"""OpenELM: every layer has its own number of heads and feed-forward size. arXiv:2404.14619"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.openelm import OpenElmHparams

from ..checkpoint import Config
from .blocks import HEAD_SIZE, MAX_LAYERS, SIZES
from .family import Family, Row, Shapes, TensorBlock, row, vocabulary_rows


@dataclass(frozen=True)
class OpenElm(Family):
    """One model. n_ff, n_head and n_kv are per layer; queries, keys and values are one matrix, gate and up another."""

    arch: ClassVar[str] = "openelm"
    architectures: ClassVar[tuple[str, ...]] = ("OpenELMForCausalLM",)
    hparams = OpenElmHparams
    order = f"{SIZES} freq_base eps .rope.dimension_count=d_head {HEAD_SIZE} .general.file_type"
    tokenizer_hint: ClassVar[str] = "Llama 2's tokenizer, of meta-llama/Llama-2-7b-hf"
    without_effect: ClassVar[Mapping[str, str]] = {
        "qkv_multipliers": "num_query_heads and num_kv_heads are computed from it",
        "num_gqa_groups": "num_query_heads and num_kv_heads are computed from it",
        "rope_max_length": "only how long a table of angles is kept",
    }
    eps: ClassVar[float] = 1e-6  # of the model's code; no config has it

    n_vocab: int
    tied: bool
    n_ctx: int
    n_embd: int
    n_ff: tuple[int, ...]
    n_head: tuple[int, ...]
    n_kv: tuple[int, ...]
    d_head: int
    freq_base: float

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("share_input_output_layers", True)
        config.expects("normalize_qk_projections", True)
        config.expects("ffn_with_glu", True)
        config.expects("activation_fn_name", "swish")
        config.expects("normalization_layer_name", "rms_norm")
        n_layer = config.integer("num_transformer_layers", maximum=MAX_LAYERS)
        n_embd, divisor = config.integer("model_dim"), config.integer("ffn_dim_divisor", default=256)
        d_head = config.integer("head_dim", maximum=1 << 16)
        if d_head % 2:
            raise config.wrong("head_dim", "heads of even size, for RoPE")
        n_head, n_kv = (_counts(config, key, n_layer) for key in ("num_query_heads", "num_kv_heads"))
        if any(q % kv for q, kv in zip(n_head, n_kv, strict=True)):
            raise config.wrong("num_kv_heads", "in every layer a divisor of num_query_heads")
        multipliers = _per_layer(config, "ffn_multipliers", n_layer, (int, float), 64)
        return cls(
            n_vocab=vocabulary_rows(config, shapes, "transformer.token_embeddings.weight"),
            tied=True,
            n_ctx=config.integer("max_context_length", default=2048),
            n_embd=n_embd,
            n_ff=tuple(_divisible(m * n_embd, divisor) for m in multipliers),
            n_head=n_head,
            n_kv=n_kv,
            d_head=d_head,
            freq_base=config.number("rope_freq_constant", default=10000.0),
        )

    @property
    def blocks_in_file(self) -> int:
        return len(self.n_ff)

    def values(self) -> dict[str, Any]:
        return {"n_head_kv": self.n_kv}

    def rows(self) -> Iterator[Row]:
        n, d = self.n_embd, self.d_head
        yield row("transformer.token_embeddings.weight", "token_embd.weight", self.n_vocab, n)
        yield row("transformer.norm.weight", "output_norm.weight", n)
        for i, (n_ff, n_head, n_kv) in enumerate(zip(self.n_ff, self.n_head, self.n_kv, strict=True)):
            hf, blk = f"transformer.layers.{i}.", f"blk.{i}."
            yield row(hf + "attn_norm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "attn.qkv_proj.weight", blk + "attn_qkv.weight", (n_head + 2 * n_kv) * d, n)
            for part in "qk":
                yield row(f"{hf}attn.{part}_norm.weight", f"{blk}attn_{part}_norm.weight", d)
            yield row(hf + "attn.out_proj.weight", blk + "attn_output.weight", n, n_head * d)
            yield row(hf + "ffn_norm.weight", blk + "ffn_norm.weight", n)
            for part in ("gate", "up"):
                yield row(f"{hf}ffn.proj_1.{part}", f"{blk}ffn_{part}.weight", n_ff, n)
            yield row(hf + "ffn.proj_2.weight", blk + "ffn_down.weight", n, n_ff)

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """Gate and up are the two halves of one matrix."""
        if name.endswith(".ffn.proj_1.weight") and len(shape) == 2 and shape[0] % 2 == 0:
            n_ff, n = shape[0] // 2, shape[1]
            for i, part in enumerate(("gate", "up")):
                yield TensorBlock(name.removesuffix("weight") + part, (i * n_ff, 0), (n_ff, n))


def _counts(config: Config, key: str, n_layer: int) -> tuple[int, ...]:
    return tuple(int(value) for value in _per_layer(config, key, n_layer, (int,), 1 << 16))


def _per_layer(config: Config, key: str, n_layer: int, kinds: tuple[type, ...], most: float) -> list[float]:
    """A positive number for each layer."""
    values = config.get(key)
    if values is None:
        config.string(key)  # raises the error for a missing key
    right = isinstance(values, list) and len(values) == n_layer
    if not right or not all(type(value) in kinds and 0 < value <= most for value in values):
        what = "integers" if kinds == (int,) else "numbers"
        raise config.wrong(key, f"{n_layer} {what} of at most {most}, one for every layer")
    return list(values)


def _divisible(x: float, divisor: int) -> int:
    """The nearest multiple, but at least nine tenths of x: the rounding of feed-forward sizes in the model's code."""
    rounded = max(divisor, int(x + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * x else rounded
