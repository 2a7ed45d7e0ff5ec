"""Results of command lines, and checks of them."""

from collections.abc import Callable

Cli = Callable[..., tuple[int, str, str]]  # exit code, stdout, stderr


def ok(result: tuple[int, str, str]) -> str:
    assert result[0] == 0, result
    return result[1]


def failed(result: tuple[int, str, str], code: int) -> str:
    """Check for a failure with empty stdout; return the error line."""
    assert result[0] == code, result
    assert result[1] == "", result
    last = result[2].splitlines()[-1]
    assert last.startswith("error: ") and "Traceback" not in result[2], result
    return last
