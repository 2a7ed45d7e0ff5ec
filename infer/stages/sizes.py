"""Memory that a stage needs: its tensors, and its part of keys, values and states."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..engine.network import Network
from ..kernels.attention.kv import CacheTypes
from ..memory.needs import SequenceNeeds, Specs


@dataclass(frozen=True)
class Texts:
    """The room for texts: n_seq sequences of n_ctx tokens, and `spare` bytes for checkpoints of earlier texts."""

    kind: CacheTypes
    n_seq: int
    n_ctx: int
    spare: int = 0


class StageSizes:
    """Sizes of stages of a network, in bytes. Without `texts`, only weights count."""

    def __init__(self, network: Network, texts: Texts | None = None) -> None:
        self.network, self.texts = network, texts
        self._known: dict[range, int] = {}
        tensors = network.weights.gguf.tensors
        self._bytes = {name: tensor.nbytes for name, tensor in tensors.items()}
        first = {"token_embd.weight", "position_embd.weight"}
        beside = network.tensors_beside & set(self._bytes)
        self._front, self._behind = beside & first, beside - first
        if "output.weight" not in tensors:
            self._behind = self._behind | {"token_embd.weight"}

    def of(self, blocks: range) -> int:
        """Bytes of the stage with these blocks."""
        if blocks not in self._known:
            self._known[blocks] = self._weights(blocks) + self._kept(blocks)
        return self._known[blocks]

    def all(self, stages: Sequence[range]) -> list[int]:
        """Bytes of each stage."""
        return [self.of(blocks) for blocks in stages]

    def _weights(self, blocks: range) -> int:
        names = set().union(*(self.network.tensors[i] for i in blocks)) & set(self._bytes)
        names |= self._front if blocks.start == 0 else set()
        names |= self._behind if blocks.stop == self.network.blocks.stop else set()
        return sum(self._bytes[name] for name in names)

    def _kept(self, blocks: range) -> int:
        if self.texts is None:
            return 0
        specs: Specs = [spec for part in self.network.parts if part.block in blocks for spec in part.layer.memory()]
        needs = SequenceNeeds.of(specs, self.texts.kind)
        whole = SequenceNeeds.of(self.network.specs, self.texts.kind)
        # checkpoints of earlier texts may be states alone, or keys and values alone
        share = max(needs.per_token / max(1, whole.per_token), needs.state / max(1, whole.state))
        return needs.nbytes(self.texts.n_seq, self.texts.n_ctx) + int(share * self.texts.spare)
