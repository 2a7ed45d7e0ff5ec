"""`hybrid launch`: another program with a model of `hybrid serve`."""

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, NoReturn

import typer

from hybrid.quant.ggml.errors import HybridError, UsageError, shown

from .. import console
from ..launch import settings_files
from ..launch.clients import CLIENTS, LaunchedClient
from ..launch.found_server import FoundServer, found_server
from ..options.groups import takes_groups
from ..options.running_server import RunningServer

FEW = 32_768  # tokens of a context that coding agents fill soon
ClientName = StrEnum("ClientName", {name: name for name in CLIENTS})  # type: ignore[misc]  # values of CLIENT


@takes_groups
def launch(
    client: Annotated[ClientName, typer.Argument(metavar="CLIENT", help=f"One of: {', '.join(CLIENTS)}.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS...", help="With --run: arguments of the client, after --.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of a model of the server. Default: one that is loaded.")
    ] = None,
    *,
    running: RunningServer,
    write: Annotated[
        bool, typer.Option("--write", help="Add the settings to the client's own file of settings.")
    ] = False,
    run: Annotated[bool, typer.Option("--run", help="Start the client with these settings.")] = False,
) -> None:
    """Set up a coding agent or editor for a model of `hybrid serve`.

    Asks the server for its model and its context, then prints the client's settings: variables of the environment and
    the command to start it, or the contents of its file of settings. --write adds them to that file, whose other
    settings stay, and keeps the old file beside it. --run starts the client with them, and changes no file.
    """
    chosen = CLIENTS[client.value]
    if arguments and not run:
        raise UsageError(f"{shlex.join(arguments)}: arguments of the client need --run.")
    if run and chosen.by_file and not write:
        raise UsageError(f"{chosen.title} takes its models from a file only. Use --write --run.")
    program = _program(chosen) if run else ""
    found = found_server(running.address, model, running.key())
    _say(chosen, found)
    if write:
        for settings in chosen.files(found):
            console.note(settings_files.write(settings))
            if found.key and settings_files.others_read(settings.path):
                console.note(f"warning: others can read the key in {shown(settings.path)} (chmod 600 hides it)")
    variables, words = _call(chosen, found, is_written=write)
    if run:
        _replace_by(program, [chosen.program, *words, *(arguments or ())], variables)
    if not write and chosen.by_file:
        for settings in chosen.files(found):
            console.out(f"# {settings.path}")
            console.out(settings.shown, end="")
        console.note(f"then: {shlex.join([chosen.program, *words])}")
    else:
        _print(variables, [chosen.program, *words])


def _say(client: LaunchedClient, server: FoundServer) -> None:
    """Notes which model the client will have."""
    context = f", context {server.context}" if server.context else ""
    console.note(f"{client.title} with {server.model} of {server.url}{context}")
    if server.context and server.context < FEW:
        console.note(f"warning: coding agents soon fill {server.context} tokens. Start the server with a larger -c.")


def _call(client: LaunchedClient, server: FoundServer, *, is_written: bool) -> tuple[Mapping[str, str], Sequence[str]]:
    """The variables and arguments to start the client. is_written: its file has the settings."""
    if is_written or client.by_file:
        return client.after(server)
    return client.variables(server), client.arguments(server)


def _print(variables: Mapping[str, str], command: Sequence[str]) -> None:
    """Prints lines for a shell."""
    for name, value in variables.items():
        console.out(f"export {name}={shlex.quote(value)}")
    console.out(shlex.join(command))


def _program(client: LaunchedClient) -> str:
    """The path of the client's program. HybridError: it is not installed."""
    found = shutil.which(client.program)
    if found is None:
        raise HybridError(f"{client.program} is not installed, or not in PATH: {client.page} says how to install it.")
    return found


def _replace_by(program: str, command: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
    """Becomes another program."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the program would inherit that
    os.execve(program, list(command), {**os.environ, **variables})
