"""Phi-4-mini-flash: Mamba-1 and differential attention in turns, then layers on the memory of two. arXiv:2507.06607

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.phi4flash import Phi4FlashHparams

from ..checkpoint import Config
from .blocks import SILU, SIZES, Heads
from .decoder import Decoder
from .family import Row, Shapes, TensorBlock, experts, row
from .mamba import SCAN, Scan
from .ungated import norm_rows
from .windows import read_layer_types, read_window

NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
SUB_EPS = 1e-5  # of the norms after differences, whatever the config says for the others
LAMBDAS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")


@dataclass(frozen=True)
class Phi4Flash(Decoder):
    """One model; transformers has no class for it, so defaults come from its own code.

    Every second layer is Mamba, or its replacement. In the first half attention has a window. Layer n_layer / 2 is the
    last Mamba, and the next one the last attention with its own keys: later layers use the results of these two.
    """

    arch = "phi4flash"
    architectures = ("Phi4FlashForCausalLM",)
    hparams = Phi4FlashHparams
    order = (
        f"{SIZES} .attention.key_length=heads/d_head .attention.value_length=heads/d_head {SCAN} eps sub_eps window "
        "local n_shared .general.file_type .vocab_size"
    )
    in_llama_cpp = False
    without_effect: ClassVar[Mapping[str, str]] = {"rope_theta": "no layer has positions"}

    n_ff: int
    heads: Heads
    window: int
    scan: Scan

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", *SILU)
        config.expects("mb_per_layer", 2)
        for bias in ("mlp_bias", "lm_head_bias"):
            config.expects(bias, False)
        sizes = cls.sizes(config, shapes, n_ctx=4096, eps=1e-5, tied=True, spelled={"eps": ("layer_norm_eps",)})
        n_layer, n_embd = sizes["n_layer"], sizes["n_embd"]
        if n_layer % 4:
            raise config.wrong("num_hidden_layers", "a multiple of 4: the first half ends with attention")
        heads = Heads.read(config, n_embd, head_dim=False)
        for key, n in (("num_attention_heads", heads.n_head), ("num_key_value_heads", heads.n_kv)):
            if n % 2:
                raise config.wrong(key, "an even number: heads are subtracted from one another in pairs")
        model = cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            window=read_window(config, 2047),
            scan=Scan.read(config, n_embd),
        )
        kinds = read_layer_types(config, n_layer)
        if kinds is not None and any(kinds[i] != model.local[i] for i in range(1, n_layer, 2)):
            raise config.wrong("layer_types", "windows on the attention of the first half of the layers alone")
        return model

    @property
    def local(self) -> list[bool]:
        """Per layer, whether it has the window."""
        return [i % 2 == 1 and i < self.n_layer // 2 and self.window > 0 for i in range(self.n_layer)]

    @property
    def n_own(self) -> int:
        """The number of layers before those without memory of their own."""
        return self.n_layer // 2 + 2

    def values(self) -> dict[str, Any]:
        attends = self.heads.per_layer([i % 2 == 1 for i in range(self.n_layer)])
        return {"n_head_kv": attends, "sub_eps": SUB_EPS, "n_shared": self.n_layer - self.n_own}

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """Wqkv contains the rows of queries, keys and values; in the last layers, only of queries."""
        n_q, n_kv = (n * self.heads.d_head for n in (self.heads.n_head, self.heads.n_kv))
        stem, _, kind = name.rpartition(".Wqkv.")
        if stem and shape in ((n_q + 2 * n_kv, self.n_embd), (n_q + 2 * n_kv,)):
            rest = shape[1:]
            for part, first, n in (("q", 0, n_q), ("k", n_q, n_kv), ("v", n_q + n_kv, n_kv)):
                yield TensorBlock(f"{stem}.Wqkv.{part}.{kind}", (first, *(0 for _ in rest)), (n, *rest))

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.final_layernorm.weight")
        yield row("model.final_layernorm.bias", "output_norm.bias", n)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield from norm_rows(hf, blk, n, NORMS)
            if i % 2:
                yield from self._attention(hf + "attn.", blk, own=i < self.n_own)
            elif i < self.n_own:
                yield from self.scan.rows(hf + "attn.", blk, n)
            else:
                yield from self._memory_unit(hf + "attn.", blk)
            yield row(hf + "mlp.fc1.weight", blk + "ffn_up.weight", 2 * self.n_ff, n)  # gate, then up
            yield row(hf + "mlp.fc2.weight", blk + "ffn_down.weight", n, self.n_ff)

    def _attention(self, hf: str, blk: str, *, own: bool) -> Iterator[Row]:
        """Attention; `own`: with its own keys and values."""
        n, d = self.n_embd, self.heads.d_head
        sizes = {"q": self.heads.n_head * d, **(dict.fromkeys("kv", self.heads.n_kv * d) if own else {})}
        for part, n_out in sizes.items():
            source = f"{hf}Wqkv.{part}." if own else hf + "Wqkv."
            yield row(source + "weight", f"{blk}attn_{part}.weight", n_out, n)
            yield row(source + "bias", f"{blk}attn_{part}.bias", n_out)
        yield row(hf + "out_proj.weight", blk + "attn_output.weight", n, self.heads.n_head * d)
        yield row(hf + "out_proj.bias", blk + "attn_output.bias", n)
        inner = hf + "inner_cross_attn."
        yield experts([inner + name for name in LAMBDAS], blk + "attn_lambda", d, group=inner)
        yield row(inner + "subln.weight", blk + "attn_sub_norm.weight", 2 * d)

    def _memory_unit(self, hf: str, blk: str) -> Iterator[Row]:
        n, d_inner = self.n_embd, self.scan.d_inner
        for source, target, n_out, n_in in (("in", "in", d_inner, n), ("out", "out", n, d_inner)):
            yield row(f"{hf}{source}_proj.weight", f"{blk}gmu_{target}.weight", n_out, n_in)
            if self.scan.bias:
                yield row(f"{hf}{source}_proj.bias", f"{blk}gmu_{target}.bias", n_out)
