"""Routers of mixtures of experts: which experts a token has, and what each of them weighs."""

from dataclasses import dataclass

from ..kernels.rows.moe import ChosenBy, Scoring
from ..loading.weights import Weights
from ..program.record import OpFields


@dataclass(frozen=True)
class ExpertGroups:
    """`n` groups of neighbours, of which only the n_used best ones of a token are chosen from (arXiv:2412.19437).

    by_two  a group counts by the sum of its two best scores, otherwise by its best alone
    """

    n: int
    n_used: int
    by_two: bool = True

    def check(self, w: Weights, n_expert: int, n_expert_used: int) -> None:
        """FormatError: a group has fewer than two experts, or the groups used have fewer experts than a token."""
        if n_expert % self.n or n_expert < 2 * self.n:
            raise w.wrong("expert_group_count", self.n, f"groups of two or more of the {n_expert} experts")
        if not 1 <= self.n_used <= self.n:
            raise w.wrong("expert_group_used_count", self.n_used, f"1 to {self.n}, the expert_group_count")
        n = n_expert // self.n * self.n_used
        if n_expert_used > n:
            raise w.wrong(
                "expert_used_count", n_expert_used, f"1 to {n}, the experts of expert_group_used_count groups"
            )


@dataclass(frozen=True)
class Router:
    """n_used of n_expert experts for every token, weighted by their scores.

    renormalize  weights sum up to 1 before they are multiplied by `scale`
    n_idle       further choices that are no experts: a token that chooses one of them adds nothing
    jitter       of ChosenBy.SPARSE_MIXER: how near the scores are among which an expert is weighed
    """

    n_expert: int
    n_used: int
    renormalize: bool = False
    scoring: Scoring = Scoring.SOFTMAX
    chosen_by: ChosenBy = ChosenBy.SCORE
    scale: float = 1.0
    groups: ExpertGroups | None = None
    n_idle: int = 0
    jitter: float = 0.0

    @property
    def n_score(self) -> int:
        return self.n_expert + self.n_idle

    def check(self, w: Weights) -> None:
        """FormatError: the file says of its experts what cannot be."""
        if not 1 <= self.n_used <= self.n_expert:
            raise w.wrong("expert_used_count", self.n_used, f"1 to {self.n_expert}, which is expert_count")
        if self.groups:
            self.groups.check(w, self.n_expert, self.n_used)

    def fields(self) -> OpFields:
        """Of `moe_route`."""
        groups = self.groups or ExpertGroups(1, 1)
        return {
            "n_expert": self.n_score,
            "n_used": self.n_used,
            "scoring": self.scoring,
            "chosen_by": self.chosen_by,
            "renormalize": self.renormalize,
            "scale": float(self.scale),
            "n_group": groups.n,
            "n_group_used": groups.n_used,
            "n_group_best": 2 if groups.by_two else 1,
            "n_idle": self.n_idle,
            "jitter": float(self.jitter),
        }
