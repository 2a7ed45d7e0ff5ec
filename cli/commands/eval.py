"""`hybrid eval`: tasks of lm-evaluation-harness."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.replacing import check_target, failures_named, replace_file

from .. import console
from ..options import model_argument
from ..options.cluster_options import Cluster, cluster_address
from ..options.groups import takes_groups
from ..options.loading_options import (
    Checkpoints,
    Lora,
    Precision,
    ThreadOptions,
    context_option,
    load_options,
)

if TYPE_CHECKING:
    from hybrid.infer.loading.options import LoadOptions

    from ..harness.model import HarnessModel
    from ..options.cluster_options import ClusterAddress

GENERATING_BUDGET = "1GiB"  # for common prefixes of prompts


@dataclass(frozen=True, eq=False, repr=False)
class QuestionOptions:
    """How questions are put to the model, and what the results contain."""

    log_samples: Annotated[
        bool, typer.Option("--log-samples", help="Add every question and answer to the results.")
    ] = False
    apply_chat_template: Annotated[
        bool, typer.Option("--apply-chat-template", help="Write questions as messages in the model's chat template.")
    ] = False
    system_instruction: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="System message; without --apply-chat-template, text in front of each question."
        ),
    ] = None
    fewshot_as_multiturn: Annotated[
        bool,
        typer.Option(
            help="With --apply-chat-template: write the examples as turns of the chat, or all in one message."
        ),
    ] = True
    gen_kwargs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,...",
            help="Settings of generation that replace the task's, as in temperature=0,max_gen_toks=64.",
        ),
    ] = None
    predict_only: Annotated[
        bool, typer.Option("--predict-only", help="With --log-samples: generate the answers, compute no metrics.")
    ] = False
    seed: Annotated[
        str | None,
        typer.Option(
            metavar="N|N,N,N,N",
            help="Seeds: one number, or four for Python, numpy, torch and the choice of examples. Default: the "
            "harness's.",
        ),
    ] = None
    bootstrap_iters: Annotated[
        int | None,
        typer.Option(min=0, help="Bootstrap samples for standard errors that have no formula. Default: the harness's."),
    ] = None

    def protocol(self) -> dict[str, Any]:
        """The options as fields of the harness's protocol. BadParameter: a value out of range."""
        return {
            "log_samples": self.log_samples,
            "apply_chat_template": self.apply_chat_template,
            "fewshot_as_multiturn": self.fewshot_as_multiturn and self.apply_chat_template,
            "system_instruction": self.system_instruction,
            "gen_kwargs": parsed(self.gen_kwargs or []),
            "predict_only": self.predict_only,
            **({} if self.seed is None else {"seeds": seeds(self.seed)}),
            **({} if self.bootstrap_iters is None else {"bootstrap_iters": self.bootstrap_iters}),
        }


@takes_groups
def eval(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help=model_argument.DEFAULT)] = None,
    tasks: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="Tasks, groups or tags of the harness, or task files (.yaml).")
    ] = "",
    tasks_dir: Annotated[
        list[Path] | None,
        typer.Option("--tasks-dir", "--include-path", metavar="DIR", help="Folder of task files. May be repeated."),
    ] = None,
    num_fewshot: Annotated[
        int | None,
        typer.Option(min=0, help="Examples before each question (few-shot). Default: the task's.", show_default=False),
    ] = None,
    limit: Annotated[
        float | None, typer.Option(min=0, help="Maximum questions per task; below 1: this share of them.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output-path", help="File to write the results to, in the harness's JSON.")
    ] = None,
    *,
    asking: QuestionOptions,
    batch_size: Annotated[
        int | None, typer.Option("-b", "--batch-size", min=1, help="Texts read at a time. Default: chosen for speed.")
    ] = None,
    add_bos_token: Annotated[
        bool | None,
        typer.Option(help="Begin texts with the BOS token. Default: as the model file says.", show_default=False),
    ] = None,
    n_ctx: Annotated[int, context_option("Context in tokens; 0: as trained, at most 4096.")] = 0,
    precision: Precision,
    lora: Lora = None,
    machine: ThreadOptions,
    cluster: Cluster = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show the harness's log.")] = False,
) -> None:
    """Score a model on the tasks of lm-evaluation-harness.

    Needs an extra: pip install 'hybrid-lm[eval]'. Tasks in --tasks-dir need no network if their data are in that
    folder, also.
    """
    names = [name for name in tasks.split(",") if name]
    if not names:
        raise typer.BadParameter("Missing option '--tasks': which tasks to score, for example --tasks hellaswag")
    if find_spec("lm_eval") is None:
        raise UsageError("this needs lm-evaluation-harness. Use: pip install 'hybrid-lm[eval]'")
    if asking.predict_only and not (asking.log_samples and (output or as_json)):
        raise typer.BadParameter("--predict-only needs --log-samples, and -o or --json: where the answers go")
    workers = cluster_address(cluster)
    machine.pinning.check(cluster)
    if output is not None:
        check_target(output)
        if not output.parent.is_dir():
            raise UsageError(f"{shown(output.parent)} is not a folder. Make it first.")
    from ..harness.tasks import quiet

    with quiet(verbose):
        results = scored(
            model,
            names,
            tasks_dir or [],
            {"num_fewshot": num_fewshot, "limit": limit, **asking.protocol()},
            partial(load_options, machine, precision, lora=lora),
            n_ctx,
            batch_size,
            add_bos_token,
            workers,
        )
    from ..harness.evaluation import as_text

    if output is not None or as_json:
        text = as_text(results)
    if output is not None:
        with failures_named(output):
            replace_file(output, [text.encode("utf-8", "surrogatepass"), b"\n"])
    console.out(text if as_json else table(results))


def scored(
    path: Path | None,
    names: Sequence[str],
    folders: Sequence[Path],
    protocol: dict[str, Any],
    loading: "Callable[..., LoadOptions]",
    n_ctx: int,
    batch_size: int | None,
    add_bos: bool | None,
    workers: "ClusterAddress | None" = None,
) -> dict[str, Any]:
    """Loads the tasks and the model, and runs the harness."""
    from hybrid.infer.evaluate.continuations import TOGETHER, slots_for
    from hybrid.pipeline import models

    from ..reports.measured_model import opened

    status = console.StatusLine()
    status.show("loading the tasks")
    try:
        from ..harness import evaluation, tasks
        from ..harness.model import HarnessModel

        ready = tasks.loaded(tasks.found(names, folders), names)
    finally:
        status.clear()
    generates = "generate_until" in ready.kinds
    file = models.resolve(path, console.SCREEN)
    kept = Checkpoints(GENERATING_BUDGET if generates else "0")
    options = loading(checkpoints=kept, n_ctx=n_ctx or usual_context(file))
    asked = evaluation.Protocol(**protocol)
    with (
        opened(file, workers, options, n_seq_max=slots_for(batch_size or TOGETHER)) as model,
        console.ProgressBar("", "requests") as bar,
    ):
        lm = HarnessModel(model, add_bos=add_bos, progress=bar, seed=asked.seeds[0])
        results = evaluation.evaluate(lm, ready, asked)
    notes(lm)
    return results


def usual_context(file: Path) -> int:
    """The context length that the model was trained with, at most 4096; 0 if the file does not name it."""
    from hybrid.infer.evaluate.loglikelihood import USUAL_CONTEXT
    from hybrid.quant.ggml.split import open_gguf

    gguf = open_gguf(file)
    try:
        trained = gguf.get(f"{gguf.get('general.architecture', '')}.context_length", 0)
    finally:
        gguf.close()
    return min(trained, USUAL_CONTEXT) if isinstance(trained, int) and trained > 0 else 0


def parsed(texts: Sequence[str]) -> dict[str, Any]:
    """--gen-kwargs: `temperature=0.5,top_k=20`. Values are Python literals (`until=["\\n\\n",";"]`) or plain text."""
    values: dict[str, Any] = {}
    for text in texts:
        for part in _apart(text):
            name, equals, value = part.partition("=")
            if not equals or not name.strip():
                raise typer.BadParameter(f"--gen-kwargs: expected KEY=VALUE, not {shown(part, 60)!r}")
            try:
                values[name.strip()] = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                known = {"true": True, "false": False, "none": None}
                values[name.strip()] = known.get(value.strip().lower(), value.strip())
    return values


def _apart(text: str) -> list[str]:
    """Splits at commas that are not inside brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for c in text:
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        else:
            depth += (c in "[({") - (c in "])}")
        if c == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def seeds(text: str) -> tuple[int, int, int]:
    """--seed: seeds for Python, numpy, torch and the choice of examples, or one for all. torch's is ignored."""
    parts = text.split(",")
    if len(parts) not in (1, 3, 4) or not all(part.strip().isdecimal() and len(part) < 11 for part in parts):
        raise typer.BadParameter("--seed: expected a whole number, or four: of Python, numpy, torch, examples")
    numbers = [int(part) for part in parts] * (4 if len(parts) == 1 else 1)
    return numbers[0], numbers[1], (*numbers, 1234)[3]


def notes(lm: "HarnessModel") -> None:
    """Prints notes for readers of the figures."""
    if lm.n_truncated:
        console.note(
            f"{lm.n_truncated} prompts did not fit the context of {lm.model.n_ctx} and lost their beginning. "
            "Use a larger context (-c)."
        )
    if lm.n_without_system:
        console.note(f"{lm.n_without_system} prompts are without their system message: the chat template refuses it")
    if lm.n_tokens:
        console.note(f"{lm.n_processed} of {lm.n_tokens} tokens processed, the rest is shared")


def table(results: dict[str, Any]) -> str:
    """The harness's table: one line per metric."""
    from ..harness.evaluation import lines

    rows = [
        (
            line.name,
            line.version,
            line.filter,
            line.n_shot,
            line.metric,
            f"{line.value:.4f}" if isinstance(line.value, float) else line.value,
            "" if line.stderr is None else f"{line.stderr:.4f}",
        )
        for line in lines(results)
    ]
    return console.table(("task", "version", "filter", "n-shot", "metric", "value", "stderr"), rows, "lllrlrr")
