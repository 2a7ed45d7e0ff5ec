"""What requests may hold. A field that is not here is refused by name; an `Ignored` one is taken and has no effect.

Ranges are not written here: `SamplingParams` and `Drawing` know them, and say them the same way everywhere.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Ignored = Annotated[Any, Field(default=None, description="Accepted without effect.")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(_Strict):
    """What a stream tells beside the answer."""

    include_usage: bool = False
    include_obfuscation: Ignored


class _Answer(_Strict):
    """What every kind of answer takes: OpenAI's fields, and llama-server's samplers."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=64)] = 1
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    ignore_eos: bool = False
    user: Ignored
    metadata: Ignored
    store: Ignored
    service_tier: Ignored


class TextPart(_Strict):
    """A part of a message. Others (images, audio) are refused: these models read text."""

    type: Literal["text"]
    text: str


class Message(_Strict):
    """One message of a conversation."""

    role: str
    content: str | list[TextPart] | None = None
    name: str | None = None

    def as_template(self) -> dict[str, str]:
        """As chat templates want it."""
        content = self.content
        text = "".join(part.text for part in content) if isinstance(content, list) else content or ""
        return {"role": self.role, "content": text, **({"name": self.name} if self.name else {})}


class ChatRequest(_Answer):
    """POST /v1/chat/completions"""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=0)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    prompt_cache_key: Ignored
    verbosity: Ignored


class CompletionRequest(_Answer):
    """POST /v1/completions"""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


class TokenizeRequest(_Strict):
    """POST /tokenize, in llama-server's shape (`content`) or vLLM's (`prompt`)."""

    content: str | None = None
    prompt: str | None = None
    model: str | None = None
    add_special: bool | None = None
    add_special_tokens: bool | None = None
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(_Strict):
    """POST /detokenize"""

    tokens: list[int]
    model: str | None = None
