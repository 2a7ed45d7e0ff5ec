"""Options for sampling, the same in every command that generates answers.

    @takes_groups
    def command(..., *, sampling: Sampling) -> None:     # has --temp, --top-k and all the others
        params = sampling.params(loaded.gguf.metadata)

Ranges and defaults belong to `SamplingParams`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from hybrid.infer.answers.sampling.params import SAMPLERS, SamplingParams, read_samplers
from hybrid.quant.ggml.errors import UsageError

PANEL = "Sampling (a model's own defaults replace those shown)"
DEFAULTS = SamplingParams()


def _option(*names: str, field: str, help: str, default: object = None, **more: Any) -> Any:
    """An option for a field of SamplingParams. Its default appears only in the help: a model may have its own."""
    shown = getattr(DEFAULTS, field) if default is None else default
    return typer.Option(*names, help=f"{help}  [default: {shown}]", rich_help_panel=PANEL, **more)


@dataclass(frozen=True, eq=False, repr=False)
class Sampling:
    """The values of the options; None or an empty list: the option was not given."""

    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the random numbers; the same seed gives the same answer. Default: random.",
            rich_help_panel=PANEL,
        ),
    ] = None
    greedy: Annotated[
        bool,
        typer.Option("--greedy", help="Always take the most likely token, as --temp 0 does.", rich_help_panel=PANEL),
    ] = False
    temp: Annotated[float | None, _option(field="temp", help="Temperature; 0: always take the most likely token.")] = (
        None
    )
    dynatemp_range: Annotated[
        float | None,
        _option(
            field="dynatemp_range", help="Range of the dynamic temperature: temp - X to temp + X, by entropy; 0: off."
        ),
    ] = None
    dynatemp_exponent: Annotated[
        float | None,
        _option(
            "--dynatemp-exp", field="dynatemp_exponent", help="Exponent applied to the entropy, with --dynatemp-range."
        ),
    ] = None
    top_k: Annotated[int | None, _option(field="top_k", help="Keep the N most likely tokens; 0: all.")] = None
    top_p: Annotated[
        float | None,
        _option(field="top_p", help="Keep the most likely tokens whose probabilities add up to X; 1: all."),
    ] = None
    min_p: Annotated[
        float | None, _option(field="min_p", help="Drop tokens less likely than X times the most likely one; 0: none.")
    ] = None
    typ_p: Annotated[
        float | None,
        _option(
            "--typical",
            field="typ_p",
            help="Locally typical sampling: keep tokens of typical probability, up to a total of X; 1: all.",
        ),
    ] = None
    top_n_sigma: Annotated[
        float | None,
        _option(
            "--top-n-sigma",
            field="top_n_sigma",
            help="Keep tokens whose logits are within X standard deviations of the highest; -1: all.",
        ),
    ] = None
    min_keep: Annotated[
        int | None, _option(field="min_keep", help="Minimum tokens that top_p, min_p, typical and xtc keep.")
    ] = None
    xtc_probability: Annotated[
        float | None,
        _option(field="xtc_probability", help="Probability that XTC removes the top choices of a token; 0: off."),
    ] = None
    xtc_threshold: Annotated[
        float | None,
        _option(
            field="xtc_threshold",
            help="Minimum probability of a top choice for XTC; the least likely top choice stays.",
        ),
    ] = None
    repeat_penalty: Annotated[
        float | None,
        _option(
            field="repeat_penalty",
            help="Penalty on recent tokens: positive logits are divided by X, negative ones multiplied; 1: off.",
        ),
    ] = None
    presence_penalty: Annotated[
        float | None,
        _option(field="presence_penalty", help="Subtracted once from the logit of each recent token; 0: off."),
    ] = None
    frequency_penalty: Annotated[
        float | None,
        _option(
            field="frequency_penalty", help="Subtracted from the logit of a recent token once per occurrence; 0: off."
        ),
    ] = None
    repeat_last_n: Annotated[
        int | None, _option(field="repeat_last_n", help="Number of recent tokens for the penalties; 0: none, -1: all.")
    ] = None
    dry_multiplier: Annotated[
        float | None,
        _option(
            field="dry_multiplier", help="Strength of the DRY penalty on tokens that would repeat a passage; 0: off."
        ),
    ] = None
    dry_base: Annotated[
        float | None,
        _option(field="dry_base", help="DRY: base of the penalty, which grows by this factor per repeated token."),
    ] = None
    dry_allowed_length: Annotated[
        int | None,
        _option(
            field="dry_allowed_length", help="DRY: longest passage, in tokens, that may be repeated without a penalty."
        ),
    ] = None
    dry_last_n: Annotated[
        int | None,
        _option(
            "--dry-penalty-last-n",
            field="dry_last_n",
            help="DRY: number of recent tokens that are searched for repetitions; -1: all.",
        ),
    ] = None
    dry_breakers: Annotated[
        list[str] | None,
        _option(
            "--dry-sequence-breaker",
            field="dry_breakers",
            help='DRY: text that ends a passage, so that no repetition is counted across it; "none": no such text. '
            "May be repeated.",
            default=" ".join(text.replace("\n", "\\n") for text in DEFAULTS.dry_breakers),
            metavar="TEXT",
        ),
    ] = None
    mirostat: Annotated[
        int | None,
        _option(
            field="mirostat",
            help="Mirostat 1 or 2 instead of the other samplers: keeps the surprise of tokens near a target; 0: off.",
        ),
    ] = None
    mirostat_tau: Annotated[
        float | None,
        _option("--mirostat-ent", field="mirostat_tau", help="Mirostat: target surprise, in bits per token."),
    ] = None
    mirostat_eta: Annotated[
        float | None, _option("--mirostat-lr", field="mirostat_eta", help="Mirostat: learning rate.")
    ] = None
    adaptive_target: Annotated[
        float | None,
        _option(field="adaptive_target", help="Adaptive-p: prefer tokens of about this probability; -1: off."),
    ] = None
    adaptive_decay: Annotated[
        float | None, _option(field="adaptive_decay", help="Adaptive-p: decay of the running average.")
    ] = None
    samplers: Annotated[
        str | None,
        _option(
            "--samplers",
            field="samplers",
            help="Samplers in the order of use: names with ; between them, or letters "
            f"({', '.join(f'{letter} {name}' for name, letter in SAMPLERS.items())}).",
            default="all",
            metavar="NAMES",
        ),
    ] = None
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID=BIAS",
            help="Add BIAS to the logit of token ID; -inf: never sample it. May be repeated.",
            rich_help_panel=PANEL,
        ),
    ] = None

    def params(self, metadata: Mapping[str, Any]) -> SamplingParams:
        """The given options over the defaults in the model's `metadata`. UsageError names the wrong option."""
        if self.greedy and self.temp is not None and self.temp > 0:
            raise UsageError(f"--greedy and --temp {self.temp} are both given. Use one of them.")
        given: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "greedy"}
        given |= {"temp": 0.0} if self.greedy else {}
        given["samplers"] = None if self.samplers is None else read_samplers(self.samplers)
        given["dry_breakers"] = _breakers(self.dry_breakers)
        given["logit_bias"] = _bias(self.logit_bias or [])
        params = SamplingParams.from_metadata(metadata, **given)
        if self.greedy and not params.greedy:
            what = "--dynatemp-range" if params.dynatemp_range > 0 else "samplers without temperature"
            raise UsageError(f"--greedy does not go with {what}. Use one of them.")
        return params


def _breakers(given: list[str] | None) -> tuple[str, ...] | None:
    if not given:
        return None
    return () if given == ["none"] else tuple(text.replace("\\n", "\n") for text in given)


def _bias(given: list[str]) -> Mapping[int, float] | None:
    biases = {}
    for text in given:
        token, _, bias = text.partition("=")
        try:
            biases[int(token)] = float(bias)
        except ValueError:
            raise UsageError(f"--logit-bias {text}, expected ID=BIAS, for example 42=-1.5 or 42=-inf") from None
    return biases or None
