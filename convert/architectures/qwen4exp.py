"""Qwen3.8-Flash-Next: gated delta rule, indexed attention on every fourth layer, experts beside a shared one, gated
residual streams, n-gram embeddings. Of Qwen."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.families.qwen4exp import Qwen4ExpHparams

from ..checkpoint import Config, StoredTensor
from ..transforms import PLUS_ONE
from .blocks import Heads, read_rope, read_turned
from .delta import read_delta
from .family import Keyed, Row, Shapes, TensorBlock, row
from .heads import NOT_IN_LLAMA_CPP, Head
from .ngrams import NGRAMS, Ngrams, read_ngrams
from .qwen3next import KINDS, read_attention_layers
from .qwen35 import Qwen35
from .rope import read_stretching
from .unused_fields import HEADS, MROPE, PICTURES

GATES = ("silu", "sigmoid")
INDEXED = {**KINDS, "indexed_attention": "full_attention"}  # transformers 5's name of it
MIXERS = {"attn_hyper_connection.": "hc_attn_", "mlp_hyper_connection.": "hc_ffn_"}
# A head is an attention layer with experts, on residual streams of its own.
HEAD = Head(
    "mtp.fc_embedding.weight",
    "mtp.pre_fc_norm_embedding.weight",
    "mtp.pre_fc_norm_hidden.weight",
    join_state="mtp.fc_hidden.weight",
)


@dataclass(frozen=True)
class Indexer(Keyed):
    """The indexer: n_head queries of d_head values; groups of `every` tokens, chosen up to `budget` tokens."""

    n_head: int
    d_head: int
    budget: int
    every: int

    def values(self) -> dict[str, Any]:
        return {"n_index_head": self.n_head, "d_index": self.d_head, "budget": self.budget}

    @classmethod
    def read(cls, config: Config, n_rot: int) -> Self:
        config.expects("indexer_kv_heads", 1)
        every = config.integer("indexer_compress_ratio", maximum=1024)
        budget = config.integer("indexer_budget", maximum=1 << 24)
        if budget % every:
            raise config.wrong("indexer_budget", f"a multiple of indexer_compress_ratio = {every}")
        d_head = config.integer("indexer_head_dim", maximum=1 << 16)
        if d_head < n_rot:
            raise config.wrong("indexer_head_dim", f"at least the {n_rot} values that RoPE turns")
        return cls(config.integer("indexer_n_heads", maximum=1 << 16), d_head, budget, every)


@dataclass(frozen=True)
class Qwen4Exp(Qwen35):
    """The text model."""

    arch = "qwen4exp"
    architectures: ClassVar[tuple[str, ...]] = ("Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration")
    hparams = Qwen4ExpHparams
    order = f"{Qwen35.order} n_stream rank n_index_head d_index budget every {NGRAMS} silu_gate?"
    without_effect: ClassVar[Mapping[str, str]] = {
        **{name: reason for name, reason in PICTURES.items() if name != "image_token_id"},
        **HEADS,
        **MROPE,
        "number_of_conv_states": "only how transformers keeps states",
    }
    conditional: ClassVar[Mapping[str, str]] = {
        "full_attention_interval": "where layer_types is absent",
        **dict.fromkeys(
            (
                "ple_embed_dim",
                "ple_conv_kernel_size",
                "ngram_size",
                "heads_per_ngram",
                "ngram_vocab_size_base",
                "make_ngram_vocab_size_divisible_by",
                "split_ngram_parts",
                "seed",
                "image_token_id",
            ),
            "where a layer has n-gram embeddings",
        ),
    }

    n_stream: int
    rank: int
    indexer: Indexer
    silu_gate: bool
    ngrams: Ngrams | None

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        text = config.section("text_config")
        if "tie_word_embeddings" in text:  # transformers asks the outer config
            config.expects("tie_word_embeddings", text.get("tie_word_embeddings"))
        config = text.over(config) if text.data else config
        config.expects("hidden_act", "silu")
        sizes = cls.sizes(config, shapes, n_ctx=32768)
        n_layer, n_embd = sizes["n_layer"], sizes["n_embd"]
        heads = Heads.read(config, n_embd, usual=256)
        rope, theta = read_rope(config)
        n_rot = read_turned(config, heads.d_head, 1.0, heads.named(config))
        n_expert = config.integer("num_experts", default=512, maximum=4096)
        attention = read_attention_layers(config, n_layer, INDEXED)
        gate = config.string("output_gate_type", default="silu")
        if gate not in GATES:
            raise UnsupportedError(
                f"{config.where}: output_gate_type = {gate!r} is not supported, only {' or '.join(GATES)} is."
            )
        return cls(
            **sizes,
            n_ff=0,
            grouped=False,
            heads=heads,
            attention_bias=config.boolean("attention_bias", default=False),
            n_rot=n_rot,
            freq_base=theta,
            scaling=read_stretching(config, rope, theta, n_rot, sizes["n_ctx"]),
            attention=attention,
            moe=(True,) * n_layer,
            n_expert=n_expert,
            n_expert_used=config.integer("num_experts_per_tok", default=10, maximum=n_expert),
            n_ff_expert=config.integer("moe_intermediate_size", default=512),
            n_ff_shared=config.integer("shared_expert_intermediate_size", default=512),
            weights_norm=config.boolean("norm_topk_prob", default=True),
            **read_delta(config, shapes, (16, 128, 32, 128)),
            sections=cls.read_sections(rope),
            n_stream=config.integer("hc_count", default=4, minimum=2, maximum=64),
            rank=config.integer("hc_lowrank", default=320),
            indexer=Indexer.read(config, n_rot),
            silu_gate=gate == "silu",
            ngrams=read_ngrams(config, shapes, sizes["n_vocab"], n_embd, attention),
            heads_ahead=(HEAD,) if any(name.removeprefix("model.") == HEAD.join for name in shapes) else (),
        )

    def settled(self, stored: Mapping[str, StoredTensor]) -> Self:
        return self if self.ngrams is None else replace(self, ngrams=self.ngrams.settled(stored))

    def values(self) -> dict[str, Any]:
        every = [self.indexer.every if there else 0 for there in self.attention]
        return super().values() | {"n_ff": None, "every": [*every, *[0] * len(self.heads_ahead)]}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if any(self.attention):
            yield (
                "llama.cpp chooses other groups of tokens than transformers as soon as there is a choice: its results "
                f"differ in texts of {self.indexer.budget + self.indexer.every} tokens and more; here it is as in "
                "transformers"
            )
        if self.silu_gate:
            yield "llama.cpp takes output_gate_type = sigmoid: it has no key for it in this architecture"
        if self.ngrams:
            yield from self.ngrams.notes(self.n_embd)
        if self.heads_ahead:
            yield NOT_IN_LLAMA_CPP

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """Index queries and keys are one matrix in checkpoints."""
        n, d = self.n_embd, self.indexer.d_head
        if name.endswith(".index_qk_proj.weight") and shape == ((self.indexer.n_head + 1) * d, n):
            yield TensorBlock(name + ".0", (0, 0), (self.indexer.n_head * d, n))
            yield TensorBlock(name + ".1", (self.indexer.n_head * d, 0), (d, n))
        else:
            yield from super().parts(name, shape)

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield row(self.embedding, "token_embd.weight", self.n_vocab, n)
        yield row("lm_head.weight", "output.weight", self.n_vocab, n, tied_to=self.embedding)
        yield from self._mixer("model.hyper_connection_mixer.", "output_hc_")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield from self._block(hf, blk, self.attention[i])
            if self.ngrams and i == self.ngrams.layer:
                yield from self.ngrams.rows(hf + "ple.", blk + "ple_", n, self.n_stream)
        for i, head in enumerate(self.heads_ahead):
            blk = f"blk.{self.n_layer + i}."
            yield from head.rows(blk, n, self.n_vocab, PLUS_ONE, self.n_stream * n)
            yield from self._mixer("mtp.hyper_connection_mixer.", blk + "nextn.hc_head_")
            yield from self._block("mtp.layers.0.", blk, True)

    def _block(self, hf: str, blk: str, attention: bool) -> Iterator[Row]:
        for source, target in MIXERS.items():
            yield from self._mixer(hf + source, blk + target)
            yield row(
                f"{hf}{source}block_inject_weight.weight",
                f"{blk}{target}inject.weight",
                self.n_stream,
                self.n_stream * self.n_embd,
            )
        if attention:
            yield from self._attention(hf + "self_attn.", blk)
            yield from self._indexer(hf + "self_attn.indexer.", blk + "indexer.")
        else:
            yield from self.delta(hf + "linear_attn.", blk)
        yield from self._experts(hf + "mlp.", blk)

    def _mixer(self, hf: str, blk: str) -> Iterator[Row]:
        """The tensors that compute the gates of all streams."""
        width = self.n_stream * self.n_embd
        yield row(hf + "hc_norm.weight", blk + "norm.weight", width, transform=PLUS_ONE)
        yield row(hf + "input_mix_weight_down.weight", blk + "down.weight", self.rank, width)
        yield row(hf + "input_mix_weight_up.weight", blk + "up.weight", width, self.rank)

    def _indexer(self, hf: str, blk: str) -> Iterator[Row]:
        n, d = self.n_embd, self.indexer.d_head
        yield row(hf + "index_qk_proj.weight.0", blk + "q_proj.weight", self.indexer.n_head * d, n)
        yield row(hf + "index_qk_proj.weight.1", blk + "k_proj.weight", d, n)
        for part in "qk":
            yield row(f"{hf}{part}_layernorm.weight", f"{blk}{part}_norm.weight", d, transform=PLUS_ONE)
