"""`hybrid tokenize`: the tokens of a text."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hybrid.quant.ggml.errors import UsageError

from .. import console
from ..options import model_argument, text_options


def tokenize(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help=model_argument.DEFAULT)] = None,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The text; alone, it may stand for MODEL.")] = None,
    prompt: Annotated[str | None, typer.Option("-p", "--prompt", help="The text, instead of TEXT.")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="File with the text, in UTF-8; - reads stdin.")
    ] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print the ids on one line, as a JSON list.")] = False,
    no_bos: Annotated[
        bool, typer.Option("--no-bos", help="Leave out the tokens that the model adds around a text, as BOS.")
    ] = False,
    no_parse_special: Annotated[
        bool,
        typer.Option("--no-parse-special", help='Read special tokens in the text, as "<|im_end|>", as plain text.'),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print ids and texts of the tokens as JSON.")] = False,
) -> None:
    """Show the tokens of a text.

    Prints a line per token, with its id and its text. Reads stdin if no text is given. Only the tokenizer is loaded,
    not the weights.
    """
    from hybrid.infer.text.tokenizer import assumptions, load_tokenizer
    from hybrid.pipeline import models
    from hybrid.quant.ggml.split import open_gguf

    given = [name for name, value in (("TEXT", text), ("-p", prompt), ("-f", file)) if value is not None]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} are both given. Use one of them.")
    if not given and model is not None and sys.stdin.isatty():
        model, text = None, str(model)
    if file is not None:
        text = text_options.read_text(file, empty=True)
    elif prompt is not None or text is not None:
        text = text_options.checked(prompt if prompt is not None else str(text), "the text")
    elif sys.stdin.isatty():
        raise UsageError("there is no text. Give one as TEXT, with -p or with -f FILE.")
    else:
        text = text_options.read_text(text_options.STDIN, empty=True)
    with open_gguf(models.resolve(model, console.SCREEN)) as gguf:
        tokenizer = load_tokenizer(gguf)
        console.SCREEN.notes(assumptions(gguf))
    found = tokenizer.encode(text, add_special=not no_bos, parse_special=not no_parse_special)
    pieces = [tokenizer.piece(token) for token in found]
    if as_json:
        console.out_json(
            [{"id": token, "text": piece.decode(errors="replace")} for token, piece in zip(found, pieces, strict=True)]
        )
    elif ids:
        console.out(console.as_json(found))
    else:
        for token, piece in zip(found, pieces, strict=True):
            console.out(f"{token:7} {shown_piece(piece)}")
        console.note(f"{len(found)} tokens")


def shown_piece(piece: bytes) -> str:
    """The text of a token in quotes; control characters, and bytes that are not UTF-8 by themselves, as escapes."""
    text = piece.decode(errors="backslashreplace")
    return "'" + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text) + "'"
