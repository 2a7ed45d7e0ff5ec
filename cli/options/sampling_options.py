"""The options that say how tokens are drawn, and what becomes of them.

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
    """An option for one of SamplingParams' fields; its default is shown, not given: a model may have another."""
    shown = getattr(DEFAULTS, field) if default is None else default
    return typer.Option(*names, help=f"{help}  [default: {shown}]", rich_help_panel=PANEL, **more)


@dataclass(frozen=True, eq=False, repr=False)
class Sampling:
    """What was given of the options; None, or an empty list: not given."""

    seed: Annotated[
        int | None, typer.Option(help="Makes sampling repeatable. Default: random.", rich_help_panel=PANEL)
    ] = None
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Always take the likeliest token: --temp 0.", rich_help_panel=PANEL)
    ] = False
    temp: Annotated[float | None, _option(field="temp", help="Temperature; 0 always takes the likeliest token.")] = None
    dynatemp_range: Annotated[
        float | None,
        _option(field="dynatemp_range", help="The temperature goes this far up and down with the entropy."),
    ] = None
    dynatemp_exponent: Annotated[
        float | None, _option("--dynatemp-exp", field="dynatemp_exponent", help="Of the entropy, for that.")
    ] = None
    top_k: Annotated[int | None, _option(field="top_k", help="Keep the k likeliest tokens; 0: all.")] = None
    top_p: Annotated[
        float | None, _option(field="top_p", help="Keep the likeliest tokens whose probabilities add up to this.")
    ] = None
    min_p: Annotated[float | None, _option(field="min_p", help="Drop tokens below this share of the likeliest.")] = None
    typ_p: Annotated[
        float | None,
        _option("--typical", field="typ_p", help="Keep tokens about as likely as expected, up to this mass; 1: all."),
    ] = None
    top_n_sigma: Annotated[
        float | None,
        _option(
            "--top-n-sigma", field="top_n_sigma", help="Keep logits within n standard deviations of the best; -1: all."
        ),
    ] = None
    min_keep: Annotated[
        int | None, _option(field="min_keep", help="top_p, min_p, typical and xtc leave so many at least.")
    ] = None
    xtc_probability: Annotated[
        float | None, _option(field="xtc_probability", help="How often the top choices are left out.")
    ] = None
    xtc_threshold: Annotated[
        float | None, _option(field="xtc_threshold", help="How likely a top choice is; the least likely one stays.")
    ] = None
    repeat_penalty: Annotated[
        float | None, _option(field="repeat_penalty", help="Above 1: recent tokens become less likely.")
    ] = None
    presence_penalty: Annotated[
        float | None, _option(field="presence_penalty", help="Taken once off the logits of recent tokens.")
    ] = None
    frequency_penalty: Annotated[
        float | None, _option(field="frequency_penalty", help="Taken off for each time they occurred.")
    ] = None
    repeat_last_n: Annotated[
        int | None, _option(field="repeat_last_n", help="How many tokens are recent; 0: none, -1: all.")
    ] = None
    dry_multiplier: Annotated[
        float | None, _option(field="dry_multiplier", help="Above 0: what would repeat a longer passage is unlikely.")
    ] = None
    dry_base: Annotated[
        float | None, _option(field="dry_base", help="The penalty grows by this with every token repeated.")
    ] = None
    dry_allowed_length: Annotated[
        int | None, _option(field="dry_allowed_length", help="Passages of so many tokens may be repeated.")
    ] = None
    dry_last_n: Annotated[
        int | None,
        _option("--dry-penalty-last-n", field="dry_last_n", help="How many tokens are looked at; -1: all."),
    ] = None
    dry_breakers: Annotated[
        list[str] | None,
        _option(
            "--dry-sequence-breaker",
            field="dry_breakers",
            help='Nothing across this text is a repetition; may be repeated; "none": there are none.',
            default=" ".join(text.replace("\n", "\\n") for text in DEFAULTS.dry_breakers),
            metavar="TEXT",
        ),
    ] = None
    mirostat: Annotated[
        int | None, _option(field="mirostat", help="1 or 2: keep the surprise of the text even, instead of the others.")
    ] = None
    mirostat_tau: Annotated[
        float | None, _option("--mirostat-ent", field="mirostat_tau", help="The surprise, bits a token.")
    ] = None
    mirostat_eta: Annotated[
        float | None, _option("--mirostat-lr", field="mirostat_eta", help="How fast it learns.")
    ] = None
    adaptive_target: Annotated[
        float | None, _option(field="adaptive_target", help="Draw tokens of about this probability; -1: off.")
    ] = None
    adaptive_decay: Annotated[float | None, _option(field="adaptive_decay", help="Of the average it keeps.")] = None
    samplers: Annotated[
        str | None,
        _option(
            "--samplers",
            field="samplers",
            help="Which are used, in this order: names with ; between, or letters "
            f"({', '.join(f'{letter} {name}' for name, letter in SAMPLERS.items())}).",
            default="all",
            metavar="NAMES",
        ),
    ] = None
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID=BIAS",
            help="Added to the logit of a token; -inf: it is never drawn. May be repeated.",
            rich_help_panel=PANEL,
        ),
    ] = None

    def params(self, metadata: Mapping[str, Any]) -> SamplingParams:
        """metadata: of a model, whose own defaults it may have. UsageError names the option that cannot be."""
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
