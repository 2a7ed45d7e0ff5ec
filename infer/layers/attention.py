"""Self-attention with grouped queries (arXiv:2305.13245), with or without rotary positions (arXiv:2104.09864)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hybrid.quant.ggml.errors import FormatError

from ..kernels.attention.attention import (
    attention_kernel,
    attention_merge,
    attention_scratch_bytes,
    chunk_record_bytes,
    chunk_records,
)
from ..kernels.attention.attention_codes import has_integer_form
from ..kernels.attention.kv import CACHE_TYPES, F32_KV, PAGE, CacheTypes, pages_of
from ..kernels.attention.kv_store import kv_store_kernel, store_scratch_bytes
from ..kernels.attention.rope import NEOX, NORM, rope, rope_rows, rope_turns
from ..kernels.attention.rope_axes import pick_turns
from ..kernels.rows import elementwise
from ..kernels.rows.clamp import clamp
from ..kernels.rows.heads import gate_heads
from ..kernels.rows.softplus_gates import softplus_gates
from ..loading.weights import Weights
from ..memory import AttentionSpec, HybridMemory, Rotation
from ..memory.mapped import mapped_zeros
from ..program.builder import Batch, Builder, PictureBatch, Ref, Rows
from ..program.record import OpFields
from .base import Gate, LayerAdapter, add_bias, optional_bias
from .head_norm import HeadNorm
from .query_scale import QueryScale

ROWS_AT_ONCE = 512  # positions whose cos and sin are computed together
MOST_TURNED = 1 << 16  # most values of a head: arrays of n_rot are made before shapes are checked


@dataclass(eq=False)
class Rope:
    """Rotary embedding of the first n_rot values of every head; the table is made once per model and shared.

    factors    [n_rot / 2]: divisors of the frequencies
    magnitude  factor of cos and sin
    axes       i64 [n_rot / 2]: axis of each pair where a picture's tokens have positions on three (rope_axes.py)
    """

    n_rot: int
    freq_base: float
    style: int = NORM
    freq_scale: float = 1.0
    factors: np.ndarray | None = None
    magnitude: float = 1.0
    axes: npt.NDArray[np.int64] | None = None

    def table(self, w: Weights, n_ctx: int, first: int = 0) -> int:
        """Address of cos and sin for n_ctx positions from `first` on; layers with equal rotations share one table.

        Rows are computed when texts reach them (`Weights.reach`).
        """
        turns = self._turns
        key = ("rope", n_ctx, first, turns.tobytes(), self.magnitude)
        if key not in w.shared:
            table = RopeTable(n_ctx, turns, self.magnitude, first)
            w.reaches(table.fill)
            w.shared[key] = table.address
        return w.shared[key]

    @property
    def _turns(self) -> npt.NDArray[np.float64]:
        """Radians per position of each pair. Raises FormatError if n_rot is absurd, before arrays of that size are
        made."""
        if self.n_rot > MOST_TURNED:
            raise FormatError(
                f"the metadata of the model say that RoPE rotates {self.n_rot} values of every head, expected at most "
                f"{MOST_TURNED}. Convert the model again."
            )
        return rope_turns(self.n_rot, self.freq_base, self.freq_scale, self.factors)

    @property
    def rotation(self) -> Rotation:
        """The rotation by which the memory moves keys to other positions."""
        return Rotation(self._turns, self.style == NEOX)


class RopeTable:
    """f32 [n_ctx, n_rot / 2, 2] as in `rope_table`, from position `start` on, computed when positions are reached.

    A whole table of a million positions would take seconds, and as much memory as the weights of a small model.
    """

    def __init__(self, n_ctx: int, turns: npt.NDArray[np.float64], magnitude: float, start: int = 0) -> None:
        self.turns, self.magnitude, self.start = turns, magnitude, start
        self.rows = mapped_zeros((n_ctx, len(turns), 2), np.float32)
        self.n_filled = 0

    @property
    def address(self) -> int:
        return int(self.rows.ctypes.data)

    def fill(self, n: int) -> None:
        """Compute the first n rows, or some more."""
        n = min(-(-n // ROWS_AT_ONCE) * ROWS_AT_ONCE, len(self.rows))
        for first in range(self.n_filled, n, ROWS_AT_ONCE):
            end = min(first + ROWS_AT_ONCE, n)
            self.rows[first:end] = rope_rows(self.start + first, self.start + end, self.turns, self.magnitude)
            self.n_filled = end


@dataclass(frozen=True)
class Pages:
    """Addresses of a layer's keys, values (0: parts of the keys) and page table: kernels/attention/kv.py."""

    k: int | Ref
    v: int | Ref
    table: int
    table_stride: int
    kind: CacheTypes


@dataclass(frozen=True)
class Leaning:
    """The bias by distance of a batch, see kernels/attention/distance_bias.py. sinks: of each token's heads, in rows
    with the stride of `states`; 0: none."""

    states: Rows
    profiles: int
    sinks: int | Ref = 0


@dataclass
class Attention:
    """n_head query heads over n_kv key and value heads of d_head each.

    scale     of the scores; 0: 1 / sqrt(d_head)
    window    a token attends to the last `window` tokens, itself included; 0: to all
    aligned   windows begin at multiples of their size (chunked attention): token p attends from p // window * window on
    soft_cap  scores become soft_cap * tanh(score / soft_cap); 0: unchanged
    norm      of queries and keys, or None
    fused     queries, keys and values are one matrix, attn_qkv
    clip      queries and keys, after that norm, and values are limited to -clip .. clip; 0: unlimited
    gate      VALUES: attn_q has the gates of a head after its query; HEADS, APART: attn_gate makes them; None: no gates
    softplus  the softplus of gates of HEADS or APART multiplies, not their sigmoid
    n_in      values of an input row; 0: n_embd, the width of the output
    d_value   width of a head's values, at most d_head; 0: d_head
    block     the layer whose weights it uses; -1: its own
    rank      of this layer's own low-rank additions to shared projections of queries, keys and values; 0: no additions
    query_scale  factors of queries by position, after RoPE, or None
    sinks     each head has a further logit in the softmax, attn_sinks, which takes weight and has no value
    latent    the values are the last d_value values of each key, and are not stored separately
    together  the tokens of a picture also see those after them; otherwise attention is causal everywhere
    prefix    positions before every text that all tokens see, whatever the window: see `AttentionSpec`
    bare      what the heads return is the result: there is no output projection
    """

    layer: int
    n_embd: int
    n_head: int
    n_kv: int
    d_head: int
    rope: Rope | None = None
    scale: float = 0.0
    window: int = 0
    soft_cap: float = 0.0
    norm: HeadNorm | None = None
    clip: float = 0.0
    gate: Gate | None = None
    fused: bool = False
    n_in: int = 0
    d_value: int = 0
    block: int = -1
    rank: int = 0
    query_scale: QueryScale | None = None
    sinks: bool = False
    latent: bool = False
    aligned: bool = False
    together: bool = False
    softplus: bool = False
    prefix: int = 0
    bare: bool = False

    def __post_init__(self) -> None:
        self.n_in = self.n_in or self.n_embd
        self.d_value = self.d_value or self.d_head
        self.scale = self.scale or 1 / math.sqrt(self.d_head)
        self.sink = 0  # address of attn_sinks
        self.key_scale: np.ndarray | None = None

    def load(self, w: Weights) -> None:
        self._check(w)
        self._weights = w
        w.is_together |= self.together
        w.has_axes |= self.rope is not None and self.rope.axes is not None
        self._load_projections(w)
        if self.norm:
            self._load_norm(w, self.norm)
        if self.sinks:
            self.sink = w.vector(f"{self._prefix}sinks.weight", self.n_head)

    @property
    def _prefix(self) -> str:
        """Prefix of the names of its tensors."""
        return f"blk.{self.block if self.block >= 0 else self.layer}.attn_"

    def _check(self, w: Weights) -> None:
        if not self.n_kv or self.n_head % self.n_kv:
            raise w.wrong("attention.head_count_kv", self.n_kv, f"a divisor of the {self.n_head} query heads")
        if self.rope and (self.rope.n_rot % 2 or self.rope.n_rot > self.d_head):
            raise w.wrong(
                "rope.dimension_count", self.rope.n_rot, f"an even number of the {self.d_head} values of a head"
            )

    def _load_projections(self, w: Weights) -> None:
        p, sizes = self._prefix, self.projections()
        self.sizes = {"qkv": sum(sizes.values())} if self.fused else sizes
        self.w_in = {part: w.matrix(f"{p}{part}.weight", n, self.n_in) for part, n in self.sizes.items()}
        if self.gate in (Gate.HEADS, Gate.APART):
            n_gate = self.n_head if self.gate is Gate.HEADS else self.returned()
            self.w_gate = w.matrix(p + "gate.weight", n_gate, self.n_in)
        biased = dict(self.sizes)
        if not self.bare:
            self.w_out = w.matrix(p + "output.weight", self.n_embd, self.returned())
            biased["output"] = self.n_embd
        self.bias = {part: optional_bias(w, f"{p}{part}.weight", n) for part, n in biased.items()}
        own = f"blk.{self.layer}.attn_"
        self.adapters = {k: LayerAdapter(own + k, n, self.n_in, self.rank) for k, n in self.sizes.items() if self.rank}
        for adapter in self.adapters.values():
            adapter.load(w)

    def _load_norm(self, w: Weights, norm: HeadNorm) -> None:
        names = {part: f"{self._prefix}{part}_norm.weight" for part in "qk"}
        heads = {"q": self.n_head, "k": self.n_kv}
        made = self.projections()
        self.norm_weights = {
            part: norm.load(w, names[part], n, self.d_head) for part, n in heads.items() if part in made
        }
        self.key_scale = norm.key_scale(w, names["k"], self.d_head)

    def projections(self) -> dict[str, int]:
        """The rows of each projection of the input."""
        n_q, n_k, n_v = self.n_head * self.d_head, self.n_kv * self.d_head, self.n_kv * self.d_value
        return {"q": (2 if self.gate is Gate.VALUES else 1) * n_q, "k": n_k, "v": n_v}

    def returned(self) -> int:
        """Values per token that the heads return."""
        return self.n_head * self.d_value

    def memory(self) -> tuple[AttentionSpec, ...]:
        return (self._spec,)

    @property
    def _spec(self) -> AttentionSpec:
        rotation = self.rope.rotation if self.rope else None
        if rotation and self.key_scale is not None:
            rotation = replace(rotation, scale=self.key_scale)
        sizes = (self.layer, self.n_kv, self.d_head, rotation, self.window, self.d_value, self.latent, self.aligned)
        return AttentionSpec(*sizes, self.prefix)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        q, k, v = self._project(b, x, memory)
        gate = None
        if self.gate is Gate.VALUES:
            q, gate = self._part(b, q, 0), self._part(b, q, 1)
        self._norm_and_turn(b, q, k, v, memory)
        self.store(b, k, v, memory)
        out = self.attend(b, q, memory)
        self._apply_gate(b, out, x, gate)
        return self._projected(b, out)

    def _projected(self, b: Builder, out: Rows) -> Rows:
        """The layer's result, from the heads' results."""
        return out if self.bare else add_bias(b, b.matmul(out, self.w_out, "attn_out"), self.bias["output"])

    def _norm_and_turn(self, b: Builder, q: Rows, k: Rows, v: Rows, memory: HybridMemory) -> None:
        """Norm, clip and rotate the projected rows, in place."""
        after_rope = self.norm is not None and self.norm.after_rope
        if not after_rope:
            self._normalize(b, q, k)
        for rows in (q, k, v) if self.clip else ():
            b.op(clamp, name="attn_clip", count=b.batch.n_tok, x=rows, n=rows.n, limit=float(self.clip))
        if self.rope:
            self.turn(b, q, self.n_head, self.rope, memory)
            self.turn(b, k, self.n_kv, self.rope, memory)
        if after_rope:
            self._normalize(b, q, k)
        if self.query_scale:
            self.query_scale.apply(b, q, self._weights, memory.n_ctx)

    def _normalize(self, b: Builder, q: Rows, k: Rows) -> None:
        if self.norm:
            self.norm.apply(b, q, self.n_head, self.norm_weights["q"])
            self.norm.apply(b, k, self.n_kv, self.norm_weights["k"])

    def _apply_gate(self, b: Builder, out: Rows, x: Rows, gate: Rows | None) -> None:
        """Multiply the heads' results by gates, in place. gate: gates from attn_q, if any; x: the layer's input."""
        if self.gate in (Gate.HEADS, Gate.APART):
            gate = b.matmul(x, self.w_gate, "attn_gate")
        if self.softplus:
            sizes: OpFields = {"n_head": self.n_head, "n": self.d_value, "each": int(self.gate is Gate.APART)}
            b.op(softplus_gates, count=b.batch.n_tok, x=out, gate=gate, **sizes)
        elif self.gate is Gate.HEADS:
            b.op(gate_heads, count=b.batch.n_tok, x=out, gate=gate, n_head=self.n_head, n=self.d_value)
        elif gate:
            b.op(elementwise.gate_rows, count=b.batch.n_tok, x=out, gate=gate, n=out.n)

    def turn(self, b: Builder, rows: Rows, heads: int, rotary: Rope, memory: HybridMemory) -> None:
        """Apply RoPE, in place."""
        address = rotary.table(self._weights, memory.n_ctx, memory.first_position)
        table: int | Ref = address
        pos, pictures = b.batch.rope_pos, b.batch.pictures
        if rotary.axes is not None and pictures is not None:
            table, pos = self._turns_of(b, rotary, pictures, address), pictures.index
        b.op(
            rope, ctl=b.batch.ctl, pos=pos, x=rows, n_head=heads, d_head=rows.n // heads, n_rot=rotary.n_rot,
            table=table, style=rotary.style,
        )  # fmt: skip

    def _turns_of(self, b: Builder, rotary: Rope, pictures: PictureBatch, table: int) -> Ref:
        """cos and sin of every token of a batch with pictures, made once for all layers with this table."""
        assert rotary.axes is not None
        name, half = f"turns {table}", rotary.n_rot // 2
        if name not in b.common:
            turns = b.common[name] = Rows(b.buffer(b.capacity * half * 8), 2 * half, 8 * half)
            shared, key = self._weights.shared, ("axes", rotary.axes.tobytes())
            axes = shared[key] = shared.get(key) or self._weights.keep(rotary.axes)
            b.op(
                pick_turns, count=b.batch.n_tok, positions=pictures.positions, stride=pictures.stride, axes=axes,
                table=table, out=turns.ref, half=half,
            )  # fmt: skip
        return b.common[name].ref

    def _project(self, b: Builder, x: Rows, memory: HybridMemory) -> tuple[Rows, Rows, Rows]:
        rows = [
            add_bias(b, b.matmul(self.input_of(part, x), w, f"attn_{part}"), self.bias[part])
            for part, w in self.w_in.items()
        ]
        for adapter, product in zip(self.adapters.values(), rows, strict=False):
            adapter.add(b, x, product)
        if not self.fused:
            return rows[0], rows[1], rows[2]
        n_q, n_k, n_v = self.n_head * self.d_head, self.n_kv * self.d_head, self.n_kv * self.d_value
        return rows[0].columns(0, n_q), rows[0].columns(n_q, n_k), rows[0].columns(n_q + n_k, n_v)

    def input_of(self, part: str, x: Rows) -> Rows:
        """The rows that the projection `part` reads; x: of queries."""
        return x

    def _part(self, b: Builder, both: Rows, i: int) -> Rows:
        """The queries (0) or the gates (1) of rows that alternate them head by head."""
        part, source = b.rows(self.n_head * self.d_head), both.columns(i * self.d_head, self.d_head)
        b.op(
            elementwise.take_parts,
            count=b.batch.n_tok,
            x=source,
            out=part,
            n_group=self.n_head,
            n=self.d_head,
            stride=8 * self.d_head,
        )
        return part

    def store(self, b: Builder, k: Rows, v: Rows, memory: HybridMemory) -> None:
        """Write the batch's keys (after RoPE) and values to the memory."""
        batch, at = b.batch, self.pages(memory)
        per_thread = b.need_scratch(store_scratch_bytes(self.d_head))
        k_block, v_block = self._spec.blocks(at.kind)
        kernel = kv_store_kernel(at.kind.keys, at.kind.values)
        b.op(
            kernel, name="kv_store", ctl=batch.ctl, pos=batch.pos, slot=batch.slot, k=k, v=v, keys=at.k,
            values=at.v, table=at.table, table_stride=at.table_stride, n_kv=self.n_kv, d_head=self.d_head,
            d_value=self.d_value, k_block=k_block, v_block=v_block, scratch=Ref(b.scratch), scratch_bytes=per_thread,
        )  # fmt: skip

    def pages(self, memory: HybridMemory) -> "Pages":
        """Addresses of the keys and values of this layer."""
        attention = memory.attention
        keys, table = attention.k[self.layer], attention.table
        values = 0 if self.latent else attention.v[self.layer].ctypes.data
        return Pages(keys.ctypes.data, values, table.ctypes.data, table.strides[0], attention.kind)

    def work(self, kind: CacheTypes, segments: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Bytes of keys and values, each read once, and operations for segments (tokens before, tokens in it)."""
        positions = n_scores = 0
        for past, n in segments:
            if self.aligned:
                seen = [p % self.window + 1 for p in range(past, past + n)]
                positions += past % self.window + n
            else:
                seen = [min(p, self.window or p) for p in range(past + 1, past + n + 1)]
                positions += min(past + n, (self.window or past + n) + n - 1)
            positions += self.prefix
            n_scores += sum(seen) + n * self.prefix
        row = self._spec.bytes_per_token(kind)
        return positions * row, 2 * n_scores * self.n_head * (self.d_head + self.d_value)

    def limits(self, batch: Batch) -> int:
        """Address of the last position that each token sees."""
        return batch.last if self.together else batch.pos

    def leaning(self) -> "Leaning | None":
        """The bias by distance of the batch that is built, if there is one."""
        return None

    def attend(self, b: Builder, q: Rows, memory: HybridMemory) -> Rows:
        """Outputs of the heads for queries after RoPE."""
        batch, at = b.batch, self.pages(memory)
        out = b.rows(self.n_head * self.d_value)
        per_thread = b.need_scratch(attention_scratch_bytes(self.d_head))
        size, prefix = chunk_record_bytes(self.d_value), len(memory.attention.prefix)
        window = 0 if self.prefix and not prefix else self.window  # while the prefix is computed it sees all of itself

        def records(n_ctx: int) -> int:
            return chunk_records(b.capacity, self.n_head, self.n_kv, n_ctx, b.n_threads, window, prefix)

        n_records = records(memory.n_ctx)
        shared = b.buffer_for(memory.n_ctx, lambda n_ctx: records(n_ctx) * size)
        both: OpFields = {
            "ctl": batch.ctl, "pos": self.limits(batch), "out": out, "n_head": self.n_head,
            "n_kv": self.n_kv, "d_value": self.d_value, "scratch": Ref(b.scratch), "scratch_bytes": per_thread,
            "window": -window if self.aligned else window, "records": Ref(shared), "n_records": n_records,
            "sinks": self.sink, "prefix": prefix,
        }  # fmt: skip
        k_block, v_block = self._spec.blocks(at.kind)
        both["v_block"] = v_block
        if self.together and self.window:
            both["own"] = batch.pos
        leaning = self.leaning()
        if leaning:
            both |= {"states": leaning.states, "sinks": leaning.sinks}
        types = (at.kind.keys, at.kind.values)
        integer = not (b.products.exact or self.latent) and has_integer_form(*types, self.d_head)
        kernel = attention_kernel(
            *types, latent=self.latent, integer=integer, leaning=leaning is not None, prefixed=prefix > 0
        )
        b.op(
            kernel, name="attention", work=lambda segments: self.work(at.kind, segments), **both,
            slot=batch.slot, q=q, keys=at.k, values=at.v, table=at.table, table_stride=at.table_stride,
            d_head=self.d_head, scale=float(self.scale),
            cap=float(self.soft_cap), k_block=k_block, profiles=leaning.profiles if leaning else 0,
        )  # fmt: skip
        if n_records:
            b.op(attention_merge, **both)
        return out


@dataclass
class EncoderAttention(Attention):
    """Attention among all tokens of a text; the batch (`last`) says up to which position each token attends.

    With a window, a token attends to window - 1 tokens on each side, and the batch (`near`) has the last of them.

    Keys and values are intermediate results in the program's arena: nothing is kept for a later run, and the next layer
    reuses the memory. n_text: most texts per run.
    """

    n_text: int = 1
    together: bool = True

    def memory(self) -> tuple[AttentionSpec, ...]:
        return ()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        size = PAGE * self.n_kv * F32_KV.row_bytes(self.d_head)
        # the last page of every text may be almost empty
        n_pages = pages_of(b.capacity) + min(self.n_text, b.capacity)
        k, v = (Ref(b.buffer(n_pages * size)) for _ in range(2))
        table = memory.attention.table
        self._pages = Pages(k, v, table.ctypes.data, table.strides[0], CACHE_TYPES["f32"])
        return super().build(b, x, memory)

    def limits(self, batch: Batch) -> int:
        return batch.near if self.window else batch.last

    def pages(self, memory: HybridMemory) -> Pages:
        return self._pages
