"""`hybrid bench`: speed of a model on this machine."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from hybrid.infer.bench.benchmark import GUESS_DEPTH, BenchOptions, BenchReport
from hybrid.infer.loading.options import LoadOptions, checked_kv_type
from hybrid.quant.ggml.errors import UsageError

from .. import console
from ..options import model_argument
from ..options.groups import takes_groups
from ..options.guess_options import GUESSES, GuessOptions, Spec
from ..options.loading_options import Exact, Lora, Pinning, Precision, ThreadOptions, load_options
from ..options.model_loading import loader
from ..options.stage_options import WorkerOptions

DEFAULTS = BenchOptions()
Report = TypeVar("Report")


class Output(StrEnum):
    """Values of `-o`."""

    MD = "md"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


def listed(values: object) -> str:
    """A default, written as on the command line."""
    return ",".join(str(v) for v in values) if isinstance(values, tuple) else str(values)


@dataclass(frozen=True, eq=False, repr=False)
class SweptSettings:
    """Lists of settings; every combination is a test."""

    prompts: Annotated[
        str,
        typer.Option(
            "-p", "--n-prompt", metavar="LIST", help="Prompt lengths in tokens: 128,512 or 64-512*2 or 100-400+100."
        ),
    ] = listed(DEFAULTS.prompts)
    gens: Annotated[
        str, typer.Option("-n", "--n-gen", metavar="LIST", help="Tokens to generate: a number or a list, as for -p.")
    ] = listed(DEFAULTS.gens)
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "-pg", metavar="P,N", help="Time a prompt of P tokens and N generated tokens as one test. May be repeated."
        ),
    ] = None
    depths: Annotated[
        str,
        typer.Option(
            "-d",
            "--n-depth",
            metavar="LIST",
            help="Tokens in the context before the test starts, not timed. With --spec or --draft they come from a "
            f"text; the default is then {GUESS_DEPTH}.",
        ),
    ] = listed(DEFAULTS.depths)
    parallel: Annotated[
        str,
        typer.Option(
            "-np", "--parallel", metavar="LIST", help="Sequences that generate at the same time; the rate is their sum."
        ),
    ] = listed(DEFAULTS.parallel)
    ubatches: Annotated[
        str, typer.Option("-b", "-ub", "--ubatch", metavar="LIST", help="Tokens computed in one pass (ubatch).")
    ] = listed(DEFAULTS.ubatches)
    threads: Annotated[str, typer.Option("-t", "--threads", metavar="LIST", help="Worker threads; 0: all cores.")] = (
        listed(DEFAULTS.threads)
    )

    def read(self, depths: str, *, guesses: bool) -> BenchOptions:
        """The settings as BenchOptions. guesses: only generation is timed, with and without guesses. UsageError names a
        malformed list or a number out of range."""
        from hybrid.infer.bench.params import parse_ints, parse_pair

        return BenchOptions(
            prompts=parse_ints(self.prompts, "-p"),
            gens=parse_ints(self.gens, "-n", minimum=int(guesses)),
            pairs=[parse_pair(pair, "-pg") for pair in self.pairs or []],
            depths=parse_ints(depths, "-d", minimum=int(guesses)),
            parallel=parse_ints(self.parallel, "-np", minimum=1),
            threads=parse_ints(self.threads, "-t"),
            ubatches=parse_ints(self.ubatches, "-b", minimum=1),
        )


@dataclass(frozen=True, eq=False, repr=False)
class GuessingOnText(GuessOptions):
    """The methods and models that guess tokens, and the text that is continued. By default nothing guesses."""

    spec: Annotated[Spec, typer.Option(help=GUESSES)] = Spec.NONE
    text_file: Annotated[
        Path | None,
        typer.Option(
            "-f",
            "--file",
            metavar="FILE",
            help="With --spec or --draft: the text that is continued, at another position in each repetition; - "
            "reads stdin. Default: a text that comes with the program.",
            show_default=False,
        ),
    ] = None


@takes_groups
def bench(
    ctx: typer.Context,
    models: Annotated[list[Path] | None, typer.Argument(metavar="MODEL...", help=model_argument.DEFAULT)] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="Write a model of this size with random weights and measure it. May be repeated."),
    ] = None,
    file_type: Annotated[
        str,
        typer.Option("--type", metavar="TYPE", help="Weight types or mixes of the --shape files: Q8_0,Q4_K_M."),
    ] = "Q8_0",
    *,
    lists: SweptSettings,
    pinning: Pinning,
    kv_types: Annotated[
        str | None,
        typer.Option("--kv-type", metavar="LIST", help="Types of the KV cache, as in f16,q8_0,q8_0/q4_0."),
    ] = None,
    lora: Lora = None,
    guessing: GuessingOnText,
    workers: WorkerOptions,
    repetitions: Annotated[
        int, typer.Option("-r", "--repetitions", help="Timed runs of each test.")
    ] = DEFAULTS.repetitions,
    output: Annotated[Output, typer.Option("-o", "--output", help="Format of the results.")] = Output.MD,
    exact: Exact = False,
    no_warmup: Annotated[bool, typer.Option("--no-warmup", help="Skip the untimed run before each test.")] = False,
    no_state: Annotated[bool, typer.Option("--no-state", help="Do not time saving and restoring a sequence.")] = False,
    no_start: Annotated[
        bool,
        typer.Option(
            "--no-start",
            help="Measure rates only; leave out the table of start costs (load, compilation, memory, state files).",
        ),
    ] = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Print the time of each operation, with GB/s, GFLOP/s and the machine's limits."
        ),
    ] = False,
    list_shapes: Annotated[
        bool, typer.Option("--list-shapes", help="List the sizes that --shape accepts, and exit.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, as -o json does; works with --profile and --list-shapes also.")
    ] = False,
) -> None:
    """Measure prompt processing and generation speed.

    Tests and tables are llama-bench's: pp512 reads a prompt of 512 tokens, tg128 generates 128 tokens. A second table
    shows the costs of a start: loading, compilation (never part of a rate), time to the first token, memory, state
    files.

    With --spec or --draft, generation after -d tokens of a text is timed with and without guesses, in turn. The table
    shows medians, the speed-up, and the share of guessed tokens that were accepted. An answer that differs is an
    error.
    """
    from ..reports import guesses

    guesses.check_given(ctx, guessing.given)
    if list_shapes:
        show_shapes(as_json)
        return
    if as_json and output not in (Output.MD, Output.JSON):
        raise UsageError(f"--json and -o {output} contradict each other. Give one of them.")
    loading = load_options(ThreadOptions(pinning=pinning), Precision(exact), lora=lora)
    depths = str(GUESS_DEPTH) if guessing.given and not guesses.is_given(ctx, "depths") else lists.depths
    options = replace(
        lists.read(depths, guesses=guessing.given),
        kv_types=[checked_kv_type(name, "--kv-type ") for name in kv_types.split(",")] if kv_types else [],
        repetitions=repetitions,
        warmup=not no_warmup,
        precision=loading.precision,
        state=not (no_state or no_start),
        start=not no_start,
    )
    workers.check(pinning)
    if workers.stages is not None and profile:
        raise UsageError("--profile looks into the passes of one process. Leave out --stages.")
    options.tests()  # raises before a large file is written
    for n in options.threads:
        replace(loading, n_threads=n)  # also
    paths = files(models or [], shape or [], file_type)
    if profile:
        show_profiles(paths, options, loading, as_json)
        return
    from hybrid.infer.bench import tables

    form = Output.JSON if as_json else output
    if guessing.given:
        guessed = guesses.measure(paths, options, loading, guessing, guessing.text_file, workers)
        show(guessed, form, tables.guess_records, tables.guess_csv, tables.guess_markdown)
    else:
        report = measure(paths, options, loading, workers)
        show(report, form, tables.records, tables.as_csv, tables.markdown)


def show_shapes(as_json: bool) -> None:
    """Prints the sizes that --shape accepts."""
    from hybrid.pipeline.config_shapes import ALL_SHAPES

    if as_json:
        console.out_json(
            [{"name": s.name, "architecture": s.arch, "n_params": s.n_params} for s in ALL_SHAPES.values()]
        )
        return
    rows = [(s.name, s.arch, console.count(s.n_params)) for s in ALL_SHAPES.values()]
    console.out(console.table(("shape", "architecture", "weights"), rows, "llr"))


def show(
    report: Report,
    form: Output,
    records: Callable[[Report], list[dict[str, Any]]],
    csv: Callable[[Report], str],
    markdown: Callable[[Report], str],
) -> None:
    """Prints the results in the format of -o."""
    if form is Output.JSON:
        console.out_json(records(report))
    elif form is Output.JSONL:
        for record in records(report):
            console.out(console.as_json(record))
    else:
        console.out((csv if form is Output.CSV else markdown)(report), end="")


def files(models: list[Path], shapes: list[str], file_type: str) -> list[Path]:
    """Paths of the models and shapes to measure, in the given order; without any, the bundled model's path."""
    from hybrid.pipeline.models import resolve

    paths = [resolve(model, console.SCREEN) for model in models]
    paths += [shaped(shape, kind) for shape in shapes for kind in file_type.split(",")]
    return paths or [resolve(None, console.SCREEN)]


def shaped(name: str, kind: str) -> Path:
    """Path of a file with random weights of this size and type; written into the cache folder if it is not there."""
    from hybrid.cache_paths import cache_dir
    from hybrid.infer.bench.shapes import find_type, write_shape
    from hybrid.pipeline.config_shapes import find

    target = find_type(kind)
    shape = find(name)
    path = cache_dir() / "shapes" / f"{shape.name}-{target.name}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        console.note(f"writing {path}, which stays there for the next time")
        with console.ProgressBar("writing", "bytes") as progress:
            write_shape(shape, path, target, progress=progress.step)
    return path


def measure(
    paths: list[Path],
    options: BenchOptions,
    loading: LoadOptions,
    workers: WorkerOptions,
) -> BenchReport:
    """Measures all files, one after the other, into one report."""
    from hybrid.infer.bench.benchmark import benchmark

    reports = []
    for path in paths:
        with loader(path, loading, workers) as load, console.ProgressBar(path.name, "runs") as progress:
            reports.append(benchmark(load, options, progress=progress))
    return BenchReport(
        tuple(row for r in reports for row in r.rows), tuple(start for r in reports for start in r.starts)
    )


def show_profiles(paths: list[Path], options: BenchOptions, loading: LoadOptions, as_json: bool) -> None:
    """Prints the time of each operation."""
    profiles = [found for path in paths for found in profiled(path, options, loading, as_json)]
    if as_json:
        console.out_json(profiles)


def profiled(path: Path, options: BenchOptions, loading: LoadOptions, as_json: bool) -> list[dict[str, object]]:
    """The operations of every test, for JSON; without as_json, prints a table for each and returns []."""
    from hybrid.infer import Model
    from hybrid.infer.bench import tables
    from hybrid.infer.bench.machine import measure_machine
    from hybrid.infer.bench.profile import profile as library
    from hybrid.pipeline.models import note_numa

    from ..version import version_text

    tests = options.tests()
    n_ctx = max(test.n_ctx for test in tests)
    if len(options.threads) > 1 or len(options.ubatches) > 1 or len(options.kv_types) > 1:
        raise UsageError("--profile takes one number of threads, one ubatch and one --kv-type. Give one of each.")
    with Model.load(
        path,
        loading,
        n_ctx=n_ctx,
        n_seq_max=max(test.n_parallel for test in tests),
        n_ubatch=options.ubatches[0],
        n_threads=options.threads[0],
        kv_type=options.kv_types[0] if options.kv_types else None,
    ) as model:
        note_numa(model, console.SCREEN)
        machine = measure_machine(model.n_threads)
        if as_json:
            found = [library(model, test, machine) for test in tests]
            return [{"model_filename": str(path), "name": p.test.name, **console.plain(p)} for p in found]
        console.out(version_text())
        console.out(
            f"{path.name}: loaded in {console.duration(model.load_seconds)}, kernels ready in "
            f"{console.duration(model.compile_seconds)} ({model.n_compiled} compiled)\n"
        )
        for test in tests:
            console.out(tables.profile_markdown(library(model, test, machine)))
    return []
