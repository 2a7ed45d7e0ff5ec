"""Fields of requests about a model's thoughts: how many, and where they are told."""

from typing import Annotated, Literal

from pydantic import Field

from .strict import Strict


class ThoughtFields(Strict):
    """reasoning_format   llama-server's: "none" leaves thoughts in the text
    include_reasoning  vLLM's: false does not tell them
    thinking_token_budget  vLLM's name of llama-server's two for the most tokens of thoughts; -1: any number
    """

    reasoning_format: Literal["none", "auto", "deepseek"] | None = None
    include_reasoning: bool = True
    reasoning_budget_tokens: Annotated[int, Field(ge=-1)] | None = None
    thinking_budget_tokens: Annotated[int, Field(ge=-1)] | None = None
    thinking_token_budget: Annotated[int, Field(ge=-1)] | None = None

    @property
    def most_thoughts(self) -> int | None:
        """Tokens of thoughts that an answer may have; -1: any number; None: not said."""
        names = (self.reasoning_budget_tokens, self.thinking_budget_tokens, self.thinking_token_budget)
        return next((given for given in names if given is not None), None)
