"""The command `hybrid`, also as `python -m hybrid.cli` where the console script is not on the path."""

import gc
import os
import sys

from .interrupts import interrupt_behind, lose_no_interrupt
from .standard_streams import open_missing


def main() -> None:
    """Calls `main.main`. Ctrl-C while modules are loading ends the program as later."""
    gc.disable()  # until the command runs: imports make many objects and no garbage, a search takes a tenth of a start
    try:
        open_missing()
        lose_no_interrupt()
        if "_HYBRID_COMPLETE" in os.environ:  # called by a shell to complete a command line
            from .completion import reply

            reply.main()
            return
        from .main import main as command
    except (KeyboardInterrupt, RuntimeError) as error:
        if interrupt_behind(error) is None:
            raise
        print("interrupted", file=sys.stderr)
        exec("")  # see main.main
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
