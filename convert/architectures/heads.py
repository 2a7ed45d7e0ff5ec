"""Heads that guess tokens ahead (multi-token prediction, "nextn" in GGUF): blocks of their own after the layers.

From the model's state of token t and the embedding of token t + 1 a head computes a state of its own, from which token
t + 2 is guessed: arXiv:2404.19737, as in DeepSeek-V3 (arXiv:2412.19437, 2.2). In GGUF its block is numbered after the
layers, `block_count` includes it, and `nextn_predict_layers` is the number of blocks at the end that are heads.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..transforms import Transform
from .family import Row, Shapes, row

MOST_HEADS = 64
NOT_IN_LLAMA_CPP = (
    "llama.cpp cannot load this file: in this architecture it knows no heads that guess tokens ahead. It can load one "
    "without"
)


@dataclass(frozen=True)
class Head:
    """Names of a head's tensors besides its block; empty: it uses the model's own.

    join             makes one vector of the two: [n_embd, 2 n_embd]
    join_state       its half for the state, if `join` is only the half for the embedding
    token, state     norms of the embedding and of the state
    norm             the last norm, which is `norm_target` in GGUF
    embedding, output  matrices [n_vocab, n_embd]
    """

    join: str
    token: str
    state: str
    norm: str = ""
    embedding: str = ""
    output: str = ""
    norm_target: str = "nextn.shared_head_norm.weight"
    join_state: str = ""

    def rows(
        self, blk: str, n_embd: int, n_vocab: int, transform: Transform | None = None, n_state: int = 0
    ) -> Iterator[Row]:
        """`transform`: of the norms; n_state: size of the state's norm, 0: n_embd."""
        target, shape = blk + "nextn.eh_proj.weight", (n_embd, 2 * n_embd)
        if self.join_state:
            yield Row(target, shape, (self.join, self.join_state), source_shape=(n_embd, n_embd), beside=True)
        else:
            yield row(self.join, target, *shape)
        if self.embedding:
            yield row(self.embedding, blk + "nextn.embed_tokens.weight", n_vocab, n_embd)
        yield row(self.token, blk + "nextn.enorm.weight", n_embd, transform=transform)
        yield row(self.state, blk + "nextn.hnorm.weight", n_state or n_embd, transform=transform)
        if self.output:
            yield row(self.output, blk + "nextn.shared_head_head.weight", n_vocab, n_embd)
        if self.norm:
            yield row(self.norm, blk + self.norm_target, n_embd, transform=transform)


def numbered_heads(
    shapes: Shapes, n_layer: int, norm: str = "shared_head.norm.weight", norm_target: str = Head.norm_target
) -> tuple[Head, ...]:
    """The heads that a checkpoint has, whatever its config says, if they are numbered after the layers as in
    DeepSeek-V3. norm: name of the last norm in a block. Any tensor that only heads have tells of one."""
    heads = []
    for i in range(MOST_HEADS):
        p = f"model.layers.{n_layer + i}."
        join, token, state = (f"{p}{name}.weight" for name in ("eh_proj", "enorm", "hnorm"))
        own = {
            "norm": p + norm,
            "embedding": p + "embed_tokens.weight",
            "output": p + "shared_head.head.weight",
        }
        if not shapes.keys() & {join, token, state, *own.values()}:
            break
        there = {part: name for part, name in own.items() if name in shapes}
        heads.append(Head(join, token, state, **there, norm_target=norm_target))
    return tuple(heads)
