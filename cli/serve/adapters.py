"""The adapters of a served model, and which of them a request chooses.

    "lora": [{"id": 0, "scale": 0.5}]    llama-server's field: these, by number or name; the others have scale 0
    "model": "base:adapter", "adapter"   vLLM's way: this adapter alone, at the scale of its option

A request that chooses none has the server's scales, which POST /lora-adapters sets. Adapters with a name of their own
(--lora NAME=FILE) are chosen by requests alone: there their scale is 0 at first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from hybrid.infer.answers.asking.named_adapters import NamedAdapters, UnknownAdapterError
from hybrid.infer.engine.applied import Applied
from hybrid.infer.model import LoadedModel
from hybrid.quant.ggml.errors import UsageError, shown

from .backend import ServedModel
from .client import Client
from .errors import RequestError
from .strict import Strict

BETWEEN = ":"  # of the names of the base and of an adapter
LARGEST_SCALE = 1e4


class LoraChoice(Strict):
    """An adapter, by its number in GET /lora-adapters or by its name, and its scale."""

    id: int | str
    scale: Annotated[float, Field(ge=-LARGEST_SCALE, le=LARGEST_SCALE)] = 1.0


@dataclass(frozen=True)
class AdapterName:
    """What requests call an adapter; "": as its file. scale: if they choose it by name; applied: also if they choose
    none."""

    name: str
    scale: float = 1.0
    applied: bool = True


class ServedAdapters:
    """The adapters of one served model, called `base`. names: of all adapters; None: of their files."""

    def __init__(self, model: ServedModel, base: str, names: Sequence[AdapterName] | None = None) -> None:
        self.base = base
        self.own: NamedAdapters | None = None
        self.names: list[AdapterName] = []
        self.scales: dict[int, float] = {}
        if isinstance(model, LoadedModel):
            files = model.runner.file.adapters
            given = [AdapterName("", one.scale) for one in files] if names is None else names
            self.own = NamedAdapters(model.runner, [one.name for one in given], base)
            self.names = [replace(one, name=name) for one, name in zip(given, self.own.names, strict=True)]
            self.set({i: one.scale for i, one in enumerate(self.names) if one.applied})

    def set(self, scales: Mapping[int, float]) -> None:
        """Set the scales of requests that choose no adapters; the adapters that are not named get scale 0."""
        self.scales = {i: scales.get(i, 0.0) for i in range(len(self.names))}
        if self.own is not None:
            self.own.runner.apply(self.scales)

    # --- of a request ---
    def client(self, whose: Client, model: str | None, lora: Sequence[LoraChoice] | None) -> Client:
        """The client of a request, as owner of texts with the adapters that the request chooses. RequestError: it names
        an adapter that does not exist."""
        named, scales = self.named(model), self.scales
        if named is not None and lora:
            raise RequestError("model and lora both choose adapters: leave one of them out", param="lora")
        if named is not None:
            scales = {named: self.names[named].scale}
        elif lora:  # llama-server also takes an empty list for none given
            scales = {self.number(one.id): one.scale for one in lora}
        if self.own is None:
            return whose
        try:
            applied = self.own.chosen(scales)
        except UsageError as error:
            raise RequestError(str(error), param="lora") from None
        return replace(whose, applied=applied, text_owner=self.own.runner.owner_with(whose.owner, applied))

    def is_activated(self, applied: Applied) -> bool:
        """Whether one of them is an activated adapter."""
        return self.own is not None and any(self.own.files[number].invocation for number, _ in applied.scales)

    def named(self, model: str | None) -> int | None:
        """The number of the adapter that a request's `model` names; None: it names the base, or something unknown, as
        clients do that cannot be told the model's name. RequestError: it names an unknown adapter."""
        if self.own is None or not model or model == self.base or not self.names:
            return None
        if model in self.own.names:
            return self.own.names.index(model)
        base, between, name = model.rpartition(BETWEEN)
        if between and base == self.base:
            return self.number(name, "model", 404)
        return self.number(model, "model", 404) if self.own.near(model) else None

    def number(self, asked: int | str, param: str = "lora", status: int = 400) -> int:
        """The number of an adapter, given by its number or name. RequestError: no adapter has it."""
        try:
            if self.own is None:
                raise UnknownAdapterError(f"there is no adapter {shown(asked, 40)}: an encoder has none")
            return self.own.number(asked)
        except UnknownAdapterError as error:
            raise RequestError(str(error), param=param, status=status) from None

    # --- for routes ---
    def model_of(self, asked: str | None) -> str:
        """The name of the model in an answer to a request that asked for this one."""
        named = self.named(asked)
        return self.base if named is None else f"{self.base}{BETWEEN}{self.names[named].name}"

    def file_name(self, number: int) -> str:
        """The name of an adapter's file, without its folder."""
        assert self.own is not None
        return self.own.files[number].path.name

    def listed(self) -> list[dict[str, Any]]:
        """GET /lora-adapters."""
        entries: list[dict[str, Any]] = []
        for i, one in enumerate(self.names):
            entry = {"id": i, "name": one.name, "path": self.file_name(i), "scale": self.scales[i]}
            entries.append({**entry, "task_name": "", "prompt_prefix": "", **self._activation(i)})
        return entries

    def _activation(self, number: int) -> dict[str, Any]:
        """The tokens from which on an activated adapter is applied; {} of another adapter."""
        assert self.own is not None
        tokens = self.own.files[number].invocation
        if not tokens:
            return {}
        text = b"".join(map(self.own.runner.file.tokenizer.piece, tokens)).decode("utf-8", "replace")
        return {"alora_invocation_string": text, "alora_invocation_tokens": list(tokens)}
