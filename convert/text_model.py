"""The text model within a class that wraps one (architectures/wrappers.py): its config and tensors, as if alone."""

from collections.abc import Iterator, Mapping

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown

from .architectures import Family
from .architectures.wrapped import made
from .architectures.wrappers import WRAPPERS, Wrapper
from .checkpoint import Checkpoint, Config, StoredTensor
from .config_fields import outer_notes, refuse_what_none_can
from .sources import some


def text_model(
    checkpoint: Checkpoint,
    architecture: str,
    family: type[Family],
    config: Config,
    tensors: Mapping[str, StoredTensor],
) -> tuple[Config, Mapping[str, StoredTensor], list[str]]:
    """The config and tensors of the text model, and notes on the parts left out. Without a wrapper: unchanged."""
    wrapper = WRAPPERS.get(architecture)
    if wrapper is None:
        return config, tensors, []
    if checkpoint.folding:
        raise UnsupportedError(f"{config.where}: rotated weights of {architecture} are not supported.")
    kind = wrapper.kind(config)
    plain = _plain(wrapper, kind, tensors)
    inner = wrapper.config(config, plain)
    refuse_what_none_can(inner, family)
    own = {new: each for name, tensor in plain.items() for new, each in made(kind, inner, name, tensor)}
    return inner, own, list(_notes(wrapper, config, tensors))


def _plain(wrapper: Wrapper, kind: str, tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors of the text model by their names in its own class."""
    found: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        if wrapper.leaves_out(name):
            continue
        plain = wrapper.plain_name(name, kind)
        if plain in found:
            raise CheckpointError(f"{shown(found[plain].name)} and {shown(name)} are the same tensor. Keep one.")
        found[plain] = tensor
    return found


def _notes(wrapper: Wrapper, config: Config, tensors: Mapping[str, StoredTensor]) -> Iterator[str]:
    outside = [name for name in tensors if wrapper.leaves_out(name)]
    if outside:
        yield f"{some(outside)} left out: of {wrapper.name} only the text model is converted"
    yield from outer_notes(config, wrapper.unknown(config))
