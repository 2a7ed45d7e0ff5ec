"""Latent attention, shared by several families (DeepSeek-V2, arXiv:2405.04434): sizes, keys, parts of matrices."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from ..checkpoint import Config
from ..transforms import transposed
from .family import Keyed, Row, TensorBlock, row

LATENT = "q_rank? rank n_rot .attention.key_length d_key d_value"  # words of Family.order
LATENT_EPS = 1e-6  # of the norms of latent vectors in transformers, whatever the config says for the others


NormRows = Callable[[str, str, int], Iterator[Row]]


def plain_norm(hf: str, target: str, n: int) -> Iterator[Row]:
    """The weight of a norm of n values; names without `.weight`."""
    yield row(hf + ".weight", target + ".weight", n)


def latent_eps(eps: float) -> float | None:
    """The epsilon of the norms of latent vectors; None if it equals `eps`."""
    return LATENT_EPS if eps != LATENT_EPS else None


def require_equal_heads(config: Config, n_head: int) -> None:
    """CheckpointError unless there are as many KV heads as query heads: all are made of one latent vector."""
    if config.integer("num_key_value_heads", default=n_head) != n_head:
        raise config.wrong("num_key_value_heads", f"{n_head}, as many as heads of queries")


@dataclass(frozen=True)
class Latent(Keyed):
    """Sizes of latent attention: of the latent vectors of keys and of queries (0: none), and of the parts of a head."""

    rank: int
    q_rank: int
    d_nope: int
    d_rope: int
    d_value: int

    @classmethod
    def read(cls, config: Config) -> Self:
        return cls(
            rank=config.integer("kv_lora_rank"),
            q_rank=config.integer("q_lora_rank", default=0, minimum=0) if config.get("q_lora_rank") is not None else 0,
            d_nope=config.integer("qk_nope_head_dim"),
            d_rope=config.integer("qk_rope_head_dim", minimum=0),
            d_value=config.integer("v_head_dim"),
        )

    @property
    def d_key(self) -> int:
        return self.d_nope + self.d_rope

    def values(self) -> dict[str, Any]:
        width = self.rank + self.d_rope
        sizes = {"q_rank": self.q_rank, "rank": self.rank, "n_rot": self.d_rope, "attention.key_length": width}
        return sizes | {"d_key": self.d_key, "d_value": self.d_value, "attention.value_length": self.rank}

    def parts(self, name: str, n_head: int) -> Iterator[TensorBlock]:
        """kv_b_proj contains rows of keys, then of values, head by head."""
        step = self.d_nope + self.d_value
        for h in range(n_head):
            yield TensorBlock(f"{name}.{2 * h}", (h * step, 0), (self.d_nope, self.rank))
            yield TensorBlock(f"{name}.{2 * h + 1}", (h * step + self.d_nope, 0), (self.d_value, self.rank))

    def rows(
        self, hf: str, blk: str, n: int, n_head: int, out: str, *, whole: bool = False, norm: NormRows = plain_norm
    ) -> Iterator[Row]:
        """The tensors of one layer, whose input has n values. whole: kv_b_proj is one tensor. norm: of the norms."""
        if self.q_rank:
            yield row(hf + "q_a_proj.weight", blk + "attn_q_a.weight", self.q_rank, n)
            yield from norm(hf + "q_a_layernorm", blk + "attn_q_a_norm", self.q_rank)
            yield row(hf + "q_b_proj.weight", blk + "attn_q_b.weight", n_head * self.d_key, self.q_rank)
        else:
            yield row(hf + "q_proj.weight", blk + "attn_q.weight", n_head * self.d_key, n)
        yield row(hf + "kv_a_proj_with_mqa.weight", blk + "attn_kv_a_mqa.weight", self.rank + self.d_rope, n)
        yield from norm(hf + "kv_a_layernorm", blk + "attn_kv_a_norm", self.rank)
        both = hf + "kv_b_proj.weight"
        if whole:
            yield row(both, blk + "attn_kv_b.weight", n_head * (self.d_nope + self.d_value), self.rank)
        else:
            yield from self._up_rows(both, blk, n_head)
        yield row(hf + out, blk + "attn_output.weight", n, n_head * self.d_value)

    def _up_rows(self, both: str, blk: str, n_head: int) -> Iterator[Row]:
        """The matrices that make keys and values of latent vectors; of `both`, in `parts`."""
        d_nope, rank = self.d_nope, self.rank
        yield Row(
            blk + "attn_k_b.weight",
            (n_head, rank, d_nope),
            tuple(f"{both}.{2 * h}" for h in range(n_head)),
            transposed(d_nope, rank),
            source_shape=(d_nope, rank),
        )
        yield Row(
            blk + "attn_v_b.weight",
            (n_head, self.d_value, rank),
            tuple(f"{both}.{2 * h + 1}" for h in range(n_head)),
            source_shape=(self.d_value, rank),
        )
