"""How `hybrid run` answers, in every mode: made from its options."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .probability_options import Probabilities
from .sampling_options import Sampling

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.answers.constraints import Constraint, Grammar
    from hybrid.infer.answers.sampling.params import SamplingParams

COMPLETION_TOKENS = 256  # of a raw text, which may never end by itself
ANSWER_TOKENS = 2048  # in a chat template: room for thoughts, and a bound for a model that repeats itself


@dataclass(frozen=True, eq=False, repr=False)
class AnswerOptions:
    """Settings of answers.

    n_predict  maximum tokens of an answer; -1: as many as fit, None: the option was not given
    stop       texts that end an answer
    speculate  guess tokens
    keep       see `kept_tokens`; None: stop when the context is full
    form       grammar of all answers
    """

    sampling: Sampling = field(default_factory=Sampling)
    n_predict: int | None = None
    stop: Sequence[str] = ()
    speculate: bool = False
    keep: int | None = None
    form: "Grammar | None" = None
    probabilities: Probabilities = field(default_factory=Probabilities)

    @property
    def max_tokens(self) -> int:
        """The limit for raw text and for a file of prompts."""
        return COMPLETION_TOKENS if self.n_predict is None else self.n_predict

    @property
    def answer_tokens(self) -> int:
        """The maximum number of tokens of an answer in a chat template."""
        return ANSWER_TOKENS if self.n_predict is None else self.n_predict

    def params(self, model: "LoadedModel") -> "SamplingParams":
        """The sampling settings for this model. Raises UsageError that names the wrong option."""
        return self.sampling.params(model.gguf.metadata)

    def constraint(self, model: "LoadedModel") -> "Constraint | None":
        """The grammar, compiled for this model's tokenizer; None without a grammar."""
        if self.form is None:
            return None
        from hybrid.infer.answers.constraints.forms import Forms

        return Forms(model.tokenizer).compiled(self.form)
