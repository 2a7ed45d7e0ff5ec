"""`hybrid stop`: unloads models of a running server."""

from typing import Annotated

import typer

from .. import console
from ..options.groups import takes_groups
from ..options.running_server import RunningServer, answer_of

PATIENCE = 600.0  # seconds: answers in progress end first


@takes_groups
def stop(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Models, as `hybrid ps` lists them.")],
    *,
    server: RunningServer,
) -> None:
    """Unload models of a running `hybrid serve`.

    A model is unloaded after the requests that use it have ended. Its texts are kept in --state-dir, if the server has
    one; the next request loads the model again. Ctrl-C in the server's terminal ends the server itself.
    """
    url, key = server.address, server.key()
    for name in names:
        answer_of(url, "/models/unload", key, {"model": name}, PATIENCE)
        console.out(f"{console.one_line(name)} is unloaded")
