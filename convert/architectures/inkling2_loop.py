"""Inkling 2 with loops: a token passes the layers in the middle several times. Of Thinking Machines.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.families.inkling2_loop import Inkling2LoopHparams

from ..checkpoint import Config
from .family import Row, TensorBlock, row
from .inkling2 import Inkling2

_QUERIES = "model.message_input.query"
# messages in our names and in transformers'
_MESSAGES = {"q": "q", "k": "k", "v": "v", "ffn": "mlp"}
_GATES = {"down": "down_proj", "forget": "forget_gate_proj", "gain": "message_gate_proj"}
# of published checkpoints: gates of messages, and queries [layer, 2] of the messages with these numbers
_CONTROLLER = re.compile(r"\.controllers\.(attn|k|v|mlp)\.(down|forget|gain)_weight$")
_TWO_QUERIES = {"model.middle_cycle_cross_pass_queries": (0, 3), "model.middle_cycle_cross_pass_kv_queries": (1, 2)}


@dataclass(frozen=True)
class Inkling2Loop(Inkling2):
    """One model. `n_layer` counts layers once; the file has a block for every pass through a layer."""

    arch = "inkling2_loop"
    architectures: ClassVar[tuple[str, ...]] = ("Inkling2LoopForCausalLM",)
    hparams = Inkling2LoopHparams
    order: ClassVar[str] = f"{Inkling2.order} first end n_pass"
    usual: ClassVar[Mapping[str, Any]] = {
        **Inkling2.usual, "full": (24, 8, 128), "sliding": (24, 8, 128), "period": 8192, "n_expert": 128,
    }  # fmt: skip
    usual_ff = 1152
    conditional: ClassVar[Mapping[str, str]] = {
        **Inkling2.conditional,
        **dict.fromkeys(
            ("loop_layer_index_start", "loop_layer_index_end", "loop_num_passes", "loop_gate_rank"),
            "where loop_config does not say it",
        ),
        "loop_gate_rank": "where loop_num_passes is not 1",
    }

    first: int
    end: int
    n_pass: int
    rank: int

    @classmethod
    def read_more(cls, config: Config, n_layer: int, n_block: int) -> dict[str, Any]:
        loop = config.section("loop_config")

        def integer(ours: str, theirs: str, default: int) -> int:
            return loop.integer(theirs) if theirs in loop else config.integer(ours, default=default)

        first = integer("loop_layer_index_start", "core_start", 6)
        end = integer("loop_layer_index_end", "core_end", 18)
        if first % n_block or end % n_block or not first < end <= n_layer:
            raise config.wrong(
                "loop_layer_index_end",
                f"a multiple of {n_block} layers after loop_layer_index_start = {first}, another multiple",
            )
        n_pass = integer("loop_num_passes", "num_passes", 3)
        return {"first": first, "end": end, "n_pass": n_pass, "rank": integer("loop_gate_rank", "gate_rank", 64)}

    @property
    def blocks_in_file(self) -> int:
        return self.n_layer + (self.n_pass - 1) * (self.end - self.first)

    def block_number(self, i: int) -> int:
        return i if i < self.end else i + self.blocks_in_file - self.n_layer

    def values(self) -> dict[str, Any]:
        layers = [*range(self.end), *[*range(self.first, self.end)] * (self.n_pass - 1), *range(self.end, self.n_layer)]
        heads = [self.heads(i) for i in layers]
        each = {"n_head": [one.n_head for one in heads], "n_head_kv": [one.n_kv for one in heads]}
        return super().values() | each | {"local": [self.local[i] for i in layers]}

    def canonical(self, name: str) -> str:
        if found := _CONTROLLER.search(name):
            part = found[1].replace("attn", "q")
            return f"{name[: found.start()]}.{part}_message_gate.{_GATES[found[2]]}.weight"
        return super().canonical(name)

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """Also the queries of messages, four for each layer."""
        n = self.n_embd
        if name == _QUERIES and shape == (self.end - self.first, 4, n):
            for i in range(4 * shape[0]):
                yield TensorBlock(f"{name}.{i}", (i // 4, i % 4, 0), (n,))
        elif name in _TWO_QUERIES and shape == (2 * (self.end - self.first), n):
            for i in range(shape[0]):
                yield TensorBlock(f"{_QUERIES}.{4 * (i // 2) + _TWO_QUERIES[name][i % 2]}", (i, 0), (n,))
        else:
            yield from super().parts(name, shape)

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        n, rank = self.n_embd, self.rank
        sizes = {"down": (rank, 2 * n), "forget": (n, rank), "gain": (n, rank)}
        for i in range(self.first, self.end if self.n_pass > 1 else self.first):
            for number, (part, name) in enumerate(_MESSAGES.items()):
                target = f"blk.{i}.msg_{part}_"
                yield self.query(f"{_QUERIES}.{4 * (i - self.first) + number}", target + "score")
                for gate, source in _GATES.items():
                    hf = f"model.layers.{i}.{name}_message_gate.{source}.weight"
                    yield row(hf, f"{target}{gate}.weight", *sizes[gate])
