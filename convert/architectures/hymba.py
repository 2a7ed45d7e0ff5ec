"""Hymba: attention and Mamba-1 side by side on every layer, after a prefix of learned rows. arXiv:2411.13676

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.errors import UnsupportedError, shown
from hybrid.quant.ggml.families.hparams import PREFIX
from hybrid.quant.ggml.families.hymba import HymbaHparams

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP
from .blocks import MAX_LAYERS, SILU, SIZES, Heads, conv1d, swiglu
from .decoder import Decoder
from .family import Row, Shapes, TensorBlock, row
from .mamba import SCAN, Scan

MULTIPLE = 64  # of rows in a prefix: pages of memory are whole
STRETCH = 2  # of static NTK scaling in Hymba's code


@dataclass(frozen=True)
class Hymba(Decoder):
    """One model; transformers has no class for it, so defaults come from its own code.

    The published code has two windows: the mask of prompts shows a token the sliding_window tokens before it, the cache
    of generation one fewer. The mask, with which the model was trained, counts here.
    """

    arch = "hymba"
    architectures = ("HymbaForCausalLM",)
    hparams = HymbaHparams
    order = (
        f"{SIZES} .attention.key_length=heads/d_head .attention.value_length=d_value "
        f"{SCAN} eps freq_base window? local? back n_prefix .general.file_type .vocab_size"
    )
    in_llama_cpp = False
    understood = ("rope_type",)
    conditional: ClassVar[Mapping[str, str]] = {
        "orig_max_position_embeddings": "where rope_type is ntk",
        "global_attn_idx": "where there is a sliding_window",
        "kv_reuse_every_i_layer": "where there is no kv_reuse_group",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        "calc_logits_for_entire_prompt": "only which logits its own code returns",
        "conv_dim": "its own code computes it",
        "kv_weight_reuse": "its own code does not read it",
        "num_experts": "its own code makes one feed-forward part, whatever it says",
        "num_experts_per_tok": "its own code makes one feed-forward part, whatever it says",
        "seq_length": "only for which length a mask is prepared",
        "v_head_dim": "its own code computes it",
    }

    n_ff: int
    heads: Heads
    scan: Scan
    freq_base: float
    window: int  # tokens that a token sees, itself included; 0: all
    local: tuple[bool, ...]  # per layer, whether it has the window
    sources: tuple[int, ...]  # per layer, the layer whose keys and values it uses
    n_prefix: int

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", *SILU)
        config.expects("mlp_hidden_act", "silu")
        config.expects("attn_implementation_new", "flex")
        config.expects("mamba_inner_layernorms", True)
        config.expects("mamba_proj_bias", False)
        config.expects("memory_tokens_interspersed_every", 0)
        config.expects("kq_norm", "none")
        config.expects("rope", True)
        config.expects("num_mamba", 1)
        sizes = cls.sizes(config, shapes, n_ctx=8192, tied=True)
        n_layer, n_embd = sizes["n_layer"], sizes["n_embd"]
        heads = Heads.read(config, n_embd, head_dim=False)
        heads.require_even(config)
        config.expects("kq_head_dim", -1, heads.d_head)
        config.expects("attn_hidden_size", -1, n_embd)
        config.expects("layer_type", ["h"] * n_layer)
        scan = Scan.read(config, n_embd)
        n_prefix = config.integer("num_memory_tokens", default=128)
        if n_prefix % MULTIPLE:
            raise config.wrong("num_memory_tokens", f"a multiple of {MULTIPLE}")
        window = config.integer("sliding_window", default=1024 if "sliding_window" not in config.data else 0)
        local = tuple(window > 0 and i not in (_layers(config, "global_attn_idx", [0, 15, 31])) for i in range(n_layer))
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            scan=scan,
            freq_base=_freq_base(config, heads.d_head, sizes["n_ctx"]),
            window=window + 1 if window else 0,
            local=local,
            sources=_sources(config, local),
            n_prefix=n_prefix,
        )

    def values(self) -> dict[str, Any]:
        back = tuple(i - source for i, source in enumerate(self.sources))
        return {"back": back, "local": self.local if self.window else None}

    @property
    def d_value(self) -> int:
        return self.scan.d_inner // self.heads.n_head

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """in_proj has the rows of queries, keys, values, the scan's input and its gate; layers that use other keys have
        no rows of keys and values."""
        stem, is_in, _ = name.rpartition(".in_proj.weight")
        sizes = self._projected(own=True) if is_in and shape[0] == sum(self._projected(own=True).values()) else {}
        if is_in and not sizes:
            sizes = self._projected(own=False)
        if is_in and shape == (sum(sizes.values()), self.n_embd):
            first = 0
            for part, n in sizes.items():
                yield TensorBlock(f"{stem}.in_proj.{part}.weight", (first, 0), (n, self.n_embd))
                first += n

    def _projected(self, *, own: bool) -> dict[str, int]:
        """Rows of each part of in_proj. own: with keys and values."""
        n_kv = self.heads.n_kv
        keys = {"k": n_kv * self.heads.d_head, "v": n_kv * self.d_value} if own else {}
        return {"q": self.heads.n_head * self.heads.d_head, **keys, "scan": 2 * self.scan.d_inner}

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.final_layernorm.weight")
        yield row("model.memory_tokens", PREFIX, self.n_prefix, n)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "pre_moe_layernorm.weight", blk + "ffn_norm.weight", n)
            for part, rows in self._projected(own=self.sources[i] == i).items():
                target = "ssm_in" if part == "scan" else f"attn_{part}"
                yield row(f"{hf}mamba.in_proj.{part}.weight", f"{blk}{target}.weight", rows, n)
            yield from self._scan(hf + "mamba.", blk)
            yield from swiglu(hf + "moe.experts.0.", blk, n, self.n_ff)

    def _scan(self, hf: str, blk: str) -> Iterator[Row]:
        s = self.scan
        yield from conv1d(hf, blk, s.d_inner, s.d_conv, bias=s.conv_bias)
        yield row(hf + "x_proj.0.weight", blk + "ssm_x.weight", s.dt_rank + 2 * s.d_state, s.d_inner)
        yield row(hf + "dt_proj.0.weight", blk + "ssm_dt.weight", s.d_inner, s.dt_rank)
        yield row(hf + "dt_proj.0.bias", blk + "ssm_dt.bias", s.d_inner)
        yield row(hf + "A_log.0", blk + "ssm_a", s.d_inner, s.d_state, transform=NEGATIVE_EXP)
        yield row(hf + "D.0", blk + "ssm_d", s.d_inner)
        for part, target, size in (("dt", "dt", s.dt_rank), ("B", "b", s.d_state), ("C", "c", s.d_state)):
            yield row(f"{hf}{part}_layernorm.weight", f"{blk}ssm_{target}_norm.weight", size)
        yield row(hf + "pre_avg_layernorm1.weight", blk + "attn_out_norm.weight", s.d_inner)
        yield row(hf + "pre_avg_layernorm2.weight", blk + "ssm_out_norm.weight", s.d_inner)
        yield row(hf + "out_proj.weight", blk + "ssm_out.weight", self.n_embd, s.d_inner)


def _freq_base(config: Config, d_head: int, n_ctx: int) -> float:
    """The base of RoPE, whose static NTK scaling only changes it."""
    base, kind = config.number("rope_theta", default=10000.0), config.string("rope_type", default="ntk")
    if kind == "default":
        return base
    if kind != "ntk":
        raise UnsupportedError(
            f'{config.where}: rope_type = {shown(repr(kind), 60)} is not supported, only "default" and "ntk" are.'
        )
    times = STRETCH * n_ctx / config.integer("orig_max_position_embeddings", default=2048) - (STRETCH - 1)
    if not times > 0 or d_head == 2:
        raise config.wrong("orig_max_position_embeddings", "less than twice max_position_embeddings, and larger heads")
    return float(base * times ** (d_head / (d_head - 2)))


def _layers(config: Config, key: str, usual: list[int]) -> list[int]:
    """A list of numbers of layers."""
    found = config.get(key) if key in config else usual
    if not isinstance(found, list) or len(found) > MAX_LAYERS or not all(type(i) is int for i in found):
        raise config.wrong(key, "numbers of layers")
    return found


def _sources(config: Config, local: tuple[bool, ...]) -> tuple[int, ...]:
    """Per layer, the layer whose keys and values it uses: the first of its group."""
    key, sources = "kv_reuse_group", list(range(len(local)))
    groups: Any = config.get(key)
    if groups is None:
        every = config.integer("kv_reuse_every_i_layer", default=-1, minimum=-1)
        sources = [i - i % every for i in sources] if every > 0 else sources
    elif not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
        raise config.wrong(key, "lists of layers")
    else:
        for group in groups:
            for i in group[1:]:
                fits = all(type(j) is int and 0 <= j < len(local) for j in (group[0], i)) and group[0] < i
                if not fits or sources[i] != i:
                    raise config.wrong(key, "groups of layers, each with the layer that has keys first, and apart")
                sources[i] = sources[group[0]]
    for i, source in enumerate(sources):
        if local[source] != local[i]:
            raise config.wrong(key, f"layers with the same window in a group: layers {source} and {i} differ")
    return tuple(sources)
