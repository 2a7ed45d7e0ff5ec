"""Options for the form of an answer: a JSON schema, a grammar, a regular expression or a choice.

--json-schema takes a file or the schema itself: a path that exists is a file.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.errors import UsageError

from . import text_options

if TYPE_CHECKING:
    from hybrid.infer.answers.constraints import Grammar

PANEL = "Form of the answer"


@dataclass(frozen=True, eq=False, repr=False)
class FormOptions:
    """The form of an answer; at most one option is given."""

    json_schema: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|TEXT", help="The answer is JSON that matches this JSON schema.", rich_help_panel=PANEL
        ),
    ] = None
    grammar: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The answer matches this grammar, in llama.cpp's GBNF or in Lark.",
            rich_help_panel=PANEL,
        ),
    ] = None
    regex: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The whole answer matches this regular expression.", rich_help_panel=PANEL),
    ] = None
    choice: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="The answer is one of these texts; give the option once per text.",
            rich_help_panel=PANEL,
        ),
    ] = None

    def read(self) -> "Grammar | None":
        """The grammar, or None. UsageError: the value cannot be read, or two options are given."""
        given = {
            "--json-schema": self.json_schema, "--grammar": self.grammar, "--regex": self.regex, "--choice": self.choice
        }  # fmt: skip
        names = [name for name, value in given.items() if value]
        if not names:
            return None
        if len(names) > 1:
            raise UsageError(f"{names[0]} and {names[1]} are both given. Use one of them.")
        from hybrid.infer.answers.constraints import Grammar

        if self.json_schema:
            return Grammar.json_schema(_schema_text(self.json_schema))
        if self.grammar:
            return Grammar.of_text(text_options.read_text(self.grammar))
        return Grammar.regex(self.regex) if self.regex else Grammar.choice(self.choice or [])


def _schema_text(given: str) -> str:
    if given.lstrip()[:1] in ("{", "[", "") or given in ("true", "false"):
        return given
    return text_options.read_text(Path(given))
