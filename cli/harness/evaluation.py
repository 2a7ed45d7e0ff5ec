"""An evaluation by lm-evaluation-harness: its protocol, its results."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hybrid.quant.ggml.errors import UsageError

from .. import console
from .model import HarnessModel
from .tasks import Loaded, reason

SEEDS = (0, 1234, 1234)  # for Python, numpy and the choice of examples: the harness's defaults
BOOTSTRAPS = 100_000  # bootstrap samples for standard errors without a formula


@dataclass(frozen=True)
class Protocol:
    """Settings of the harness, under its names."""

    num_fewshot: int | None = None
    limit: float | None = None
    log_samples: bool = False
    apply_chat_template: bool = False
    fewshot_as_multiturn: bool = True
    system_instruction: str | None = None
    gen_kwargs: Mapping[str, Any] = field(default_factory=dict)
    predict_only: bool = False
    seeds: Sequence[int] = SEEDS
    bootstrap_iters: int = BOOTSTRAPS


def evaluate(lm: HarnessModel, tasks: Loaded, protocol: Protocol) -> dict[str, Any]:
    """The harness's results. UsageError: a task cannot be used, and why. HybridError: from the model."""
    from lm_eval import evaluator

    start = time.time()
    before, evaluator.get_git_commit_hash = (
        evaluator.get_git_commit_hash,
        lambda: None,
    )  # it would be the commit of the current folder
    random, numpy, fewshot = protocol.seeds
    try:
        results = evaluator.simple_evaluate(
            model=lm,
            tasks=tasks.items,
            task_manager=tasks.manager,
            num_fewshot=protocol.num_fewshot,
            limit=protocol.limit,
            log_samples=protocol.log_samples,
            apply_chat_template=protocol.apply_chat_template,
            fewshot_as_multiturn=protocol.fewshot_as_multiturn,
            system_instruction=protocol.system_instruction,
            gen_kwargs=dict(protocol.gen_kwargs) or None,
            predict_only=protocol.predict_only,
            random_seed=random,
            numpy_random_seed=numpy,
            torch_random_seed=None,
            fewshot_random_seed=fewshot,
            bootstrap_iters=protocol.bootstrap_iters,
        )
    except Exception as error:
        if _is_ours(error):
            raise
        raise UsageError(f"the tasks cannot be evaluated: {reason(error)}") from error
    finally:
        evaluator.get_git_commit_hash = before
    assert results is not None
    model = lm.model
    results["config"] |= {"model": "hybrid", "model_args": {"path": str(model.path)}}
    return {
        **results,
        "model_source": "hybrid",
        "model_name": model.name,
        "system_instruction": protocol.system_instruction,
        "chat_template": lm.chat_template(protocol.apply_chat_template),
        "fewshot_as_multiturn": protocol.fewshot_as_multiturn,
        "total_evaluation_time_seconds": time.time() - start,
    }


def _is_ours(error: BaseException) -> bool:
    """Whether an error comes from our code, called by the harness."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        if name.startswith("hybrid."):
            return True
    return False


def as_text(results: Mapping[str, Any]) -> str:
    """The results as JSON in the harness's format; NaN (the error of one sample) becomes null."""
    return console.indented(results)


@dataclass(frozen=True)
class MetricRow:
    """A row of the results: one metric of a task or a group. stderr: the standard error, or None."""

    name: str
    version: str
    filter: str
    n_shot: str
    metric: str
    value: float | str
    stderr: float | None


def lines(results: Mapping[str, Any]) -> Iterator[MetricRow]:
    """All metrics, of tasks first, then of groups."""
    for column in ("results", "groups"):
        for name, values in results.get(column, {}).items():
            if column == "results" and name in results.get("groups", {}):
                continue
            version = str(results.get("versions", {}).get(name, ""))
            n_shot = str(results.get("n-shot", {}).get(name, ""))
            for key in sorted(values):
                metric, comma, chosen = key.partition(",")
                if not comma or metric.endswith("_stderr"):
                    continue
                stderr = values.get(f"{metric}_stderr,{chosen}")
                alias = str(values.get("alias", name)).strip()
                known = stderr if isinstance(stderr, float) else None
                yield MetricRow(alias, version, chosen, n_shot, metric, values[key], known)
