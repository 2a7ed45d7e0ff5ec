"""How `hybrid run` draws answers, whatever they answer: made of its options."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .probability_options import Probabilities
from .sampling_options import Sampling

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.answers.constraints import Constraint, Grammar
    from hybrid.infer.answers.sampling.params import SamplingParams

COMPLETION_TOKENS = 256


@dataclass(frozen=True, eq=False, repr=False)
class AnswerOptions:
    """n_predict: tokens of an answer, -1: as many as fit, None: not given. stop: texts that end it. speculate: guess
    tokens. keep: see `kept_tokens`, None: end when the context is full. form: of all of them."""

    sampling: Sampling = field(default_factory=Sampling)
    n_predict: int | None = None
    stop: Sequence[str] = ()
    speculate: bool = False
    keep: int | None = None
    form: "Grammar | None" = None
    probabilities: Probabilities = field(default_factory=Probabilities)

    @property
    def max_tokens(self) -> int:
        """Of an answer that nobody sees growing."""
        return COMPLETION_TOKENS if self.n_predict is None else self.n_predict

    def params(self, model: "LoadedModel") -> "SamplingParams":
        """How this model draws. UsageError names the option that cannot be."""
        return self.sampling.params(model.gguf.metadata)

    def constraint(self, model: "LoadedModel") -> "Constraint | None":
        """The form as this model draws it."""
        if self.form is None:
            return None
        from hybrid.infer.answers.constraints.forms import Forms

        return Forms(model.tokenizer).compiled(self.form)
