"""The tensors of a checkpoint for each row of a family: chosen by name, and checked."""

from collections.abc import Iterator, Mapping

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown

from .architectures import Family, Row
from .checkpoint import Dtype, StoredTensor
from .checkpoint.dequantized import DequantizedTensor
from .checkpoint.integers import as_integers


def choose(
    family: Family, stored: Mapping[str, StoredTensor], notes: list[str]
) -> Iterator[tuple[Row, tuple[StoredTensor, ...]]]:
    """The family's rows with their sources. Raises CheckpointError for sources that are missing, left over or
    misshapen."""
    unused = dict(stored)
    missing: list[str] = []
    unread: list[str] = []
    chosen: list[tuple[Row, tuple[StoredTensor, ...]]] = []
    for row in family.rows():
        names = _names(row, family, stored)
        sources = [stored.get(name) for name in names]
        if row.otherwise and family.tied and names[0] in stored:
            _is_another(stored[names[0]], stored.get(row.otherwise), notes)
        for name in names:
            unused.pop(name, None)
        unread += [tensor.name for name in row.unread if (tensor := unused.pop(name, None))]
        for name in row.settled:
            unused.pop(name, None)
        for copy in filter(None, [unused.pop(name, None) for name in row.copies]):
            _check_copy(copy, sources[0])
        if row.tied_to and _is_left_out(sources[0], stored.get(row.tied_to), family.tied, notes):
            continue
        there = tuple(tensor for tensor in sources if tensor is not None)
        missing += [name for name, tensor in zip(names, sources, strict=True) if tensor is None]
        for i, tensor in enumerate(sources):
            if tensor is not None:
                _check(tensor, row.expected_of(i), row)
        chosen.append((row, there))
    missing += [name for name in family.in_keys() if unused.pop(name, None) is None]
    if missing:
        raise CheckpointError(f"the checkpoint lacks {some(missing)}. {_differently_named(unused)}")
    if unread:
        notes.append(f"{some(unread)} left out: the model does not use them")
    _check_unused(unused, stored)
    yield from chosen


def _names(row: Row, family: Family, stored: Mapping[str, StoredTensor]) -> list[str]:
    """The names of a row's sources in this checkpoint: the first one may be stored under another name."""
    names = list(row.sources)
    if names and names[0] not in stored:
        in_place = [row.otherwise] if row.otherwise and family.tied else [c for c in row.copies if c in stored]
        names = in_place[:1] or names
    return names


def _check_unused(unused: Mapping[str, StoredTensor], stored: Mapping[str, StoredTensor]) -> None:
    """CheckpointError: tensors are left over."""
    if any(isinstance(tensor, DequantizedTensor) for tensor in stored.values()):
        unused = {name: tensor for name, tensor in unused.items() if not _is_no_bias(name, tensor)}
    if unused:
        left = [tensor.name for tensor in unused.values()]
        raise CheckpointError(f"the checkpoint has {some(left)} that the config has no place for.")


def _check_copy(copy: StoredTensor, source: StoredTensor | None) -> None:
    """CheckpointError unless two stored copies are the same; compared in pieces."""
    if source is not None and not (isinstance(copy.dtype, Dtype) and copy.same_bytes(source)):
        raise CheckpointError(
            f"{shown(copy.name)} differs from {shown(source.name)} though they are the same shared block. "
            "Download the checkpoint again, or set tie_word_embeddings to false if every layer has its own block."
        )


def _is_no_bias(name: str, tensor: StoredTensor) -> bool:
    """Whether this is a bias of zeros that GPTQ's or AWQ's tools add to layers without bias."""
    return name.endswith(".bias") and isinstance(tensor.dtype, Dtype) and not tensor.floats(0, tensor.size).any()


def _is_left_out(output: StoredTensor | None, embedding: StoredTensor | None, tied: bool, notes: list[str]) -> bool:
    """Whether the file needs no output matrix, because readers use the embedding instead."""
    if output is None or embedding is None:
        return output is None and tied
    if tied:
        return not _is_another(output, embedding, notes)
    return output.same_bytes(embedding)


def _is_another(output: StoredTensor, embedding: StoredTensor | None, notes: list[str]) -> bool:
    """Whether a tied model has its own output matrix nevertheless, which transformers 5 then uses."""
    another = embedding is not None and not output.same_bytes(embedding)
    if another and embedding is not None:
        names = f"{shown(output.name)} is not {shown(embedding.name)}"
        notes.append(f"tie_word_embeddings is ignored: {names}, and is kept")
    return another


def some(names: list[str]) -> str:
    """The first three names of a list, and the number of the others."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    kind = "tensor" if len(names) == 1 else "tensors"
    return f"{kind} {', '.join(map(shown, names[:3]))}{more}"


def _differently_named(unused: Mapping[str, StoredTensor]) -> str:
    if not unused:
        return "Download it again, or correct the config."
    return f"It has {some([tensor.name for tensor in unused.values()])} without a place instead."


def _check(tensor: StoredTensor, expected: tuple[int, ...], row: Row) -> None:
    if row.integers:
        as_integers(tensor)
    elif not isinstance(tensor.dtype, Dtype):
        raise UnsupportedError(
            f"{shown(tensor.name)} is of type {tensor.dtype}, which weights cannot be read from. "
            "Give a checkpoint in F32, F16 or BF16."
        )
    if row.product and tensor.size == row.shape[-1]:
        return  # a vector, or a matrix of one row
    if tensor.shape not in (expected, row.shape if len(row.sources) == 1 else expected):
        raise CheckpointError(
            f"{shown(tensor.name)} has shape {list(tensor.shape)}, expected {list(expected)} by the config."
        )


def in_reading_order(
    chosen: list[tuple[Row, tuple[StoredTensor, ...]]], stored: Mapping[str, StoredTensor]
) -> list[tuple[Row, tuple[StoredTensor, ...]]]:
    """The rows in the order in which their last sources are read: llama.cpp's converter's order, and the disk's."""
    position = {id(tensor): i for i, tensor in enumerate(stored.values())}
    last: dict[str, int] = {}
    for row, tensors in chosen:
        key = row.group or row.target
        last[key] = max([last.get(key, -1), *(position[id(tensor)] for tensor in tensors)])
    return sorted(chosen, key=lambda item: last[item[0].group or item[0].target])
