"""`hybrid demo`: a tour of the commands, on the small trained model in the package."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from hybrid import cache_paths
from hybrid.pipeline import models

from .. import console
from ..options.answer_options import AnswerOptions
from ..options.loading_options import Threads
from ..options.sampling_options import Sampling

PROMPT = "A file that comes from somewhere else should"
N_CTX = 256
QUANTIZED = ("Q8_0", "Q4_0")


def demo(
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Folder for the files. Default: the cache folder."),
    ] = None,
    threads: Threads = 0,
) -> None:
    """Convert, quantize, measure and run the bundled model.

    Every step prints the command that does the same on your own model. Takes well under a minute.
    """
    from hybrid.convert import convert as convert_library
    from hybrid.infer.loading.options import LoadOptions
    from hybrid.quant import quantize as quantize_library

    from ..run.one_text import OneText
    from ..run.text import complete
    from . import perplexity, quantize

    folder = output or cache_paths.cache_dir() / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint, prose = models.bundled_checkpoint(), models.bundled_prose()
    original = folder / "jamba-11m-bf16.gguf"

    heading(
        "1. A Hugging Face checkpoint becomes one GGUF file", f"hybrid convert {near(checkpoint)} -o {near(original)}"
    )
    with console.ProgressBar("converting", "bytes") as progress:
        report = convert_library(checkpoint, original, progress=progress)
    console.out(str(report))

    files = [original]
    for name in QUANTIZED:
        target = folder / f"jamba-11m-{name.lower()}.gguf"
        title = "2. Fewer bits per weight" if name == QUANTIZED[0] else ""
        heading(title, f"hybrid quantize {near(original)} {near(target)} {name}")
        with console.ProgressBar("quantizing", "bytes") as progress:
            done = quantize_library(original, target, name, n_threads=threads, progress=progress)
        console.out(quantize.summary(done))
        files.append(target)

    for file in files:
        title = "3. How well does it predict a text? (lower is better)" if file is original else ""
        heading(title, f"hybrid perplexity {near(file)} -f {near(prose)} -c {N_CTX}")
        perplexity.measure(file, prose, LoadOptions(n_threads=threads), n_ctx=N_CTX)

    chosen = files[1]
    heading("4. Text", f'hybrid run {near(chosen)} --raw -p "{PROMPT}" -n 80 --seed 2')
    with models.load(chosen, reporter=console.SCREEN, n_threads=threads) as model:
        console.out(console.bold(PROMPT), end="")
        answers = AnswerOptions(Sampling(seed=2), n_predict=80)
        complete(model, OneText(PROMPT, answers))

    console.out("\nThe model has 11 million weights: it has learned how documentation sounds, not facts.")
    console.out(f"Chat with it:       {program()} run")
    console.out(f"Your own model:     {program()} run path/to/model   (a .gguf file or a Hugging Face folder)")


def heading(title: str, command: str) -> None:
    """Prints the title of a step and the command that does the same."""
    if title:
        console.out("\n" + console.bold(title))
    console.out(console.dim(f"$ {command}"))


def program() -> str:
    """The command that starts `hybrid` here: after `make demo` it is in a folder that is not in PATH."""
    here = Path(sys.argv[0]).absolute()
    return near(here) if here.name == "hybrid" and shutil.which("hybrid") is None else "hybrid"


def near(path: Path) -> str:
    """`path` relative to the current folder, or to the home folder as ~/..., or absolute."""
    for folder, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(folder):
            return prefix + str(path.relative_to(folder))
    return str(path)
