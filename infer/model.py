"""The library's surface: load a model, give sequences tokens, get logits, save and restore.

from hybrid.infer import Model

with Model.load("model.gguf", n_ctx=4096) as model:
    seq = model.sequence()
    logits = seq.prefill(model.tokenizer.encode("State-space models"))
    while (token := int(logits.argmax())) != model.tokenizer.eos:
        logits = seq.decode(token)
"""

import hashlib
import os
import time
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Unpack

import numpy as np

from hybrid.quant.ggml.adapter import Adapter, open_all
from hybrid.quant.ggml.errors import Remedy, StateError, TokenizerError, UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.types import FileType

from .engine.engine import Engine, OpTime, Progress
from .engine.pass_costs import PassCosts
from .engine.ubatch import Segment
from .kernels.attention.kv import KV_TYPES
from .loading.hparams import trained_context, wrong
from .loading.options import LoadFields, LoadOptions, Precision, merged
from .memory import PromptCache
from .memory.attention import Layout
from .memory.cache_file import load_cache
from .memory.positions import first_moved
from .memory.splits import SPLITS
from .memory.state_file import StateFile, read_state
from .program.threads import Interrupted, Stop, default_threads
from .sequence import Result, Sequence, TokenProgress, Work

if TYPE_CHECKING:
    from .text.chat_template import ChatTemplate
    from .text.tokenizer import Tokenizer

Split = Literal["simple", "equal", "seq"]


class Model:
    """A loaded model with memory for `n_seq_max` sequences. Use `load`."""

    def __init__(
        self,
        gguf: GGUFFile,
        engine: Engine,
        precision: Precision,
        cache: PromptCache | None = None,
        adapters: Iterable[Adapter] = (),
    ) -> None:
        self.adapters = list(adapters)
        self.gguf, self.engine, self.precision = gguf, engine, precision
        self.path = gguf.path
        self.memory = engine.memory
        self.cache = cache
        self.kv_type = engine.memory.attention.kind.name
        self.n_ctx = engine.n_ctx
        self.n_vocab = engine.n_vocab
        self.n_threads = engine.n_threads
        self.hparams = engine.hparams
        self.n_layer = engine.hparams.n_layer
        self.n_ctx_train = engine.hparams.n_ctx_train
        self.arch: str = gguf.get("general.architecture")
        self.name: str = str(gguf.get("general.name", "") or gguf.path.stem)
        self.n_bytes = sum(t.nbytes for t in gguf.tensors.values())
        self.n_params = sum(int(np.prod(t.shape)) for t in gguf.tensors.values())
        self._variant = self.hparams.variant(gguf.tensors, self.n_ctx)
        self.load_seconds = 0.0
        self.pass_costs = PassCosts()
        self._free = list(range(self.memory.n_seq_max))[::-1]

    @classmethod
    def load(
        cls,
        path: Path | str,
        options: LoadOptions | None = None,
        *,
        progress: Progress | None = None,
        **fields: Unpack[LoadFields],
    ) -> "Model":
        """Open a GGUF file for inference.

        options   how; `fields` are fields of LoadOptions by name, which count instead of those of `options`
        progress  called with ("compile", done, total) while kernels compile for the first time on a machine

        Raises FormatError, UnsupportedError or UsageError.
        """
        start = time.perf_counter()
        given = merged(options, fields)
        kv_type = given.kv_type_used
        gguf = open_gguf(path)
        if gguf.get("general.type", "") == "adapter":
            raise UsageError(f"{gguf.path.name} is an adapter, not a model.", remedy=Remedy.SEPARATE_ADAPTER)
        arch = gguf.get("general.architecture")
        if not isinstance(arch, str):
            raise wrong(gguf, "general.architecture", arch, "a string")
        n_ctx = given.context_of(trained_context(gguf, arch))
        adapters = open_all(given.lora, arch)
        engine = Engine(
            gguf,
            n_ctx=n_ctx,
            n_seq_max=given.n_seq_max,
            n_ubatch=given.n_ubatch,
            n_threads=given.n_threads or default_threads(),
            exact=given.exact,
            kv_type=KV_TYPES[kv_type],
            spare=given.checkpoint_budget,
            adapters=adapters,
        )
        budget = given.checkpoint_budget
        cache = PromptCache(engine.memory, budget, given.checkpoint_type) if budget else None
        model = cls(gguf, engine, given.precision, cache, adapters)
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
        model.load_seconds = time.perf_counter() - start - engine.compile_seconds
        return model

    # --- what it is ---
    @property
    def file_type(self) -> str:
        """Display name of general.file_type, or of the type of most weights when the key is absent or unknown."""
        number = self.gguf.get("general.file_type", None)
        try:
            return FileType(number if isinstance(number, int) else -1).name
        except ValueError:
            sizes: dict[str, int] = {}
            for t in self.gguf.tensors.values():
                sizes[t.type.name] = sizes.get(t.type.name, 0) + t.nbytes
            return max(sizes, key=lambda k: sizes[k])

    @property
    def description(self) -> str:
        """Name and file type, with what the context changes and the adapters that are applied."""
        named = f"{self.name} {self.file_type}" + (f" ({self._variant})" if self._variant else "")
        return " + ".join([named, *(adapter.label for adapter in self.adapters)])

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """The file's own tokenizer. TokenizerError: it does not fit the embedding."""
        from .text.tokenizer import load_tokenizer

        made = load_tokenizer(self.gguf)
        if made.n_vocab != self.n_vocab:
            raise TokenizerError(
                f"{self.path.name}: the tokenizer has {made.n_vocab} tokens, token_embd.weight {self.n_vocab} rows. "
                "Convert the model again."
            )
        return made

    @cached_property
    def chat_template(self) -> "ChatTemplate | None":
        """None where the file has no template."""
        from .text.chat_template import ChatTemplate

        return ChatTemplate.from_gguf(self.gguf, self.tokenizer)

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the weights: a hash of the tensors' names, types and shapes and of samples of their bytes; of
        adapters, of all; and what the context changes in their results."""
        digest = hashlib.sha256(self.arch.encode())
        for t in self.gguf.tensors.values():
            digest.update(f"{t.name} {t.type} {t.shape};".encode())
            flat = self.gguf.raw(t.name).reshape(-1)
            digest.update(flat[: 4096 if flat.size < 1 << 20 else 512].tobytes())
            digest.update(flat[-512:].tobytes())
        for adapter in self.adapters:
            adapter.update(digest)
        digest.update(self._variant.encode())
        return digest.hexdigest()[:32]

    @property
    def compile_seconds(self) -> float:
        """Seconds spent so far on compiling kernels or loading them from the disk cache."""
        return self.engine.compile_seconds

    @property
    def n_compiled(self) -> int:
        """Kernels that were compiled by this process rather than loaded from the disk cache."""
        return self.engine.n_compiled

    # --- sequences ---
    def sequence(self) -> "Sequence":
        """An empty sequence on a free slot of the memory."""
        if not self._free:
            n = self.memory.n_seq_max
            raise UsageError(f"all {n} sequences are in use. Close one, or load the model with a larger n_seq_max.")
        slot = self._free.pop()
        self.memory.release(slot)
        return Sequence(self, slot)

    def eval(
        self, works: Iterable[Work], progress: TokenProgress | None = None, split: Split = "simple"
    ) -> list[Result]:
        """Append tokens to several sequences, as many as fit through the layers together.

        The results are, to the bit, those of each sequence alone, however tokens are cut into ubatches (`split`, see
        memory/splits.py). Raises UsageError before anything runs when a sequence would not fit the context or a token
        is not of the vocabulary; Interrupted when stopped, with every sequence holding a prefix of what it was to get:
        the ubatches that were read whole, whose results are lost.
        """
        works = list(works)
        self.check(works)
        with self.engine.stoppable():
            return self._eval(works, progress, split)

    def _eval(self, works: list[Work], progress: TokenProgress | None, split: Split) -> list[Result]:
        before = [len(w.seq.tokens) for w in works]
        likelihood = any(w.targets is not None for w in works)
        results: list[list[np.ndarray]] = [[] for _ in works]
        total, done = sum(len(w.ids) for w in works), 0
        for pieces in SPLITS[split]([len(w.ids) for w in works], self.engine.n_ubatch):
            segments = [self._segment(works[i], begin, end) for i, begin, end in pieces]
            try:
                values = self.engine.run(segments, likelihood=likelihood)
            finally:
                # the memory itself says what it has seen, whatever interrupted the run
                for i, _, _ in pieces:
                    works[i].seq._has_seen(before[i], works[i].ids)
            row = 0
            for (i, _, _), segment in zip(pieces, segments, strict=True):
                if n := len(segment.outputs):
                    assert values is not None
                    results[i].append(values[row : row + n])
                    row += n
            done += sum(len(s.tokens) for s in segments)
            if progress:
                progress(done, total)
        return [self._result(parts, likelihood) for parts in results]

    def _segment(self, work: Work, begin: int, end: int) -> Segment:
        every = work.outputs()
        part = slice(bisect_left(every, begin), bisect_left(every, end))
        targets = None if work.targets is None else work.targets[part]
        return Segment(work.seq.slot, work.ids[begin:end], [o - begin for o in every[part]], targets, work.each)

    def step(self, seq: "Sequence", token: int) -> np.ndarray:
        """`eval` of one token: the logits after it, f32 [n_vocab]."""
        if not (0 <= token < self.n_vocab and seq.n_past < self.n_ctx):
            self.check([Work(seq, [token])])
        seq._ready()
        try:
            return self.engine.step(seq.slot, token)
        finally:
            seq._has_seen(len(seq.tokens), (token,))

    def check(self, works: list[Work]) -> None:
        """UsageError when `eval` of these would be refused."""
        if len({w.seq.slot for w in works}) != len(works):
            raise UsageError("a sequence was given twice in one call. Give each sequence its tokens at once.")
        if len({w.targets is None for w in works if w.outputs()}) > 1:
            raise UsageError("some works have targets and some do not. Evaluate them in two calls.")
        for w in works:
            w.seq._ready()
            ids = np.asarray(w.ids, dtype=np.int64)
            if ids.size and not (ids.min() >= 0 and ids.max() < self.n_vocab):
                bad = int(ids.min()) if ids.min() < 0 else int(ids.max())
                raise UsageError(f"token {bad} is not of this model's vocabulary of {self.n_vocab}.")
            if len(w.ids) > w.seq.room:
                raise UsageError(
                    f"{self.memory.size_of(w.seq.slot, len(w.ids))} do not fit the context of {self.n_ctx}.",
                    remedy=Remedy.LARGER_CONTEXT,
                )
            if w.targets is not None and len(w.targets) != len(w.outputs()):
                raise UsageError(f"{len(w.targets)} targets for {len(w.outputs())} outputs.")

    def _result(self, parts: list[np.ndarray], likelihood: bool) -> Result:
        joined = np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else None
        return Result(None, joined) if likelihood else Result(joined, None)

    def restore(self, path: str | os.PathLike[str], seq: "Sequence | None" = None) -> "Sequence":
        """A sequence as it was saved, on a free slot or in place of what `seq` holds.

        Raises StateError when the file is damaged, of another model, or longer than the context.
        """
        with read_state(path) as state:
            state.header.check_model(self.fingerprint, self.description, Path(path))
            n = state.header.n_tokens
            if n > self.n_ctx:
                raise StateError(
                    f"{Path(path).name} holds {n} tokens, the context is {self.n_ctx}.",
                    remedy=Remedy.LARGER_CONTEXT,
                )
            state.verify()
            tokens = state.expect("tokens", np.int32, (n,))
            logits = state.expect("logits", np.float32, (self.n_vocab,)).copy() if "logits" in state else None
            if n and not (tokens.min() >= 0 and tokens.max() < self.n_vocab):
                raise StateError(
                    f"{Path(path).name} holds tokens that are not of this vocabulary.", remedy=Remedy.WITHOUT_STATE
                )
            positions, computed = self._moved(state, n)
            # everything is checked before a slot is taken or the old content of `seq` is touched
            layout = self.memory.layout(n)
            self._check_kv_type(state, layout)
            arrays = {name: state.expect(name, dtype, shape) for name, (dtype, shape) in layout.items()}
            target = seq or self.sequence()
            self.memory.load(target.slot, n, arrays)
            self.memory.mark(target.slot, positions, computed)
            target.tokens = [int(t) for t in tokens]
            target.logits = logits
            target.extra = dict(state.header.extra)
            target._known = True
            target.checkpoint()
            if self.cache is not None:
                load_cache(self.cache, state, self.n_vocab)
        return target

    def _moved(self, state: StateFile, n: int) -> tuple[np.ndarray | None, int | None]:
        """Positions of the n tokens, where they are not 0, 1, 2..., and how many tokens are computed, where not all."""
        positions, computed = None, state.header.computed
        if "positions" in state:
            positions = state.expect("positions", np.int64, (n,))
            if n and not (positions[0] >= 0 and positions[-1] < 2**31 and (np.diff(positions) >= 0).all()):
                raise StateError(f"{state.path.name} is damaged: its positions decrease.", remedy=Remedy.WITHOUT_STATE)
            computed = min(first_moved(positions), n if computed is None else computed)
        return positions, 0 if computed is not None and self.memory.is_recurrent else computed

    def _check_kv_type(self, state: StateFile, layout: Layout) -> None:
        """A state of another type is refused: converted, it would give other tokens than a run without a break."""
        names = {"float32": "f32", "float16": "f16", "int8": "q8_0"}
        for name, (dtype, _) in layout.items():
            found = names.get(str(state.dtype(name))) if name.endswith(".k") and name in state else None
            # any other type is damage, which is found later
            if found and state.dtype(name) != dtype:
                raise StateError(
                    f"{state.path.name} keeps keys and values in {found}, this model in {self.kv_type}.",
                    remedy=Remedy.KV_TYPE_OR_WITHOUT_STATE,
                    value=found,
                )

    # --- measuring and ending ---
    def profile(self, works: Iterable[Work]) -> list[OpTime]:
        """Time per op of one ubatch; its tokens are appended to the sequences as `eval` would."""
        works = list(works)
        self.check(works)
        segments = [self._segment(w, 0, len(w.ids)) for w in works]
        start = [len(w.seq.tokens) for w in works]
        try:
            with self.engine.stoppable():
                return self.engine.profile(segments)
        finally:
            for w, n in zip(works, start, strict=True):
                w.seq._has_seen(n, w.ids)

    def stopped_by(self, stop: Stop) -> AbstractContextManager[None]:
        """Within, what the model computes raises Interrupted once `stop` is set; of nested ones the innermost counts.

        with model.stopped_by(stop):  # another thread, or a signal handler, calls stop.set()
            for piece in generate(...): ...
        """
        return self.engine.stopped_by(stop)

    def stop(self) -> None:
        """Stop the `eval` that runs, or what `stopped_by` surrounds: from any thread; what begins later is not touched.
        To stop one call for certain, give it its own Stop."""
        if (now := self.engine.stop) is not None:
            now.set()

    def close(self) -> None:
        """Ends the threads; sequences cannot be used any more."""
        self.engine.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


__all__ = ["Interrupted", "LoadOptions", "Model", "OpTime", "Result", "Sequence", "Stop", "Work"]
