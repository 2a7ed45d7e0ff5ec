"""The command `hybrid`, also as `python -m hybrid.cli` for where the console script is not on the path."""

import sys


def main() -> None:
    """`main.main`; Ctrl-C while its modules are loaded ends as it does later."""
    try:
        from .main import main as command
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        exec("")  # see main.main
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
