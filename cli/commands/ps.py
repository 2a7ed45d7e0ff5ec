"""`hybrid ps`: the models of a running server."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .. import console
from ..options.groups import takes_groups
from ..options.running_server import RunningServer, listed


@takes_groups
def ps(
    *,
    server: RunningServer,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the models of a running `hybrid serve`.

    Says of each whether it is loaded, how much memory it has taken, its context, and the requests that use or await it.
    """
    models = listed(server.address, server.key())
    if as_json:
        console.out_json(models)
        return
    rows = [_row(model) for model in models if "parent" not in model]
    console.out(console.table(("NAME", "STATE", "FILE", "MEMORY", "CONTEXT", "REQUESTS"), rows, "llrrrr"))
    for model in models:
        status = model.get("status")
        if isinstance(status, dict) and status.get("why"):
            console.note(f"{model['id']}: {status['why']}")


def _row(model: Mapping[str, Any]) -> tuple[str, ...]:
    meta = model.get("meta")
    facts: Mapping[str, Any] = meta if isinstance(meta, dict) else {}
    is_loaded = model.get("state") == "loaded"
    state = f"{model.get('state', '-')}{', pinned' if model.get('pinned') else ''}"
    memory = console.size(model["memory"]) if is_loaded and model.get("memory") else "-"
    context = str(facts.get("n_ctx") or "-")
    size = console.size(facts["size"]) if isinstance(facts.get("size"), int) else "-"
    return console.one_line(str(model["id"])), state, size, memory, context, str(model.get("requests", "-"))
