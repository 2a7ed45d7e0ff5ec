"""Asks a running server for its model, for `hybrid launch`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hybrid.quant.ggml.errors import HybridError, shown

from ..options.running_server import listed

NO_KEY = "none"  # clients insist on a key; a server without keys takes any


@dataclass(frozen=True)
class FoundServer:
    """A model of a running server.

    url      of the server, without a path
    context  tokens; None: the server does not say
    key      None: the server asks for none
    sees     whether the model takes pictures
    """

    url: str
    model: str
    context: int | None = None
    key: str | None = field(default=None, repr=False)
    sees: bool = False

    @property
    def openai(self) -> str:
        """The base URL of OpenAI's API."""
        return f"{self.url}/v1"

    @property
    def token(self) -> str:
        """The key, or a word in its place."""
        return self.key or NO_KEY


def found_server(url: str, model: str | None, key: str | None) -> FoundServer:
    """The model of the server at `url`. model: its name; None: see `_chosen`.

    HybridError: no server answers there, it wants another key, or it has no such model.
    """
    models = listed(url, key)
    chosen = _chosen(models, model)
    if chosen is None:
        names = ", ".join(shown(one["id"]) for one in models)
        raise HybridError(f"{url} has no model {shown(model or '')}. It has: {names}.")
    if not _answers(chosen):
        raise HybridError(f"{shown(chosen['id'])} makes embeddings only. Serve a model that answers.")
    meta = chosen.get("meta")
    context = meta.get("n_ctx") if isinstance(meta, dict) else None
    inputs = chosen.get("architecture")
    sees = isinstance(inputs, dict) and "image" in inputs.get("input_modalities", ())
    return FoundServer(url, str(chosen["id"]), context if isinstance(context, int) else None, key, sees)


def _chosen(models: Sequence[Mapping[str, Any]], name: str | None) -> Mapping[str, Any] | None:
    """The model of this name, or None. Without a name: the first that answers, of the loaded ones if there are some."""
    if name is not None:
        return next((one for one in models if one["id"] == name or name in (one.get("aliases") or ())), None)
    able = [one for one in models if _answers(one)]
    return next((one for one in able if one.get("state") == "loaded"), (able or models)[0])


def _answers(model: Mapping[str, Any]) -> bool:
    """Whether a model generates text."""
    can = model.get("capabilities")
    return not isinstance(can, list) or "completion" in can or not can
