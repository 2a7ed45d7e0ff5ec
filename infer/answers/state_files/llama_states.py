"""Carries texts to llama.cpp and back, through its session files, whose layout memory/llama_session.py describes."""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hybrid.quant.ggml.errors import Remedy, StateError, UsageError
from hybrid.quant.ggml.replacing import replace_file
from hybrid.quant.ggml.sources import check_source

from ...memory.llama_session import LlamaSession, encode_session, read_session, sides_of
from ...memory.picture_tokens import has_pictures
from ...memory.positions import first_moved
from ...memory.saved_text import SavedText
from ...model import LoadedModel
from ...runner import Runner
from ...sequence import Sequence

# Their layers keep the same values in the same order in both programs. Files of each are tested in both directions.
ARCHITECTURES = (
    "llama", "qwen2", "qwen3", "mamba", "mamba2", "jamba", "falcon-h1", "nemotron_h", "minimax-01", "plamo2",
)  # fmt: skip


def import_session(model: LoadedModel, path: str | os.PathLike[str], *, rotated: bool | None = None) -> Sequence:
    """The sequence that llama.cpp saved. `Sequence.pending` are tokens at the end that were sampled and not computed.

    rotated: whether llama.cpp rotated quantized keys and values, as builds since April 2026 do, which the file does not
    say; None: unknown.

    Without recurrent layers the last token always is one of these, so that generation can start at once; otherwise some
    text must follow, since the file has no logits.

    Raises StateError if the file is damaged, longer than the context, or (as far as can be told) of another model.
    """
    session = _read(model, Path(path), rotated)
    tokens, n = [int(t) for t in session.tokens], session.n_past
    seq = model.sequence()
    # tokens after a gap were computed beside tokens that are gone
    computed = first_moved(session.positions)
    computed = 0 if model.memory.is_recurrent and computed < n else computed
    seq.load(SavedText(tokens[:n], None, {}, session.arrays, session.positions, computed))
    if n == len(tokens) and not model.memory.is_recurrent:
        n = seq.truncate(n - 1)
    seq.extra = {"pending": tokens[n:]} if tokens[n:] else {}
    return seq


def read_sequence(model: LoadedModel, path: Path) -> tuple[list[int], dict[str, np.ndarray]]:
    """The computed tokens of a file with one sequence, and their arrays. StateError: also if tokens left its middle."""
    session = _read(model, path)
    if first_moved(session.positions) < session.n_past:
        raise StateError(f"{path.name}: tokens left its context, so no other text can go on from it.")
    if not session.n_past:
        raise StateError(f"{path.name}: it holds no computed tokens.")
    return [int(t) for t in session.tokens[: session.n_past]], session.arrays


def write_sequence(model: LoadedModel, tokens: list[int], arrays: dict[str, np.ndarray], path: Path) -> int:
    """Writes tokens and their `HybridMemory.layout` as 'ggsq', like llama-server; returns the size in bytes.

    Raises StateError if it cannot be written, UsageError if llama.cpp has no such state.
    """
    _check_exported(model.runner)
    positions = np.arange(len(tokens))
    parts = encode_session(
        tokens, positions, arrays, model.arch, model.n_layer, model.memory, whole=False, transposed=False
    )
    return _write(path, parts)


def export_session(
    seq: Sequence,
    path: str | os.PathLike[str],
    *,
    whole: bool = True,
    transposed: bool = False,
    rotated: bool = True,
) -> int:
    """Writes a sequence for llama.cpp and returns the size in bytes.

    whole       True: 'ggsn', whose text ends with one token that the memory has not seen and that llama-completion
                computes first: the first pending one, or without recurrent layers the last of the text. False: 'ggsq',
                only what the memory has seen
    transposed  values with positions last, as llama.cpp expects without flash attention; not of quantized values
    rotated     quantized keys and values as llama.cpp stores them since April 2026

    Raises StateError if it cannot be written, UsageError if llama.cpp has no such state.
    """
    runner, path = seq.runner, Path(path)
    arch, n_layer, memory = runner.file.arch, runner.file.n_layer, runner.memory
    _check_exported(runner)
    if transposed and memory.attention.kind.values.quantized and memory.attention.pairs:
        raise UsageError(
            f"without flash attention llama.cpp has no values in {memory.attention.kind.values.name}. Export for flash "
            "attention."
        )
    if has_pictures(seq.tokens):
        raise UsageError("a state with pictures is not exchanged with llama.cpp, whose states do not say which.")
    n = len(seq.tokens)
    tokens = [*seq.tokens, *seq.pending[:1]] if whole else seq.tokens
    positions = memory.positions[seq.slot]
    if whole and not positions.plain:
        raise UsageError(
            "llama-completion does not take positions with gaps, as this state has.", remedy=Remedy.ONE_SEQUENCE
        )
    if whole and len(tokens) == n:
        if memory.is_recurrent:
            raise UsageError(
                "llama-completion needs a token that is sampled and not computed, and this state has none.",
                remedy=Remedy.GENERATE_ONE_TOKEN,
            )
        n -= 1
    if n < 1:
        raise UsageError("the state holds no tokens that were computed: there is nothing to export.")
    arrays = dict(memory.export(seq.slot))
    parts = encode_session(
        tokens, positions.of(0, n), arrays, arch, n_layer, memory, whole=whole, transposed=transposed, rotated=rotated
    )
    return _write(path, parts)


def _read(model: LoadedModel, path: Path, rotated: bool | None = None) -> LlamaSession:
    _check_architecture(model.arch, path.name)
    try:
        check_source(path, "a state file")
        data = path.read_bytes()
    except OSError as error:
        raise StateError(f"{path}: cannot be read: {error.strerror or error}.") from error
    session = read_session(data, path.name, model.arch, model.n_layer, model.memory, rotated)
    if not all(0 <= t < model.n_vocab for t in session.tokens):
        raise StateError(f"{path.name} holds tokens that are outside this model's vocabulary of {model.n_vocab}.")
    return session


def _write(path: Path, parts: Iterable[bytes]) -> int:
    data = b"".join(parts)
    try:
        replace_file(path, [data])
    except OSError as error:
        raise StateError(f"{path}: cannot be written: {error.strerror or error}.") from error
    return len(data)


def _check_exported(runner: Runner) -> None:
    _check_architecture(runner.file.arch, "the state")
    for side in sides_of(runner.memory):
        side.check()


def _check_architecture(arch: str, what: str) -> None:
    if arch not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UsageError(f"{what}: states of '{arch}' are not exchanged with llama.cpp, only states of {known}.")
