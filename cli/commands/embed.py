"""`hybrid embed`: one vector per line of a text file."""

import io
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.pipeline import models
from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.replacing import failures_named, replace_file

from .. import console
from ..options import model_argument, text_options
from ..options.groups import takes_groups
from ..options.loading_options import (
    PoolingName,
    Precision,
    ThreadOptions,
    context_option,
    load_options,
)

if TYPE_CHECKING:
    import numpy as np

    from hybrid.infer.evaluate.embed import Embedder


@takes_groups
def embed(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help=model_argument.DEFAULT)] = None,
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", help="File of texts, one per line, in UTF-8; - reads stdin.", show_default=False),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("-p", "--prompt", metavar="TEXT", help="Texts, one per line, instead of a file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write a JSON object.")] = False,
    as_npy: Annotated[bool, typer.Option("--npy", help="Write a NumPy array, f32 [lines, values].")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write. Default: stdout.", show_default=False)
    ] = None,
    pooling: Annotated[
        PoolingName | None,
        typer.Option(
            "--pooling",
            help="Which vector represents a text: its first token's (cls), the mean of all, its last token's. "
            "Default: as the file says, else mean for encoders and last for other models.",
            show_default=False,
        ),
    ] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize/--no-normalize", help="Scale every vector to length 1.")
    ] = True,
    truncate: Annotated[
        bool,
        typer.Option(
            "--truncate", help="Cut lines that are longer than the context, instead of stopping with an error."
        ),
    ] = False,
    dimensions: Annotated[
        int | None,
        typer.Option(
            "--dimensions",
            min=1,
            metavar="N",
            help="Cut vectors to their first N values (Matryoshka), then scale them.",
        ),
    ] = None,
    prompt_name: Annotated[
        str | None,
        typer.Option(
            "--prompt-name",
            metavar="NAME",
            help="Prompt of the model to put before every line, as query or document; empty: none. Default: as the "
            "file says.",
        ),
    ] = None,
    n_ctx: Annotated[
        int, context_option("Maximum tokens of a line; 0: the length that the model was trained with.")
    ] = 0,
    *,
    precision: Precision,
    machine: ThreadOptions,
) -> None:
    """Make embeddings of texts, one vector per line.

    MODEL is an encoder (BERT: bge, MiniLM, E5...) or any model that generates text. Lines are computed together; a
    vector does not depend on the other lines, not in one bit. An empty line is a text, also. Vectors are written as
    text, one line of numbers per text, unless --json or --npy is given.
    """
    if file is None and prompt is None:
        raise typer.BadParameter("Missing option '-f' (a file of texts, one per line) or '-p' (a text)")
    if file is not None and prompt is not None:
        raise typer.BadParameter("-f and -p: give one of them")
    if as_json and as_npy:
        raise typer.BadParameter("--json and --npy: give one of them")
    if as_npy and output is None and sys.stdout.isatty():
        raise typer.BadParameter("--npy writes bytes: name a file with -o, or send them to a program")
    if output is not None and output.is_dir():
        raise UsageError(f"{shown(output)} is a folder. Name a file.")
    text = text_options.checked(prompt or "", "-p") if file is None else text_options.read_text(file)
    lines = lines_of(text) or [""]
    path = models.resolve(model, console.SCREEN)
    from hybrid.infer.evaluate.embed import Embedder, Pooling
    from hybrid.infer.evaluate.embed_prompts import check_dimensions

    start = time.perf_counter()
    with (
        models.compiling(console.SCREEN) as compiling,
        Embedder(
            path,
            load_options(machine, precision, n_ctx=n_ctx),
            pooling=Pooling(pooling.value) if pooling else None,
            progress=compiling,
        ) as embedder,
    ):
        console.SCREEN.notes(embedder.file_notes)
        check_dimensions(dimensions, embedder.n_embd)
        if note := embedder.prompts.note_on_length(dimensions, embedder.n_embd):
            console.note(f"--dimensions: {note}")
        ids = embedder.tokens(lines, truncate=truncate, prompt_name=prompt_name)
        with console.ProgressBar("embedding", "tokens") as progress:
            vectors = embedder.embed_ids(ids, normalize=normalize, dimensions=dimensions, progress=progress.step)
        result = rendered(embedder, ids, vectors, as_json, as_npy, normalize)
        kind = embedder.pooling.value
        models.note_numa(embedder, console.SCREEN)
    write(result, output)  # last, so that an interrupt before this leaves an existing file unchanged
    n, seconds = sum(map(len, ids)), time.perf_counter() - start
    console.note(
        f"{len(lines)} texts, {n} tokens: vectors of {vectors.shape[1]} values, {kind} pooling"
        f"{'' if normalize else ', not normalized'}, {console.duration(seconds)}"
    )


def lines_of(text: str) -> list[str]:
    """The lines of `text`; a line feed at the end does not begin another line."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def rendered(
    embedder: "Embedder", ids: list[list[int]], vectors: "np.ndarray", as_json: bool, as_npy: bool, normalized: bool
) -> bytes:
    """The vectors as bytes: text, JSON or .npy."""
    import json

    import numpy as np

    if as_npy:
        buffer = io.BytesIO()
        np.save(buffer, vectors)
        return buffer.getvalue()
    if not as_json:
        # str(): the shortest text that reads back as the same f32
        return "".join(" ".join(str(value) for value in vector) + "\n" for vector in vectors).encode()
    items = [
        {"index": i, "n_tokens": len(text), "embedding": [float(str(value)) for value in vector]}
        for i, (text, vector) in enumerate(zip(ids, vectors, strict=True))
    ]
    head = {
        "model": str(embedder.gguf.get("general.name", "") or embedder.path.stem),
        "pooling": embedder.pooling.value,
        "normalized": normalized,
        "n_embd": int(vectors.shape[1]),
    }
    return (json.dumps({**head, "data": items}, ensure_ascii=False) + "\n").encode()


def write(data: bytes, output: Path | None) -> None:
    """Writes to stdout, or to a file that appears when it is complete."""
    if output is None:
        sys.stdout.flush()
        stream = getattr(sys.stdout, "buffer", None)
        if stream is None:
            sys.stdout.write(data.decode())
        else:
            stream.write(data)
        sys.stdout.flush()
        return
    with failures_named(output):
        if output.exists() and not output.is_file() and not output.is_dir():
            output.write_bytes(data)  # /dev/null or a pipe cannot be replaced
        else:
            replace_file(output, [data])
