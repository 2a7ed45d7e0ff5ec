"""`hybrid rerank`: documents by how well they answer a query."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybrid.pipeline import models
from hybrid.quant.ggml.errors import UsageError, shown

from .. import console
from ..options import model_argument, text_options
from ..options.groups import takes_groups
from ..options.loading_options import Precision, ThreadOptions, context_option, load_options

if TYPE_CHECKING:
    from hybrid.infer.evaluate.rerank import Pairs

WIDTH = 72  # characters of a document's first line


@takes_groups
def rerank(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=f"{model_argument.WHAT}: a reranker.")],
    documents: Annotated[
        list[Path],
        typer.Argument(
            metavar="DOCUMENTS...",
            help="Files with a document each; FILE.jsonl: a document per line; -: a document per line of stdin.",
        ),
    ],
    prompt: Annotated[str | None, typer.Option("-p", "--prompt", metavar="QUERY", help="The query.")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="File with the query, in UTF-8.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, metavar="N", help="Show the best N documents; 0: all.")] = 0,
    instruction: Annotated[
        str | None,
        typer.Option("--instruction", help="The demand on a document, for models that read an instruction."),
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut documents that are too long, instead of stopping with an error.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write a JSON object.")] = False,
    n_ctx: Annotated[
        int,
        context_option("Maximum tokens of the query with a document; 0: the length that the model was trained with."),
    ] = 0,
    *,
    precision: Precision,
    machine: ThreadOptions,
) -> None:
    """Rank documents by how well they answer a query.

    MODEL is a reranker: Qwen3-Reranker, or an encoder with a classification head. Documents are shown with their rank,
    their score from 0 to 1, their name and first line; the best one comes first. A document per line is a text, or in
    JSON a text or an object with a `text` and maybe a `name`.
    """
    if (prompt is None) == (file is None):
        raise typer.BadParameter("give the query: -p QUERY, or -f FILE, not both")
    if [file, *documents].count(text_options.STDIN) > 1:
        raise UsageError("stdin (-) can be read once: name files for the other texts.")
    query = text_options.checked(prompt or "", "-p") if file is None else text_options.read_text(file).rstrip("\n")
    given = [document for path in documents for document in documents_of(path)]
    if not given:
        raise UsageError(f"there is no document in {', '.join(map(text_options.name_of, documents))}.")
    path = models.resolve(model, console.SCREEN)
    from hybrid.infer.evaluate.reranker_file import RerankerFile

    start = time.perf_counter()
    with (
        models.compiling(console.SCREEN) as compiling,
        RerankerFile(path, load_options(machine, precision, n_ctx=n_ctx), progress=compiling) as reranker,
    ):
        console.SCREEN.notes(reranker.file_notes)
        pairs = reranker.pairs(query, [each.text for each in given], instruction=instruction, truncate=truncate)
        with console.ProgressBar("reading", "tokens") as progress:
            found = reranker.scores(pairs, progress=progress.step)
        scores = reranker.relevance(found)
        models.note_numa(reranker, console.SCREEN)
        name = str(reranker.gguf.get("general.name", "") or path.stem)
    best = sorted(range(len(given)), key=lambda i: (-found[i], i))[: top or None]
    if as_json:
        results = [
            {"index": i, "name": given[i].name, "score": float(scores[i]), "log_odds": float(found[i]),
             "truncated": i in pairs.truncated}
            for i in best
        ]  # fmt: skip
        console.out_json({"model": name, "query": query, "n_documents": len(given), "results": results})
    else:
        rows = [(rank, f"{scores[i]:.4f}", given[i].label) for rank, i in enumerate(best, 1)]
        console.out(console.table(("rank", "score", "document"), rows, right="rr"))
    console.note(_told(pairs, time.perf_counter() - start))


@dataclass(frozen=True)
class NamedText:
    """A document, and its name; "": none."""

    text: str
    name: str = ""

    @property
    def label(self) -> str:
        """The name and the first line, for a row of a table."""
        first = next((line.strip() for line in self.text.splitlines() if line.strip()), "")
        cut = first if len(first) <= WIDTH else first[: WIDTH - 3] + "..."
        return console.harmless(": ".join(filter(None, (self.name, cut))))


def documents_of(path: Path) -> list[NamedText]:
    """The documents of an argument. UsageError: unreadable, or a wrong line."""
    text = text_options.read_text(path, empty=True)
    name = text_options.name_of(path)
    if path != text_options.STDIN and path.suffix != ".jsonl":
        return [NamedText(text, name)]
    lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    if path == text_options.STDIN and not (lines and lines[0][1].lstrip().startswith(("{", '"'))):
        return [NamedText(line.removesuffix("\r")) for _, line in lines]
    return [_of_json(line, f"{name}, line {i}") for i, line in lines]


def _of_json(line: str, where: str) -> NamedText:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError(f"{where} is not JSON: {shown(line)}.") from None
    if isinstance(value, str):
        return NamedText(value)
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise UsageError(f'{where}: expected a text, or an object with a "text"; found {shown(line)}.')
    names: Sequence[Any] = [value.get(key) for key in ("name", "title", "id")]
    return NamedText(value["text"], str(next((each for each in names if isinstance(each, str | int)), "")))


def _told(pairs: "Pairs", seconds: float) -> str:
    n = len(pairs.truncated)
    cut = f"; {n} {'document was' if n == 1 else 'documents were'} cut" if n else ""
    return f"{len(pairs.rest)} documents, {pairs.n_processed} tokens, {console.duration(seconds)}{cut}"
