"""Fields that several of ollama's requests have, and their translation to OpenAI's fields."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from ..errors import RequestError
from ..fields import CacheFields, CacheSalt, Ignored, Strict
from ..samplers import SamplerFields


class OllamaOptions(SamplerFields):
    """Settings of an answer. Settings of ollama's own processes and devices have no effect."""

    num_predict: Annotated[int, Field(ge=-2, description="Limit on tokens; -1 and -2: as many as fit.")] | None = None
    num_keep: Annotated[int, Field(ge=-1)] | None = None
    stop: str | list[str] | None = None
    num_ctx: int | None = None
    num_batch: Ignored
    num_gpu: Ignored
    num_thread: Ignored
    main_gpu: Ignored
    numa: Ignored
    low_vram: Ignored
    f16_kv: Ignored
    use_mmap: Ignored
    use_mlock: Ignored
    vocab_only: Ignored
    logits_all: Ignored
    embedding_only: Ignored
    draft_num_predict: Ignored

    def unheeded(self) -> Iterator[tuple[str, str]]:
        """Adds the size of the context."""
        yield from super().unheeded()
        if self.num_ctx is not None:
            yield "num_ctx", "the context has the size that the server was started with"

    def as_openais(self) -> dict[str, Any]:
        """The settings as fields of `AnswerFields`."""
        given = {name: getattr(self, name) for name in SamplerFields.model_fields if name in self.model_fields_set}
        if self.num_predict is not None:
            given["max_tokens"] = max(self.num_predict, -1)
        return {**given, "n_keep": self.num_keep, "stop": self.stop}


class ModelRequest(Strict):
    """A request that names its model. keep_alive counts in requests for nothing only: 0 unloads it."""

    model: str | None = None
    keep_alive: float | str | None = None
    options: OllamaOptions | None = None

    @property
    def unloads(self) -> bool:
        """Whether `keep_alive` is no time at all."""
        given = self.keep_alive
        return given == 0 if not isinstance(given, str) else given.strip("hmsnuµ") in ("0", "0.0")


class OllamaAnswerRequest(ModelRequest):
    """Fields of chats and of completions."""

    stream: bool = True
    format: str | dict[str, Any] | None = None
    think: bool | str | None = None
    truncate: Ignored
    shift: bool | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] = 0
    cache: CacheFields | None = None
    cache_salt: CacheSalt = None

    def unheeded(self) -> Iterator[tuple[str, str]]:
        """Adds a request to lose the beginning of the context."""
        yield from super().unheeded()
        if self.shift:
            yield "shift", "--context-shift of the server decides"

    @property
    def thinks(self) -> bool | None:
        """Whether the model thinks; None: not given. A level of effort is a yes."""
        return None if self.think in (None, "") else bool(self.think)

    def as_openais(self) -> dict[str, Any]:
        """The fields as OpenAI's. RequestError: `format` is neither "json" nor a schema."""
        given = self.options.as_openais() if self.options is not None else {}
        if self.format == "json":
            given["response_format"] = {"type": "json_object"}
        elif isinstance(self.format, dict):
            given["json_schema"] = self.format
        elif self.format:
            raise RequestError(f'format: expected "json" or a JSON schema; found {self.format[:80]!r}', param="format")
        if isinstance(self.think, str) and self.think:
            given["reasoning_effort"] = self.think
        return {**given, "cache": self.cache}

    @property
    def n_top(self) -> int | None:
        """The number of likely tokens to list beside each token; None: no logprobs."""
        return self.top_logprobs if self.logprobs else None
