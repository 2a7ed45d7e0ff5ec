"""Routers of mixtures of experts: the experts of each token, and their weights."""

from dataclasses import dataclass

from ..kernels.rows.moe import ChosenBy, Scoring
from ..loading.weights import Weights
from ..program.record import OpFields


@dataclass(frozen=True)
class ExpertGroups:
    """`n` groups of adjacent experts: a token chooses experts only from its n_used best groups (arXiv:2412.19437).

    by_two  a group's score is the sum of its two best scores, otherwise its best score
    """

    n: int
    n_used: int
    by_two: bool = True

    def check(self, w: Weights, n_expert: int, n_expert_used: int) -> None:
        """Raises FormatError if a group has fewer than two experts, or the used groups fewer experts than a token
        needs."""
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

    renormalize  weights are normalized to sum 1 before they are multiplied by `scale`
    n_idle       further choices, which add nothing
    returns      idle choices return their input instead
    n_shared     the last n_shared of the experts are used by every token, and their scores count as the others' do
    jitter       for ChosenBy.SPARSE_MIXER: how near logits must be to share the softmax of an expert's weight
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
    n_shared: int = 0
    returns: bool = False

    @property
    def n_score(self) -> int:
        return self.n_expert + self.n_idle

    def check(self, w: Weights) -> None:
        """Raises FormatError if the file's numbers of experts are inconsistent."""
        if not 1 <= self.n_used <= self.n_expert:
            raise w.wrong("expert_used_count", self.n_used, f"1 to {self.n_expert}, which is expert_count")
        if self.n_shared and not self.n_shared < self.n_used:
            raise w.wrong("expert_shared_count", self.n_shared, f"fewer than expert_used_count = {self.n_used}")
        if self.groups:
            self.groups.check(w, self.n_expert, self.n_used)

    def fields(self) -> OpFields:
        """The fields for `moe_route`."""
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
