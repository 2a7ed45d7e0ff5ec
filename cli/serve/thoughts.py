"""Fields of requests for thoughts: their limit, and whether they are returned."""

from typing import Annotated, Literal

from pydantic import Field

from .strict import Strict


class ThoughtFields(Strict):
    """Fields for a model's thoughts.

    reasoning_format       llama-server's: "none" leaves thoughts in the text
    include_reasoning      vLLM's: false leaves thoughts out of the answer
    thinking_token_budget  vLLM's limit on tokens of thoughts, which llama-server has under two names; -1: no limit
    """

    reasoning_format: Literal["none", "auto", "deepseek"] | None = None
    include_reasoning: bool = True
    reasoning_budget_tokens: Annotated[int, Field(ge=-1)] | None = None
    thinking_budget_tokens: Annotated[int, Field(ge=-1)] | None = None
    thinking_token_budget: Annotated[int, Field(ge=-1)] | None = None

    @property
    def most_thoughts(self) -> int | None:
        """Limit on tokens of thoughts; -1: no limit; None: not given."""
        names = (self.reasoning_budget_tokens, self.thinking_budget_tokens, self.thinking_token_budget)
        return next((given for given in names if given is not None), None)
