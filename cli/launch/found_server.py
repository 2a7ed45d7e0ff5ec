"""Asks a running server for its model, for `hybrid launch`."""

from dataclasses import dataclass, field

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
    """The model of the server at `url`. model: its name; None: the first in the server's list.

    HybridError: no server answers there, it wants another key, or it has no such model.
    """
    models = listed(url, key)
    names = [str(one.get("id")) for one in models]
    if model is not None and model not in names:
        raise HybridError(f"{url} has no model {shown(model)}. It has: {', '.join(map(shown, names))}.")
    chosen = models[0 if model is None else names.index(model)]
    if "embedding" in chosen.get("capabilities", ()) and "completion" not in chosen["capabilities"]:
        raise HybridError(f"{shown(chosen['id'])} makes embeddings only. Serve a model that answers.")
    meta = chosen.get("meta")
    context = meta.get("n_ctx") if isinstance(meta, dict) else None
    inputs = chosen.get("architecture")
    sees = isinstance(inputs, dict) and "image" in inputs.get("input_modalities", ())
    return FoundServer(url, str(chosen["id"]), context if isinstance(context, int) else None, key, sees)
