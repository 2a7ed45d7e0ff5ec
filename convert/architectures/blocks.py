"""Parts that several families share: sizes from their configs, keys in llama.cpp's order, tensors with equal names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, shown

from ..checkpoint import Config
from ..transforms import Transform
from .family import Keyed, Row, Shapes, experts, row

MAX_LAYERS = 4096
MAX_HEAD = 1 << 16  # values of a head
HEAD_DIM = ("head_dim", "attention_head_dim")  # spellings
# words of Family.order: sizes of a model with attention; the size of its heads, for readers that take the width
# divided by their number for it
SIZES = "n_layer n_ctx_train n_embd n_ff n_head n_head_kv"
HEAD_SIZE = "d_head .attention.value_length=d_head"
SILU = ("silu", "swish")  # its names in transformers


def check_rows(config: Config, n_rows: int, shapes: Shapes, *keys: str) -> None:
    """CheckpointError if config sizes make a matrix with more rows than any tensor has. Families that make names or
    arrays of n_rows call it before tensors are compared one by one. keys: of the config, for the message."""
    most = max((shape[0] for shape in shapes.values() if shape), default=n_rows)
    if n_rows > most:
        stated = " and ".join(f"{key} = {shown(config.get(key))}" for key in keys if key in config)
        raise CheckpointError(
            f"{config.where}: {stated} make a matrix of {n_rows} rows; its tensors have at most {most}."
        )


@dataclass(frozen=True)
class Heads(Keyed):
    """n_head query heads on n_kv heads of keys and values, d_head values each; `stated`: the config has head_dim."""

    n_head: int
    n_kv: int
    d_head: int
    stated: bool = False

    @classmethod
    def read(cls, config: Config, n_embd: int, *, head_dim: bool = True, usual: int = 0) -> Self:
        """`head_dim`: the key that may set a size other than the width divided by the number of heads. `usual`: the
        size in a config without that key; 0: the quotient."""
        n_head = config.integer("num_attention_heads")
        n_kv = config.integer("num_key_value_heads", default=n_head)
        if not head_dim:
            config.expects("head_dim", n_embd // n_head)
        absent = usual > 0 and not any(key in config.data for key in HEAD_DIM)
        stated = head_dim and (config.get(*HEAD_DIM) is not None or absent)
        if not stated and n_embd % n_head:
            raise config.wrong("num_attention_heads", f"a divisor of the hidden size {n_embd}")
        if n_head % n_kv:
            raise config.wrong("num_key_value_heads", f"a divisor of the {n_head} attention heads")
        given = {"default": usual} if absent else {}
        d_head = config.integer(*HEAD_DIM, maximum=MAX_HEAD, **given) if stated else n_embd // n_head
        if d_head > MAX_HEAD:
            raise config.wrong(
                "num_attention_heads", f"at least {-(-n_embd // MAX_HEAD)}, for heads of up to {MAX_HEAD} values"
            )
        return cls(n_head, n_kv, d_head, stated)

    def named(self, config: Config) -> str:
        """The config key that sets the size of a head."""
        return config.named(*HEAD_DIM) if self.stated else "num_attention_heads"

    def require_even(self, config: Config) -> None:
        """CheckpointError unless the size is even, as RoPE on whole heads needs."""
        if self.d_head % 2:
            raise config.wrong(self.named(config), "heads of even size, for RoPE")

    def per_layer(self, has_attention: Sequence[bool]) -> tuple[int, ...]:
        """KV heads per layer; 0 for layers without attention."""
        return tuple(self.n_kv if is_attention else 0 for is_attention in has_attention)

    def values(self) -> dict[str, Any]:
        return {**vars(self), "n_head_kv": self.n_kv}

    def norm_rows(self, hf: str, blk: str, names: Sequence[str] = ("q_norm", "k_norm")) -> Iterator[Row]:
        """Norms on every head of queries and of keys; `names`: in the checkpoint."""
        for part, name in zip("qk", names, strict=True):
            yield row(f"{hf}{name}.weight", f"{blk}attn_{part}_norm.weight", self.d_head)

    def rows(
        self,
        hf: str,
        blk: str,
        n: int,
        turned: Transform | None = None,
        *,
        bias: bool = False,
        out: str = "o_proj",
        each: Sequence[Transform | None] = (),
        n_in: int = 0,
        biases: Sequence[Transform | None] = (),
        out_bias: bool | None = None,
    ) -> Iterator[Row]:
        """Self-attention on rows of n_in values (0: n). `turned` is applied to queries and keys, or `each` to q, k, v
        and the output; `biases` to their biases if different. `out_bias`: whether the output has a bias; None: as the
        others."""
        n_q, n_kv = self.n_head * self.d_head, self.n_kv * self.d_head
        sizes = {"q": n_q, "k": n_kv, "v": n_kv}
        parts = [(f"{part}_proj", f"attn_{part}", rows, n_in or n) for part, rows in sizes.items()]
        parts.append((out, "attn_output", n, n_q))
        each = each or (turned, turned, None, None)
        for (source, target, rows, columns), ours, of_bias in zip(parts, each, biases or each, strict=True):
            yield row(f"{hf}{source}.weight", f"{blk}{target}.weight", rows, columns, transform=ours)
            if bias if source != out or out_bias is None else out_bias:
                yield row(f"{hf}{source}.bias", f"{blk}{target}.bias", rows, transform=of_bias)


def read_layers(config: Config) -> int:
    """The number of layers, checked to be reasonable."""
    return config.integer("num_hidden_layers", maximum=MAX_LAYERS)


def read_rope(config: Config, usual: float = 10000.0) -> tuple[Config, float]:
    """The settings of RoPE and its base. transformers 5 has one object; older configs have a number, and an object that
    is null without scaling. `usual`: the default base."""
    rope = config.section("rope_parameters", "rope_scaling")
    return rope, rope.number("rope_theta", default=config.number("rope_theta", default=usual))


def read_turned(config: Config, d_head: int, default: float, named: str) -> int:
    """The number of values of a head that RoPE rotates. CheckpointError, naming the key `named`, if it is 0 or odd."""
    rope = config.section("rope_parameters", "rope_scaling")
    part = rope.number("partial_rotary_factor", default=config.number("partial_rotary_factor", default=default))
    n_rot = int(d_head * part)
    if n_rot % 2 or not 0 < n_rot <= d_head:
        raise config.wrong(named, f"a positive even number of values to turn in heads of {d_head}; it gives {n_rot}")
    return n_rot


def read_plain_rope(config: Config, usual: float = 10000.0) -> float:
    """The base of RoPE, for a family without RoPE scaling."""
    rope, theta = read_rope(config, usual)
    refuse_scaling(rope)
    return theta


def refuse_scaling(rope: Config) -> None:
    """UnsupportedError if RoPE is scaled; the key of its type has two names."""
    for key in ("rope_type", "type"):
        rope.expects(key, "default")


def read_kinds(config: Config, known: dict[str, str], *keys: str, n_layer: int = 0) -> list[str]:
    """The kind of each layer as a value of `known`, from the first present key of `keys`: a list of keys of `known`, or
    a string if they are letters. Without n_layer: any number of layers."""
    key = config.named(*keys)
    kinds = config.get(key)
    if kinds is None:
        config.string(key)  # raises the error for a missing key
    kinds = list(kinds) if isinstance(kinds, str) else kinds
    right = isinstance(kinds, list) and 0 < len(kinds) <= MAX_LAYERS and len(kinds) == (n_layer or len(kinds))
    if not right or not all(isinstance(kind, str) and kind in known for kind in kinds):
        words = " or ".join(dict.fromkeys(known.values()))
        raise config.wrong(key, f"{n_layer} times {words}" if n_layer else f"{words} for every layer")
    return [known[kind] for kind in kinds]


def swiglu(
    hf: str,
    blk: str,
    n: int,
    n_ff: int,
    suffix: str = "",
    gate: Transform | None = None,
    down: Transform | None = None,
) -> Iterator[Row]:
    """A gated feed-forward part; `suffix`: of the names in GGUF."""
    yield row(hf + "gate_proj.weight", f"{blk}ffn_gate{suffix}.weight", n_ff, n, transform=gate)
    yield row(hf + "up_proj.weight", f"{blk}ffn_up{suffix}.weight", n_ff, n)
    yield row(hf + "down_proj.weight", f"{blk}ffn_down{suffix}.weight", n, n_ff, transform=down)


def swiglu_bias(
    hf: str, blk: str, n: int, n_ff: int, gate: Transform | None = None, down: Transform | None = None
) -> Iterator[Row]:
    """The biases of a gated feed-forward part."""
    yield row(hf + "gate_proj.bias", blk + "ffn_gate.bias", n_ff, transform=gate)
    yield row(hf + "up_proj.bias", blk + "ffn_up.bias", n_ff)
    yield row(hf + "down_proj.bias", blk + "ffn_down.bias", n, transform=down)


def conv1d(hf: str, blk: str, n: int, d_conv: int, *, bias: bool) -> Iterator[Row]:
    """The convolution before a scan, over n channels. llama.cpp needs a bias: without one, zeros are written."""
    yield row(hf + "conv1d.weight", blk + "ssm_conv1d.weight", n, d_conv, source_shape=(n, 1, d_conv))
    if bias:
        yield row(hf + "conv1d.bias", blk + "ssm_conv1d.bias", n)
    else:
        yield Row(blk + "ssm_conv1d.bias", (n,), (), constant=np.zeros(n, np.float32))


def short_conv(hf: str, blk: str, n: int, taps: int, *, bias: bool) -> Iterator[Row]:
    """LFM2's gated short convolution over n channels; `bias`: of it and of its projections."""
    yield row(hf + "in_proj.weight", blk + "in_proj.weight", 3 * n, n)
    yield row(hf + "conv.weight", blk + "conv.weight", n, taps, source_shape=(n, 1, taps))
    yield row(hf + "out_proj.weight", blk + "out_proj.weight", n, n)
    for part, n_out in (("in_proj", 3 * n), ("conv", n), ("out_proj", n)) if bias else ():
        yield row(f"{hf}{part}.bias", f"{blk}{part}.bias", n_out)


def stacked_experts(
    hf: str, blk: str, n_expert: int, n: int, n_ff: int, names: Sequence[tuple[str, str]]
) -> Iterator[Row]:
    """Experts `hf`E.NAME.weight, stacked. `names`: pairs of down, gate or up, and the name in the checkpoint."""
    for part, name in names:
        shape = (n, n_ff) if part == "down" else (n_ff, n)
        sources = [f"{hf}{e}.{name}.weight" for e in range(n_expert)]
        yield experts(sources, f"{blk}ffn_{part}_exps.weight", *shape, group=hf)


NUMBERED = (("gate", "w1"), ("down", "w2"), ("up", "w3"))
PROJECTIONS = (("down", "down_proj"), ("gate", "gate_proj"), ("up", "up_proj"))


def routed_experts(
    hf: str,
    blk: str,
    n_expert: int,
    n: int,
    n_ff: int,
    n_shared: int,
    bias: str,
    names: Sequence[tuple[str, str]] = PROJECTIONS,
) -> Iterator[Row]:
    """DeepSeek's experts: a router, the bias of its choice (name after `hf`; empty: none), the experts, and n_shared
    experts for every token, stored as one of their total width."""
    yield row(hf + "gate.weight", blk + "ffn_gate_inp.weight", n_expert, n)
    if bias:
        yield row(hf + bias, blk + "exp_probs_b.bias", n_expert)
    yield from stacked_experts(hf + "experts.", blk, n_expert, n, n_ff, names)
    if n_shared:
        yield from swiglu(hf + "shared_experts.", blk, n, n_shared * n_ff, "_shexp")


def no_ssm_biases(*biased: bool) -> Iterator[str]:
    """The note on Mamba layers whose projections have biases."""
    if any(biased):
        yield "llama.cpp cannot load this file: the projections of its Mamba layers have no biases"


def twice_as_wide(d_inner: int, n_embd: int) -> Iterator[str]:
    """The note on Mamba layers that llama.cpp refuses in the architectures mamba, jamba and granitehybrid."""
    if d_inner != 2 * n_embd:
        yield "llama.cpp cannot load this file: its Mamba layers are twice as wide as the model, here they are not"


def attention_bias_notes(biased: bool) -> Iterator[str]:
    """The note on architectures for which llama.cpp supports biases of queries, keys and values only."""
    if biased:
        yield "llama.cpp cannot load this file: there what attention returns has no bias in this architecture"
