"""Fields that the bodies of several routes share.

An unknown field is ignored with a warning, an `Ignored` one without. A null field counts as absent, since clients
send null for "default"; integers may be written 16.0. Ranges are checked by `SamplingParams` and `Drawing`, which say
the same in every interface.
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from .adapters import LoraChoice
from .forms import FormFields
from .samplers import SamplerFields
from .strict import Ignored, Strict, Unsupported

__all__ = ["AnswerFields", "CacheFields", "CacheSalt", "Ignored", "StreamOptions", "Strict", "Unsupported"]


LONGEST_MS = 10**12  # milliseconds: thirty years


class StreamOptions(Strict):
    """Options of a stream: reports besides the answer."""

    include_usage: bool = False
    include_obfuscation: Ignored


class CacheFields(Strict):
    """How the prompt cache treats a conversation after its answer."""

    keep: Annotated[
        bool | None,
        Field(
            description="true: prompt and answer are not given up for others, until false or DELETE says so. All that "
            "is kept in this way may use half of --checkpoint-budget; more is refused."
        ),
    ] = None
    drawn: Annotated[
        bool | None,
        Field(
            description="false: earlier answers in the prompt are encoded like any text, as by a server that has not "
            "sampled them."
        ),
    ] = None


CacheSalt = Annotated[
    str | None,
    Field(
        max_length=1024,
        description="Only requests with the same salt and key reuse the texts of this one.",
    ),
]


ParseSpecial = Annotated[
    bool, Field(description='Control tokens written in the text, as "<|im_end|>", become tokens; false: plain text.')
]


class AnswerFields(SamplerFields, FormFields):
    """Fields of every kind of answer: OpenAI's and llama-server's."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=64)] = 1
    max_tokens: Annotated[int, Field(ge=-1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=-1)] | None = None
    n_predict: Annotated[int, Field(ge=-1)] | None = None
    stop: str | list[str] | None = None
    n_keep: Annotated[int, Field(ge=-1)] | None = None
    t_max_predict_ms: Annotated[int, Field(le=LONGEST_MS)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    stop_token_ids: list[int] | None = None
    skip_special_tokens: bool = True
    truncate_prompt_tokens: (
        Annotated[
            int,
            Field(ge=-1, description="Tokens kept at the end of the prompt; -1: as many as leave room for the answer."),
        ]
        | None
    ) = None
    cache_prompt: bool = True
    id_slot: Annotated[int, Field(ge=-1)] = -1
    return_progress: bool = False
    timings_per_token: bool = False
    verbose: bool = False
    speculate: bool | None = None
    cache: CacheFields | None = None
    cache_salt: CacheSalt = None
    user: Ignored
    metadata: Ignored
    store: Ignored
    service_tier: Ignored
    n_discard: Ignored
    n_cache_reuse: Ignored
    sse_ping_interval: Ignored
    n_indent: int = 0
    lora: Annotated[
        list[LoraChoice] | None,
        Field(description="Adapters of the answer, by number or name; the others have scale 0. See /lora-adapters."),
    ] = None

    @property
    def most(self) -> int | None:
        """Limit on the answer's tokens; -1: as many as fit; None: not given."""
        names = (self.max_completion_tokens, self.max_tokens, self.n_predict)
        return next((given for given in names if given is not None), None)

    @property
    def stops(self) -> list[str]:
        """The stop strings."""
        return list(filter(None, [self.stop] if isinstance(self.stop, str) else self.stop or ()))

    def unheeded(self) -> Iterator[tuple[str, str]]:
        """Adds empty stop strings, and a least indentation."""
        yield from super().unheeded()
        if self.stop is not None and "" in ([self.stop] if isinstance(self.stop, str) else self.stop):
            yield "stop", "an empty text ends no answer"
        if self.n_indent > 0:
            yield "n_indent", "lines may be indented less"
