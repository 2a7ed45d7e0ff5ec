"""The settings of all samplers, in llama.cpp's terms and with its defaults."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import FormatError, UsageError, shown

# name of a sampler -> its letter in llama.cpp's --sampling-seq, in the default order
SAMPLERS = {
    "penalties": "e",
    "dry": "d",
    "top_n_sigma": "s",
    "top_k": "k",
    "typ_p": "y",
    "top_p": "p",
    "min_p": "m",
    "xtc": "x",
    "temperature": "t",
}
ALIASES = {
    "top-k": "top_k", "top-p": "top_p", "nucleus": "top_p", "min-p": "min_p", "temp": "temperature",
    "typical": "typ_p", "typical_p": "typ_p", "typical-p": "typ_p", "typ-p": "typ_p", "typ": "typ_p",
    "top-n-sigma": "top_n_sigma",
}  # fmt: skip
MOST_BREAKERS, LONGEST_BREAKER = 32, 40  # texts, characters
# far beyond any use, and so far from the largest numbers that no logit becomes infinite
MOST, LEAST_PENALTY, MOST_BIAS, MOST_TOKENS = 1e6, 1e-6, 1e30, 2**31 - 1


@dataclass(frozen=True)
class SamplingParams:
    """How to choose the next token. The defaults are llama.cpp's.

    samplers  the samplers that run, in this order; one that is not named does nothing, whatever its settings.
              logit_bias comes before all. With mirostat only temperature comes before it; adaptive_p replaces the plain
              draw
    """

    temp: float = 0.8  # 0: always the most probable token
    top_k: int = 40  # keep the k most probable; 0 or less: all
    top_p: float = 0.95  # keep the fewest tokens whose probabilities reach p; 1: all
    min_p: float = 0.05  # keep tokens with at least this share of the best token's probability; 0: all
    repeat_penalty: float = 1.0  # divides (or, below 0, multiplies) the logits of recent tokens; 1: none
    presence_penalty: float = 0.0  # subtracted once from the logit of each recent token
    frequency_penalty: float = 0.0  # subtracted for each time it occurred
    repeat_last_n: int = 64  # how many tokens are recent; 0: none, -1: all
    seed: int | None = None  # None: a random one, see Sampler.seed
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # token -> added to its logit; -inf: never
    dynatemp_range: float = 0.0  # temperature goes this far up and down with the entropy; 0: it is fixed
    dynatemp_exponent: float = 1.0  # exponent applied to the entropy, as a share of its maximum
    typ_p: float = 1.0  # locally typical sampling (Meister 2022): keep tokens about as likely as expected; 1: all
    top_n_sigma: float = -1.0  # keep logits within n standard deviations of the best (Tang 2024); 0 or less: all
    xtc_probability: float = 0.0  # exclude top choices: how often; 0: never
    xtc_threshold: float = 0.1  # of tokens at least this probable, only the least probable stays; above 0.5: no effect
    dry_multiplier: float = 0.0  # "don't repeat yourself": see dry.py; 0: off
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_last_n: int = 64  # how many tokens are searched; 0: none, -1: all
    dry_breakers: tuple[str, ...] = ("\n", ":", '"', "*")  # texts that end a repetition
    mirostat: int = 0  # 1 or 2: keep the surprise of the text at mirostat_tau (Basu 2020); 0: off
    mirostat_tau: float = 5.0  # bits
    mirostat_eta: float = 0.1  # learning rate
    adaptive_target: float = -1.0  # sample tokens of about this probability; below 0: off
    adaptive_decay: float = 0.9  # decay of the running average of sampled probabilities
    min_keep: int = 0  # typ_p, top_p, min_p and xtc leave at least this many tokens
    samplers: tuple[str, ...] = tuple(SAMPLERS)

    def __post_init__(self) -> None:
        def need(ok: bool, name: str, expected: str) -> None:
            if not ok:
                raise UsageError(f"{name} = {getattr(self, name)}, expected {expected}")

        def number(name: str, least: float = -MOST, also: str = "") -> None:
            # written so that NaN fails
            need(least <= getattr(self, name) <= MOST, name, f"a number from {least:g} to {MOST:g}{also}")

        def tokens(name: str, least: int, also: str = "") -> None:
            need(least <= getattr(self, name) <= MOST_TOKENS, name, f"{least} to {MOST_TOKENS} tokens{also}")

        number("temp", 0, "; 0 is greedy")
        need(0 < self.top_p <= 1, "top_p", "a number above 0, at most 1")
        need(0 <= self.min_p <= 1, "min_p", "a number from 0 to 1")
        number("repeat_penalty", LEAST_PENALTY)
        number("presence_penalty")
        number("frequency_penalty")
        tokens("repeat_last_n", -1, "; -1 for all")
        need(self.seed is None or 0 <= self.seed < 2**64, "seed", "an integer from 0 to 2**64 - 1")
        number("dynatemp_range", 0, "; 0 is a fixed temperature")
        number("dynatemp_exponent", 0)
        need(0 < self.typ_p <= 1, "typ_p", "a number above 0, at most 1")
        number("top_n_sigma", also="; 0 or less keeps all")
        need(0 <= self.xtc_probability <= 1, "xtc_probability", "a number from 0 to 1")
        need(0 <= self.xtc_threshold <= 1, "xtc_threshold", "a number from 0 to 1")
        number("dry_multiplier", 0, "; 0 is off")
        number("dry_base", 0, "; below 1 is off")
        tokens("dry_allowed_length", 0)
        tokens("dry_last_n", -1, "; -1 for all")
        need(
            len(self.dry_breakers) <= MOST_BREAKERS and all(0 < len(t) <= LONGEST_BREAKER for t in self.dry_breakers),
            "dry_breakers",
            f"at most {MOST_BREAKERS} texts of 1 to {LONGEST_BREAKER} characters",
        )
        need(self.mirostat in (0, 1, 2), "mirostat", "0, 1 or 2")
        number("mirostat_tau", 0, " bits")
        number("mirostat_eta", 0)
        need(-math.inf < self.adaptive_target <= 1, "adaptive_target", "a number up to 1; below 0 is off")
        need(0 <= self.adaptive_decay < 1, "adaptive_decay", "a number from 0, below 1")
        tokens("min_keep", 0)
        if self.mirostat and self.adaptive_target >= 0:
            raise UsageError("mirostat and adaptive_target both choose the token. Use one of them.")
        self._check_samplers()
        for token, bias in self.logit_bias.items():
            if not (abs(bias) <= MOST_BIAS or bias == -math.inf):
                raise UsageError(
                    f"logit_bias of token {token} = {bias}, expected a number from {-MOST_BIAS:g} to {MOST_BIAS:g}, "
                    "or -inf"
                )

    def _check_samplers(self) -> None:
        for name in self.samplers:
            if name not in SAMPLERS:
                raise UsageError(f"samplers name {shown(name)}, expected some of {', '.join(SAMPLERS)}")
        if len(set(self.samplers)) < len(self.samplers):
            twice = next(name for name in self.samplers if self.samplers.count(name) > 1)
            raise UsageError(f"samplers name {twice} twice, expected each once")

    @property
    def changed(self) -> dict[str, Any]:
        """The fields that are not at their defaults: samplers of later versions appear only where they are used."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(_DEFAULTS, name)}

    @property
    def plan(self) -> tuple[str, ...]:
        """The samplers that have an effect, in order; with mirostat only those before it."""
        does = {
            "penalties": self.penalizes,
            "dry": self.dries,
            "top_n_sigma": self.top_n_sigma > 0,
            "top_k": self.top_k > 0,
            "typ_p": self.typ_p < 1,
            "top_p": self.top_p < 1,
            "min_p": self.min_p > 0,
            "xtc": self.xtc_probability > 0 and self.xtc_threshold <= 0.5,
            "temperature": True,
        }
        if self.mirostat:
            return ("temperature",)
        return tuple(name for name in self.samplers if does[name])

    @property
    def greedy(self) -> bool:
        """Whether the temperature leaves only the most probable token."""
        return self.temp <= 0 and self.dynatemp_range <= 0 and "temperature" in self.plan

    @property
    def penalizes(self) -> bool:
        changes = self.repeat_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0
        return changes and self.repeat_last_n != 0

    @property
    def dries(self) -> bool:
        return self.dry_multiplier > 0 and self.dry_base >= 1 and self.dry_last_n != 0

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], **given: Any) -> "SamplingParams":
        """The defaults, overridden by the model's own (`general.sampling.*`, from generation_config.json), then by
        `given`.

        A given None counts as not given. Raises FormatError if the file's value cannot be used for sampling.
        """
        values: dict[str, Any] = {}
        for key, (name, kind) in _METADATA_KEYS.items():
            value = metadata.get(f"general.sampling.{key}")
            if value is None:
                continue
            number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            try:
                if not number:
                    raise UsageError("not a number")
                cls(**{name: kind(value)})
            except (UsageError, ValueError, OverflowError):
                raise FormatError(
                    f"general.sampling.{key} = {shown(value)} cannot be used. Convert the model again."
                ) from None
            values[name] = kind(value)
        if (text := metadata.get("general.sampling.sequence")) is not None:
            try:
                values["samplers"] = read_samplers(text)
            except UsageError as error:
                raise FormatError(f"general.sampling.sequence: {error}. Convert the model again.") from None
        known = {f.name for f in fields(cls)}
        values.update({name: value for name, value in given.items() if value is not None})
        unknown = sorted(values.keys() - known)
        assert not unknown, f"no sampling parameter {unknown}"
        return cls(**values)


_DEFAULTS = SamplingParams()

# general.sampling.<key> -> (field, type)
_METADATA_KEYS: dict[str, tuple[str, type]] = {
    "temp": ("temp", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "xtc_probability": ("xtc_probability", float),
    "xtc_threshold": ("xtc_threshold", float),
    "penalty_repeat": ("repeat_penalty", float),
    "penalty_last_n": ("repeat_last_n", int),
    "mirostat": ("mirostat", int),
    "mirostat_tau": ("mirostat_tau", float),
    "mirostat_eta": ("mirostat_eta", float),
}


def read_samplers(text: object) -> tuple[str, ...]:
    """Parses llama.cpp's order of samplers: names separated by ;, or letters. Raises UsageError for unknown names.

    `adaptive_p` may be named without effect: it always comes last, if adaptive_target is given.
    """
    if not isinstance(text, str):
        raise UsageError(f"samplers = {shown(text)}, expected names with ; between")
    by_letter = {letter: name for name, letter in SAMPLERS.items()} | {"a": "adaptive_p"}
    if ";" in text or len(text) > len(by_letter) or any(letter not in by_letter for letter in text):
        names = [part.strip().lower() for part in text.split(";") if part.strip()]
        names = [ALIASES.get(name, name) for name in names]
    else:
        names = [by_letter[letter] for letter in text]
    names = [name for name in names if name not in ("adaptive_p", "adaptive-p")]
    return SamplingParams(samplers=tuple(names)).samplers
