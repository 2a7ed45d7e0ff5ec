"""The errors a user can cause. Each message is one line: object, what was found, what was expected, what to do.

The command line prints a `HybridError` as `error: <message>` and exits with `exit_code`; anything else is a bug of ours
and keeps its traceback.
"""


class HybridError(Exception):
    """Base of all errors caused by input: files, checkpoints, options, states."""

    exit_code = 1


class UsageError(HybridError):
    """The command or the call was put wrongly (exit code 2)."""

    exit_code = 2


class FormatError(HybridError):
    """A file is damaged, truncated, or not of the format it should be."""


class CheckpointError(HybridError):
    """A Hugging Face checkpoint lacks something, has too much, or holds what cannot be converted."""


class UnsupportedError(HybridError):
    """The input is sound, but this version has no code for it."""


class TokenizerError(HybridError):
    """A vocabulary is missing, inconsistent, or of an unknown kind."""


class TemplateError(HybridError):
    """A chat template cannot be parsed or refuses the messages."""


class StateError(HybridError):
    """A state file does not fit this model, or a sequence cannot do what was asked of it."""


def shown(text: object, limit: int = 256) -> str:
    """`text` fit for a one-line message: names and paths from outside may hold newlines or terminal escapes."""
    raw = str(text)
    raw = raw if len(raw) <= limit else raw[: limit // 2] + "..." + raw[-limit // 2 :]
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in raw)
