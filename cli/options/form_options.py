"""The options that say what form an answer has, and what becomes of them.

A schema may be a file or its text: a path that exists is a file.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.errors import UsageError

from . import texts

if TYPE_CHECKING:
    from hybrid.infer.answers.constraints import Grammar

PANEL = "Form of the answer"
JsonSchema = Annotated[
    str | None,
    typer.Option("--json-schema", metavar="FILE|TEXT", help="JSON of this schema.", rich_help_panel=PANEL),
]
GrammarFile = Annotated[
    Path | None,
    typer.Option("--grammar", metavar="FILE", help="A grammar in llama.cpp's GBNF or in Lark.", rich_help_panel=PANEL),
]
Regex = Annotated[
    str | None,
    typer.Option("--regex", metavar="TEXT", help="The whole answer matches this expression.", rich_help_panel=PANEL),
]
Choice = Annotated[
    list[str] | None,
    typer.Option("--choice", metavar="TEXT", help="One of these texts: give it for each.", rich_help_panel=PANEL),
]


def grammar(
    json_schema: str | None, grammar_file: Path | None, regex: str | None, choice: list[str] | None
) -> "Grammar | None":
    """The form that was asked for. UsageError: it cannot be read, or there are two."""
    given = {"--json-schema": json_schema, "--grammar": grammar_file, "--regex": regex, "--choice": choice}
    names = [name for name, value in given.items() if value]
    if not names:
        return None
    if len(names) > 1:
        raise UsageError(f"{names[0]} and {names[1]} are both given. Use one of them.")
    from hybrid.infer.answers.constraints import Grammar

    if json_schema:
        return Grammar.json_schema(_schema_text(json_schema))
    if grammar_file:
        return Grammar.of_text(texts.read_text(grammar_file))
    return Grammar.regex(regex) if regex else Grammar.choice(choice or [])


def _schema_text(given: str) -> str:
    if given.lstrip()[:1] in ("{", "[", "") or given in ("true", "false"):
        return given
    return texts.read_text(Path(given))
