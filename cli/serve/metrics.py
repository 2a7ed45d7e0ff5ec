"""GET /metrics: text for Prometheus. Metrics of llama-server's meaning have its names, ours begin with `hybrid:`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from hybrid.infer.answers.batch.reuse import CODES
from hybrid.infer.faults import SidePath
from hybrid.quant.ggml.machine_memory import resident_bytes

from .endpoint import get
from .models.router import ModelRouter
from .served import Served


@dataclass(frozen=True)
class Metric:
    """A metric: one value, or values by the label `reason`."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    value: float | Mapping[str, float]

    def head(self) -> Iterator[str]:
        """The lines before the values, in Prometheus's text format."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"

    def lines(self, model: str | None) -> Iterator[str]:
        """A line for each value. model: a label, if the server has several models."""
        values = self.value if isinstance(self.value, Mapping) else {None: self.value}
        for reason, value in values.items():
            labels = {"model": model, "reason": reason}
            written = ",".join(f'{name}="{_escaped(label)}"' for name, label in labels.items() if label is not None)
            yield f"{self.name}{f'{{{written}}}' if written else ''} {value:.15g}"


def _escaped(label: str) -> str:
    """A label's value, as Prometheus reads it."""
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _rate(n: float, seconds: float) -> float:
    return n / seconds if seconds else 0.0


def _shared(served: Served) -> list[Metric]:
    """Metrics that llama-server has with the same meaning."""
    service, model = served.answers, served.answers.model
    figures, n_jobs, n_parallel = service.batcher.figures, service.n_jobs, service.batcher.n_parallel
    pool = model.memory.attention.pool
    counters = [
        ("prompt_tokens_total", "Tokens of prompts processed, without reused ones.", figures.n_prompt),
        ("prompt_tokens_cached_total", "Tokens of prompts reused.", figures.n_reused),
        ("prompt_seconds_total", "Seconds spent on prompts.", figures.prompt_seconds),
        ("tokens_predicted_total", "Tokens sampled.", figures.n_drawn),
        ("tokens_predicted_seconds_total", "Seconds spent on sampling.", figures.draw_seconds),
        ("n_decode_total", "Passes through the model.", figures.n_passes),
        ("n_tokens_max", "Tokens of the longest sequence so far.", figures.longest),
        ("spec_decode_num_draft_tokens_total", "Tokens guessed and verified.", figures.n_guessed),
        ("spec_decode_num_drafts_total", "Runs of tokens guessed and verified.", figures.n_guesses),
        ("spec_decode_num_accepted_tokens_total", "Guessed tokens that were right.", figures.n_accepted),
    ]
    read_rate = _rate(figures.n_prompt, figures.prompt_seconds)
    drawn_rate = _rate(figures.n_drawn, figures.draw_seconds)
    gauges = [
        ("prompt_tokens_seconds", "Tokens of prompts per second, on average.", read_rate),
        ("predicted_tokens_seconds", "Tokens sampled per second, on average.", drawn_rate),
        ("requests_processing", "Answers in progress, reading prompts included.", min(n_jobs, n_parallel)),
        ("requests_deferred", "Answers that wait.", max(0, n_jobs - n_parallel)),
        ("n_busy_slots_per_decode", "Sequences in a pass, on average.", _rate(figures.n_busy, figures.n_passes)),
        ("kv_cache_usage_ratio", "Share of the pages of keys and values in use.", _rate(pool.used, pool.size)),
    ]
    return [
        *(Metric(f"llamacpp:{name}", "counter", text, value) for name, text, value in counters),
        *(Metric(f"llamacpp:{name}", "gauge", text, value) for name, text, value in gauges),
    ]


async def metrics(router: ModelRouter, _: Request) -> Response:
    """Counters and gauges of all loaded models; with several models each value has the label `model`."""
    loaded = [entry.served for entry in router.entries if entry.served is not None]
    found = [(None if router.only else served.name, metric) for served in loaded for metric in await _of_model(served)]
    if not router.only:
        found += [(None, metric) for metric in _of_router(router)]
    lines: dict[str, list[str]] = {}
    for model, metric in found:
        lines.setdefault(metric.name, list(metric.head())).extend(metric.lines(model))
    headers = {"Process-Start-Time-Unix": str(int(router.started))}  # as llama-server
    text = "\n".join(line for group in lines.values() for line in group) + "\n"
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4", headers=headers)


def _of_router(router: ModelRouter) -> list[Metric]:
    n_loaded = sum(entry.served is not None for entry in router.entries)
    return [
        Metric("hybrid:models", "gauge", "Models that the server knows.", len(router.entries)),
        Metric("hybrid:models_loaded", "gauge", "Models that are loaded.", n_loaded),
        Metric("hybrid:resident_bytes", "gauge", "Bytes of memory of this process.", resident_bytes() or 0),
    ]


async def _of_model(served: Served) -> list[Metric]:
    if served.is_encoder:
        return [*_of_encoder(served), *_of_embeddings(served)]
    service, cache = served.answers, served.answers.model.cache
    held, figures = await served.held.now(service), service.batcher.figures
    processed: dict[str, float] = {code: float(figures.processed[code]) for code in CODES if code != "whole"}
    ours = [
        Metric("hybrid:prompt_tokens_reused_total", "counter", "Tokens of prompts reused.", figures.n_reused),
        Metric(
            "hybrid:prompt_tokens_processed_total",
            "counter",
            "Tokens of prompts processed, by why they were not reused; counted when an answer ends.",
            processed,
        ),
        Metric("hybrid:steps_total", "counter", "Steps of the batch.", service.batcher.n_steps),
        *_of_pictures(served),
        Metric("hybrid:step_faults_total", "counter", "Steps that a fault has ended.", service.batcher.n_faults),
        Metric(
            "hybrid:side_faults_total", "counter", "Faults in work beside the answers, by kind of work.", _side_faults()
        ),
        Metric("hybrid:checkpoint_bytes", "gauge", "Bytes of states and logits kept.", held.checkpoint_bytes),
        Metric("hybrid:key_bytes", "gauge", "Bytes of keys and values kept.", held.key_bytes),
        Metric("hybrid:ledger_bytes", "gauge", "Bytes of answers that are known.", served.maker.ledger.nbytes),
        Metric("hybrid:pinned_bytes", "gauge", "Bytes of texts that requests keep.", held.pinned_bytes),
        Metric("hybrid:budget_bytes", "gauge", "Bytes that may be kept.", cache.budget if cache is not None else 0),
        Metric("hybrid:checkpoints", "gauge", "Checkpoints kept.", held.n_checkpoints),
        Metric("hybrid:known_tokens", "gauge", "Tokens of the texts kept.", held.n_tokens),
    ]
    return [*_shared(served), *ours, *_of_embeddings(served)]


def _of_pictures(served: Served) -> list[Metric]:
    eyes = served.maker.sight.eyes
    if eyes is None:
        return []
    return [
        Metric("hybrid:pictures_total", "counter", "Pictures that the vision tower has read.", eyes.n_encoded),
        Metric("hybrid:picture_bytes", "gauge", "Bytes of features of pictures kept.", eyes.nbytes),
    ]


def _side_faults() -> dict[str, float]:
    """Counts of faults by name, without spaces, which some readers of metrics cannot parse."""
    return {name.replace(" ", "_"): float(path.n_faults) for name, path in sorted(SidePath.all.items())}


def _of_encoder(served: Served) -> list[Metric]:
    """llama-server's metrics for an encoder: its texts count as prompts, and no token is sampled."""
    embedding = served.embedding
    n_tokens, n_passes = (0, 0) if embedding is None else (embedding.n_tokens, embedding.n_passes)
    return [
        Metric("llamacpp:prompt_tokens_total", "counter", "Tokens of texts processed.", n_tokens),
        Metric("llamacpp:n_decode_total", "counter", "Passes through the model.", n_passes),
        Metric("llamacpp:tokens_predicted_total", "counter", "Tokens sampled.", 0),
    ]


def _of_embeddings(served: Served) -> list[Metric]:
    n_tokens = served.embedding.n_tokens if served.embedding is not None else 0
    return [
        Metric("hybrid:embedding_tokens_total", "counter", "Tokens of texts that embeddings were made of.", n_tokens)
    ]


ENDPOINTS = [get("/metrics", handler=metrics, of_server=True, media="text/plain")]
