"""Settings in a line of a file of prompts: the fields of a request to the server."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from hybrid.quant.ggml.errors import UsageError, shown

from ..constraints import form_fields
from ..sampling import requested
from . import chat_lines

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer
    from ..sampling import SamplingParams

LIMITS = ("max_completion_tokens", "max_tokens", "n_predict")  # the first that is given counts, as in the server
PASSED_OVER = ("model", "user", "metadata")  # of OpenAI's requests: they change no answer
KNOWN = (
    "prompt", "messages", "id", "stop", "parse_special", *LIMITS, *requested.FIELDS, *form_fields.FIELDS,
    *chat_lines.FIELDS, *PASSED_OVER,
)  # fmt: skip


@dataclass(frozen=True)
class LineSettings:
    """The settings that a line sets.

    sampling       see `with_requested`
    max_tokens     limit on an answer's tokens; None: the limit for all lines
    stop           texts that end an answer; None: those for all lines
    parse_special  whether control tokens written in the text count as such; None: the default
    """

    sampling: Mapping[str, Any]
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    parse_special: bool | None = None

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> Self | None:
        """The settings of a line, or None if it has none. Raises UsageError for an unknown field or a wrong value."""
        unknown = [name for name in line if name not in KNOWN]
        if unknown:
            import difflib  # slow to import

            near = difflib.get_close_matches(unknown[0], KNOWN, 1, 0.7)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(f"unknown field {shown(unknown[0])}.{hint} There are: {', '.join(KNOWN)}.")
        sampling = {name: line[name] for name in requested.FIELDS if line.get(name) is not None}
        most = next((line[name] for name in LIMITS if line.get(name) is not None), None)
        if most is not None and (type(most) is not int or most < -1):
            raise UsageError(f"its limit is {shown(most)}, expected a number of tokens, or -1.")
        stop, special = line.get("stop"), line.get("parse_special")
        stop = (stop,) if isinstance(stop, str) else stop
        if stop is not None and (not isinstance(stop, list | tuple) or not all(isinstance(one, str) for one in stop)):
            raise UsageError(f"its stop is {shown(stop)}, expected a text or a list of texts.")
        if not isinstance(special, bool | None):
            raise UsageError(f"its parse_special is {shown(special)}, expected true or false.")
        found = cls(sampling, most, None if stop is None else tuple(filter(None, stop)), special)
        return found if found != cls({}) else None

    def params(self, defaults: "SamplingParams", tokenizer: "Tokenizer", sample: int) -> "SamplingParams":
        """The sampling settings of one answer; a line's own seed rises by 1 from sample to sample. Raises UsageError
        for a wrong value."""
        try:
            params = requested.with_requested(defaults, self.sampling, tokenizer)
        except (TypeError, ValueError) as error:
            raise UsageError(f"a setting is of the wrong type: {shown(error)}.") from None
        seed = params.seed
        return params if seed is None or "seed" not in self.sampling else replace(params, seed=(seed + sample) % 2**64)

    @property
    def key(self) -> list[Any]:
        """The settings as a part of an answer's key."""
        return [sorted(self.sampling.items()), self.max_tokens, self.stop, self.parse_special]
