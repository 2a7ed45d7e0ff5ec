"""The library's API: load a model, give sequences tokens, get logits, save and restore.

from hybrid.infer import LoadedModel

with LoadedModel.load("model.gguf", n_ctx=4096) as model:
    seq = model.sequence()
    logits = seq.prefill(model.tokenizer.encode("State-space models"))
    while (token := int(logits.argmax())) != model.tokenizer.eos:
        logits = seq.decode(token)
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

import numpy as np

from hybrid.quant.ggml.adapter import Adapter, open_all
from hybrid.quant.ggml.cpus import check_usable
from hybrid.quant.ggml.errors import Remedy, UsageError, shown
from hybrid.quant.ggml.families.hparams import wrong
from hybrid.quant.ggml.numa import interleaved, nodes_to_spread_over
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import open_gguf

from .engine.engine import Engine
from .engine.op_times import OpTime
from .kernels.attention.kv import cache_types
from .kernels.build.jit import CompileProgress
from .loading.model_file import ModelFile
from .loading.options import LoadFields, LoadOptions, NumaName, Precision, merged
from .loading.spread import spread
from .memory import PromptCache
from .program.threads import Interrupted, Stop, default_threads
from .progress import TokenProgress
from .runner import Result, Runner, Split, Work
from .sequence import Sequence, restored

if TYPE_CHECKING:
    from .text.chat_template import ChatTemplate
    from .text.tokenizer import Tokenizer


class LoadedModel:
    """A loaded model with memory for `n_seq_max` sequences. Use `load`."""

    def __init__(self, runner: Runner, precision: Precision) -> None:
        self.runner, self.precision = runner, precision
        self.file, self.engine, self.memory, self.cache = runner.file, runner.engine, runner.memory, runner.cache
        self.n_ctx, self.n_vocab, self.n_ubatch = runner.n_ctx, runner.n_vocab, runner.n_ubatch
        self.n_seq_max, self.kv_type = runner.n_seq_max, runner.kv_type
        self.gguf, self.path, self.adapters = self.file.gguf, self.file.path, self.file.adapters
        self.arch, self.name, self.n_layer = self.file.arch, self.file.name, self.file.n_layer
        self.n_bytes, self.n_params = self.file.n_bytes, self.file.n_params
        self.hparams, self.n_threads = self.engine.hparams, self.engine.n_threads
        self.n_ctx_train = self.hparams.n_ctx_train
        # one line for the user if n_ctx differs from training, or may not fit; mostly empty
        self.context_note = self.engine.context.note
        self.file_notes = self.file.notes
        # how the model is spread over NUMA nodes, and one line for the user about that; mostly empty
        self.numa: NumaName | None = None
        self.numa_note = ""
        self.load_seconds = 0.0

    @classmethod
    def load(
        cls,
        path: Path | str,
        options: LoadOptions | None = None,
        *,
        progress: CompileProgress | None = None,
        **fields: Unpack[LoadFields],
    ) -> "LoadedModel":
        """Open a GGUF file for inference.

        options   `fields` are fields of LoadOptions by name and override it
        progress  called with ("compile", done, total) while kernels compile for the first time on a machine

        Raises FormatError, UnsupportedError or UsageError.
        """
        start = time.perf_counter()
        given = merged(options, fields)
        check_usable(given.cpus)
        nodes, note = nodes_to_spread_over(given.numa == "interleave")
        with interleaved(nodes):
            model = cls._loaded(path, given, nodes, progress)
        model.numa, model.numa_note = given.numa, model.numa_note or note
        model.load_seconds = time.perf_counter() - start - model.engine.compile_seconds
        return model

    @classmethod
    def _loaded(
        cls, path: Path | str, given: LoadOptions, nodes: tuple[int, ...], progress: CompileProgress | None
    ) -> "LoadedModel":
        """nodes: NUMA nodes to spread the model's memory over; empty: the system decides."""
        kv_type = given.kv_type_used
        gguf, adapters = open_files(path, given)
        engine = Engine(
            gguf,
            n_ctx=given.n_ctx,
            n_seq_max=given.n_seq_max,
            n_ubatch=given.n_ubatch,
            n_threads=given.n_threads or default_threads(),
            exact=given.exact,
            kv_type=cache_types(kv_type),
            spare=given.checkpoint_budget,
            adapters=adapters,
            beside=given.beside,
            cpus=given.cpus,
            nodes=nodes,
        )
        budget = given.checkpoint_budget
        cache = PromptCache(engine.memory, budget, given.checkpoint_type) if budget else None
        file = ModelFile(gguf, engine.hparams, engine.n_ctx, engine.n_vocab, adapters)
        model = cls(Runner(engine, file, cache), given.precision)
        if nodes:
            model.numa_note = spread(gguf, nodes).note(gguf.path.name)
        helper = [
            "-m",
            "hybrid.infer.engine.precompile",
            str(gguf.path),
            str(given.n_ubatch),
            str(engine.n_threads),
            given.precision,
        ]
        helper.append(kv_type)
        engine.prepare((lambda _name, done, total: progress("compile", done, total)) if progress else None, helper)
        return model

    # --- description ---
    @property
    def file_type(self) -> str:
        """Display name of general.file_type, or of the type of most weights when the key is absent or unknown."""
        return self.file.file_type

    @property
    def description(self) -> str:
        """Name and file type, with the changes that n_ctx makes, and the adapters of texts that choose no others."""
        return self.file.description_with(self.runner.applied.scales)

    @property
    def fingerprint(self) -> str:
        """Identifies the weights, with the adapters of texts that choose no others: see `ModelFile.fingerprint`."""
        return self.runner.fingerprint(self.runner.applied)

    @property
    def tokenizer(self) -> "Tokenizer":
        """The file's tokenizer. Raises TokenizerError if it does not fit the embedding."""
        return self.file.tokenizer

    @property
    def chat_template(self) -> "ChatTemplate | None":
        """The file's chat template, or None."""
        return self.file.chat_template

    @property
    def compile_seconds(self) -> float:
        """Seconds spent so far on compiling kernels or loading them from the disk cache."""
        return self.engine.compile_seconds

    @property
    def n_compiled(self) -> int:
        """Kernels that this process has compiled rather than loaded from the disk cache."""
        return self.engine.n_compiled

    # --- sequences ---
    @property
    def n_free(self) -> int:
        """How many more sequences can be opened."""
        return self.runner.n_free

    def sequence(self) -> Sequence:
        """An empty sequence on a free slot of the memory. Raises UsageError if no slot is free."""
        return Sequence(self.runner)

    def restore(self, path: str | os.PathLike[str], seq: Sequence | None = None) -> Sequence:
        """Load a saved sequence into a free slot, or into `seq`, whose content it replaces.

        Raises StateError when the file is damaged, of another model, or longer than the context.
        """
        return restored(self.runner, path, seq)

    def eval(
        self, works: Iterable[Work], progress: TokenProgress | None = None, split: Split = "simple"
    ) -> list[Result]:
        """Append tokens to several sequences, as many as fit through the layers together.

        The results have the same bits as for each sequence alone, however tokens are cut into ubatches (`split`, see
        memory/splits.py). Raises UsageError before anything runs when a sequence would not fit the context or a token
        is not in the vocabulary. Raises Interrupted when stopped: every sequence then holds its tokens of the ubatches
        that were read whole, whose results are lost.
        """
        return self.runner.eval(works, progress, split)

    def step(self, seq: Sequence, token: int) -> np.ndarray:
        """Append one token; returns the logits after it, f32 [n_vocab]."""
        return self.runner.step(seq, token)

    # --- measuring and ending ---
    def profile(self, works: Iterable[Work]) -> list[OpTime]:
        """Time per op of one ubatch. Its tokens are appended to the sequences, as by `eval`."""
        return self.runner.profile(works)

    def stopped_by(self, stop: Stop) -> AbstractContextManager[None]:
        """Within this context, computing raises Interrupted once `stop` is set. Of nested ones the innermost counts.

        with model.stopped_by(stop):  # another thread, or a signal handler, calls stop.set()
            for piece in generate(...): ...
        """
        return self.runner.stopped_by(stop)

    def stop(self) -> None:
        """Stop the `eval` that runs, or the body of the current `stopped_by`, from any thread. Later calls go on.

        To be certain which call is stopped, give each its own Stop.
        """
        self.runner.stop()

    def close(self) -> None:
        """End the threads. Sequences cannot be used any more."""
        self.runner.close()

    def __enter__(self) -> "LoadedModel":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def open_files(path: Path | str, options: LoadOptions) -> tuple[GGUFFile, list[Adapter]]:
    """Open a model file and its adapters. Raises as `LoadedModel.load` does."""
    gguf = open_gguf(path)
    if gguf.get("general.type", "") == "adapter":
        raise UsageError(f"{gguf.path.name} is an adapter, not a model.", remedy=Remedy.SEPARATE_ADAPTER)
    arch = gguf.get("general.architecture")
    if not isinstance(arch, str):
        raise wrong(gguf, "general.architecture", arch, "a string")
    adapters = open_all(options.lora, arch)
    for adapter in adapters:
        if adapter.invocation and not options.activated:
            raise UsageError(
                f"{shown(adapter.path.name)} is an activated LoRA (aLoRA), which is applied to a part of a text.",
                remedy=Remedy.SERVED_ADAPTER,
            )
    return gguf, adapters


@contextmanager
def measured(model: LoadedModel, n: int) -> Iterator[list[Sequence]]:
    """n empty sequences to measure texts with. The prompt cache does not keep them on close: the texts do not come
    again, and the weights may differ from the file's (see sensitivity.py)."""
    seqs: list[Sequence] = []
    try:
        for _ in range(n):
            seqs.append(model.sequence())
        yield seqs
    finally:
        for seq in seqs:
            seq.close(remember=False)


__all__ = ["Interrupted", "LoadOptions", "LoadedModel", "OpTime", "Result", "Sequence", "Stop", "Work", "measured"]
