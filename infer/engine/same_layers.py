"""Whether layers compute the same after others were left out and their numbers changed.

The layers of both files are made from keys and names of tensors alone, and all their fields are compared: so a key that
was not adjusted, a pattern by numbers and a layer that needs another one are found in every family.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import FormatError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile

from ..architectures import FAMILIES, encoder_of
from ..layers.base import Layer
from .layer_facts import blocks_of

_NUMBERS = {"layer", "block", "source"}  # fields that are numbers of layers; -1: none
# `like`: one of several layers that share lists; n_layer: layers that depend on it have `by_number`
_NOT_COMPARED = {"like", "n_layer"}
_LAYERS = Layer.__module__.rpartition(".")[0]  # classes of these modules are compared field by field
_BLOCK = re.compile(r"\bblk\.([0-9]+)")


def check_same_layers(before: GGUFFile, after: GGUFFile, kept: Sequence[int], halve_every: int = 0) -> None:
    """UnsupportedError: a kept layer would not compute the same, or the family refuses the rest.

    kept: the numbers before of the layers of `after`. halve_every: of the file's Hparams.
    """
    new_number = {old: new for new, old in enumerate(kept)}
    old = list(blocks_of(before))
    try:
        new = list(blocks_of(after))
    except FormatError as error:
        raise UnsupportedError(f"{error} Leave out other layers.") from error
    _check_pictures(before, after, new_number)
    same = _Comparison(new_number)
    for i, j in new_number.items():
        if halve_every and any((i + k) // halve_every != (j + k) // halve_every for k in (0, 1)):
            raise _error(after, i, f"the residual stream is halved every {halve_every} layers")
        for difference in same.differences(old[i], new[j], ""):
            raise _error(after, i, difference)


def _check_pictures(before: GGUFFile, after: GGUFFile, new_number: Mapping[int, int]) -> None:
    """UnsupportedError: a picture's features would go to other layers."""
    arch = str(before.get("general.architecture"))
    if encoder_of(before):
        return
    family = FAMILIES[arch]
    old, new = (list(family.picture_blocks(family.hparams.read(file, arch))) for file in (before, after))
    if new != [new_number.get(i) for i in old]:
        raise UnsupportedError(
            f"{after.path.name}: features of pictures are added before layers {old}, and would be added before others. "
            "Leave out other layers."
        )


def _error(after: GGUFFile, i: int, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{after.path.name}: layer {i} would compute something else: {why}. Leave out other layers."
    )


@dataclass(frozen=True)
class _Comparison:
    """Parts of layers before and after the change. number: the new numbers of layers by their old ones."""

    number: Mapping[int, int]

    def differences(self, a: Any, b: Any, field: str) -> Iterator[str]:
        """Why b does not compute what a did. field: the name of both."""
        if field in _NOT_COMPARED:
            return
        a, b = getattr(a, "after_inputs", a), getattr(b, "after_inputs", b)
        if field in _NUMBERS and type(a) is int:
            yield from self._of_numbers(a, b)
        elif type(a) is not type(b):
            yield f"it would have {_called(b)} in place of {_called(a)}"
        elif isinstance(a, list | tuple | dict):
            if len(a) != len(b):
                yield f"it would have {len(b)} parts in place of {len(a)}"
            for one, other in zip(_items(a), _items(b), strict=False):
                yield from self.differences(one, other, "")
        elif type(a).__module__.startswith(_LAYERS):
            if getattr(a, "by_number", None) != getattr(b, "by_number", None):
                yield f"its {_called(a)} depends on its number or on the number of layers"
            for name, value in vars(a).items():
                yield from self.differences(value, vars(b).get(name), name)
        elif not self._equal(a, b):
            yield f"its {field} would be {b!r}, not {a!r}"

    def _of_numbers(self, a: int, b: int) -> Iterator[str]:
        if a >= 0 and a not in self.number:
            yield f"it uses layer {a}"
        elif b != self.number.get(a, a):
            yield f"it would use another layer than {a}"

    def _equal(self, a: Any, b: Any) -> bool:
        if isinstance(a, str):
            a = _BLOCK.sub(lambda match: f"blk.{self.number.get(int(match[1]), '')}", a)
        return np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)


def _items(parts: Any) -> list[Any]:
    return list(parts.items() if isinstance(parts, dict) else parts)


def _called(part: Any) -> str:
    return "nothing" if part is None else type(part).__name__
