"""Llama and Mistral: attention with RoPE and a gated feed-forward part on every layer. arXiv:2302.13971"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.llama import LlamaHparams

from ..checkpoint import Config
from ..transforms import interleave_rope
from .blocks import NUMBERED, SIZES, Heads, read_rope, stacked_experts, swiglu, swiglu_bias
from .decoder import Decoder
from .family import Row, Shapes, row, text_part
from .heads import Head
from .rope import SCALING, RopeScaling, Rotation, original_context, read_kind, read_scaling
from .unused_fields import ONLY_PICTURES, PICTURES
from .windows import one_or_each, read_layer_types, read_window, window_notes, window_values, windows_of

# words of Family.order that these families begin with
LLAMA = f"{SIZES} {SCALING} freq_base eps d_head? .attention.value_length=d_head? .general.file_type"
# the same where readers do not ask for the size of a head
LLAMA_HEADS = LLAMA.replace("d_head?", ".attention.key_length=d_head?", 1)


@dataclass(frozen=True)
class Llama(Decoder):
    """One model of Llama. Families like it change its class variables, `read_...` methods, `order`, `values`,
    `attention` and `feed_forward`."""

    arch: ClassVar[str] = "llama"
    architectures: ClassVar[tuple[str, ...]] = ("LlamaForCausalLM", "LLaMAForCausalLM", "LlamaModel")
    hparams: ClassVar[type[Any]] = LlamaHparams
    order = f"{LLAMA} .vocab_size n_rot windows?"
    pre: ClassVar[tuple[str, ...]] = ("llama-bpe",)
    activations: ClassVar[tuple[str, ...]] = ("silu",)  # supported values of hidden_act; empty: not read
    eps_key: ClassVar[str] = "rms_norm_eps"
    conditional: ClassVar[Mapping[str, str]] = {"tie_word_embeddings": "where the model has a head"}
    norm_bias: ClassVar[bool] = False
    last_norm: ClassVar[str] = "model.norm"
    # defaults; Mistral's context is below
    usually_tied: ClassVar[bool] = False
    usual_ctx: ClassVar[int] = 2048
    usual_eps: ClassVar[float] = 1e-6
    usual_theta: ClassVar[float] = 10000.0
    rope_kinds: ClassVar[dict[str, str]] = {}  # other names of a rope_type in configs -> its name
    usual_head: ClassVar[int] = 0  # default size of a head; 0: n_embd / n_head
    usual_bias: ClassVar[bool] = False  # of attention
    known_windows: ClassVar[bool] = False  # llama.cpp has windows in this architecture
    reads_yarn: ClassVar[bool] = False  # llama.cpp reads all keys of YaRN
    original_ctx: ClassVar[int] = 0  # the context before RoPE's scaling, if the config does not say; 0: unchanged
    # norms of a layer: the checkpoint's and GGUF's names
    norms: ClassVar[dict[str, str]] = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}

    n_ff: int
    heads: Heads
    n_rot: int  # values of a head that RoPE rotates
    freq_base: float
    scaling: RopeScaling
    attention_bias: bool
    mlp_bias: bool
    windows: tuple[int, ...]  # per layer, tokens that a token sees, itself included; 0 = all

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        if cls.activations:
            config.expects("hidden_act", *cls.activations)
        spelled = {"n_ctx": ("max_position_embeddings", "n_ctx"), "eps": (cls.eps_key,)}
        n_ctx = 131072 if "Mistral" in str(config.get("architectures")) else cls.usual_ctx
        sizes = cls.sizes(config, shapes, n_ctx=n_ctx, eps=cls.usual_eps, tied=cls.usually_tied, spelled=spelled)
        # checkpoints for embeddings may lack the head
        sizes["tied"] |= _is_headless(config)
        heads = Heads.read(config, sizes["n_embd"], usual=cls.usual_head)
        n_rot = cls.read_turned(config, heads)
        rope, theta = cls.read_rope(config)
        n_ctx, kind = sizes["n_ctx"], read_kind(rope)
        original = original_context(config, rope, n_ctx, cls.original_ctx)
        rotation = Rotation(n_rot, theta, n_ctx, original)
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            n_rot=n_rot,
            freq_base=theta,
            scaling=read_scaling(rope, cls.rope_kinds.get(kind, kind), rotation, reads_yarn=cls.reads_yarn),
            windows=cls.read_windows(config, sizes["n_layer"]),
            **cls.read_biases(config),
            **cls.read_more(config),
        )

    @classmethod
    def read_rope(cls, config: Config) -> tuple[Config, float]:
        """The settings of RoPE and its base."""
        return read_rope(config, cls.usual_theta)

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        """`attention_bias` and `mlp_bias`."""
        return {
            "attention_bias": config.boolean("attention_bias", default=cls.usual_bias),
            "mlp_bias": config.boolean("mlp_bias", default=False),
        }

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        """The number of values of a head that RoPE rotates."""
        heads.require_even(config)
        return heads.d_head

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        """`windows`. A Llama has none, whatever its config says: transformers ignores the field."""
        return (0,) * n_layer

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        """Further fields of a family."""
        return {}

    # heads that guess tokens ahead: families with such heads make it a field
    heads_ahead = tuple[Head, ...]()

    def block_name(self, i: int) -> str:
        """The prefix of block i's names in the checkpoint."""
        return f"model.layers.{i}."

    def values(self) -> dict[str, Any]:
        own = {} if self.heads.stated else {"d_head": None}
        if self.known_windows:
            return own | window_values(max(self.windows), self.windows)
        return own | {"windows": one_or_each(self.windows)}

    def canonical(self, name: str) -> str:
        return name if name.startswith(("model.", "lm_head.")) else f"model.{name}"

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        if not self.known_windows:
            yield from window_notes(self.windows, self.n_ctx)

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.scaling.rows()
        yield from self.outer_rows(self.embedding, self.last_norm + ".weight")
        if self.norm_bias:
            yield row(self.last_norm + ".bias", "output_norm.bias", n)
        for i in range(self.blocks_in_file):
            hf, blk = self.block_name(i), f"blk.{i}."
            for source, target in self.norms.items():
                yield row(f"{hf}{source}.weight", f"{blk}{target}.weight", n)
                if self.norm_bias:
                    yield row(f"{hf}{source}.bias", f"{blk}{target}.bias", n)
            yield from self.layer_attention(hf + "self_attn.", blk, i)
            yield from self.feed_forward(hf + "mlp.", blk, i)
        for i, head in enumerate(self.heads_ahead, self.n_layer):
            yield from head.rows(f"blk.{i}.", n, self.n_vocab)

    def layer_attention(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        """Tensors of the attention of layer i, of a family in which layers differ."""
        yield from self.attention(hf, blk)

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        """Tensors of the attention of a layer."""
        turned = interleave_rope(self.heads.d_head)
        yield from self.heads.rows(hf, blk, self.n_embd, turned, bias=self.attention_bias)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        """Tensors of its feed-forward part."""
        yield from swiglu(hf, blk, self.n_embd, self.n_ff)
        if self.mlp_bias:
            yield from swiglu_bias(hf, blk, self.n_embd, self.n_ff)


@dataclass(frozen=True)
class SmolVlm(Llama):
    """The text model of SmolVLM or Idefics 3."""

    architectures = ("SmolVLMForConditionalGeneration", "Idefics3ForConditionalGeneration")
    without_effect: ClassVar[Mapping[str, str]] = {
        **PICTURES,
        "_pad_token_id": "a number of a special token: taken with the vocabulary",
        **dict.fromkeys(("perceiver_config", "pixel_shuffle_factor", "use_resampler"), ONLY_PICTURES),
        **dict.fromkeys(
            ("neftune_noise_alpha", "_flash_attn_2_enabled", "is_llama_config"), "only training, and names"
        ),
    }
    dropped: ClassVar[tuple[str, ...]] = ("model.vision_model.", "model.connector.")

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        text = text_part(config)
        for key in ("qk_layer_norms", "rope_interleaved"):
            text.expects(key, False)
        if "num_attention_heads" not in text:  # as in SmolVLM2: transformers' default
            text = text.over(Config({"num_attention_heads": 32}, text.where))
        return super().read(text, shapes)

    def canonical(self, name: str) -> str:
        return name.replace("model.text_model.", "model.", 1)


@dataclass(frozen=True)
class Mistral(Llama):
    """One model of Mistral: a Llama with a window on every layer. arXiv:2310.06825"""

    architectures = ("MistralForCausalLM", "MistralModel")

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        return (read_window(config, 4096),) * n_layer


@dataclass(frozen=True)
class Ministral(Llama):
    """One model of Ministral of 2024: a Mistral with the window on some layers, or on all."""

    architectures = ("MinistralForCausalLM",)
    usual_ctx = 131072
    conditional: ClassVar[Mapping[str, str]] = {**Llama.conditional, "sliding_window": "where a layer has a window"}

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        window = read_window(config, 4096)
        return windows_of(config, window, read_layer_types(config, n_layer) or [window > 0] * n_layer)


@dataclass(frozen=True)
class Helium(Llama):
    """One model of Helium: a Llama whose checkpoints have RoPE's pairs side by side, as GGUF has. Of Kyutai."""

    architectures = ("HeliumForCausalLM",)
    pre = ()
    usual_ctx, usual_eps, usual_theta, usual_head = 4096, 1e-8, 100000.0, 128

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias, out_bias=False)


@dataclass(frozen=True)
class InternLm3(Llama):
    """One model of InternLM3: a Llama with other names of two fields. Of Shanghai AI Laboratory."""

    architectures = ("InternLM3ForCausalLM",)
    pre = ()
    usual_ctx, usual_eps, usual_head = 32768, 1e-5, 128
    rope_kinds: ClassVar[dict[str, str]] = {"dynamic": "default"}  # up to the context of the config they are the same
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        **dict.fromkeys(("rope_scaling", "rope_scaling.factor"), "where rope_type is not dynamic"),
    }

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        biased = config.boolean("qkv_bias", "attention_bias", default=False)
        if config.boolean("bias", "mlp_bias", default=False) != biased:
            raise config.wrong(config.named("bias", "mlp_bias"), f"{str(biased).lower()}, as qkv_bias")
        return {"attention_bias": biased, "mlp_bias": biased}


@dataclass(frozen=True)
class Mixtral(Llama):
    """One model of Mixtral: a Llama with experts, in GGUF also. arXiv:2401.04088"""

    architectures = ("MixtralForCausalLM",)
    order = f"{LLAMA} n_expert n_expert_used .vocab_size n_rot windows?"
    without_effect: ClassVar[Mapping[str, str]] = {
        "router_jitter_noise": "only training: noise of what routers read",
        **dict.fromkeys(("attention_bias", "mlp_bias"), "it has no biases, as in transformers"),
    }
    usual_ctx, usual_eps, usual_theta = 131072, 1e-5, 1e6

    n_expert: int
    n_expert_used: int

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        return (read_window(config),) * n_layer

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        return {"attention_bias": False, "mlp_bias": False}

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        n_expert = config.integer("num_local_experts", "num_experts", default=8, maximum=4096)
        used = config.integer("num_experts_per_tok", default=2, maximum=n_expert)
        return {"n_expert": n_expert, "n_expert_used": used}

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        hf = hf.removesuffix("mlp.") + "block_sparse_moe."
        yield row(hf + "gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, self.n_embd)
        yield from stacked_experts(hf + "experts.", blk, self.n_expert, self.n_embd, self.n_ff, NUMBERED)


def _is_headless(config: Config) -> bool:
    """Whether the checkpoint's class has no output matrix, such as LlamaModel."""
    names = config.get("architectures")
    return isinstance(names, list) and bool(names) and str(names[0]).endswith("Model")
