"""The time of a run, summed by op name."""

from dataclasses import dataclass, replace

from ..program.builder import Op


@dataclass(frozen=True)
class OpTime:
    """Time of all ops of one name in one run."""

    name: str
    kind: str
    seconds: float
    nbytes: int
    flops: int
    count: int


class OpTimes:
    """Sums by op name."""

    def __init__(self) -> None:
        self._totals: dict[str, OpTime] = {}

    def add(self, op: Op, seconds: float, nbytes: int, flops: int) -> None:
        """Add one run of an op."""
        old = self._totals.get(op.name, OpTime(op.name, op.kernel.name, 0.0, 0, 0, 0))
        self._totals[op.name] = replace(
            old,
            kind=op.kernel.name,
            seconds=old.seconds + seconds,
            nbytes=old.nbytes + nbytes,
            flops=old.flops + flops,
            count=old.count + 1,
        )

    def slowest_first(self) -> list[OpTime]:
        return sorted(self._totals.values(), key=lambda t: -t.seconds)
