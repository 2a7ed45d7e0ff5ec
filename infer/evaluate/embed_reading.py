"""Embeds texts a few tokens at a time, for a program that does other work with the model in between.

    reading = ModelReading(model, Pooling.LAST, ids)   # or EncoderReading(encoder, pooling, ids)
    while not reading.done:
        reading.step(64)                               # at most 64 tokens
    vectors = reading.vectors(normalize=True)          # f32 [n, n_embd]

The vectors have the same bits as `Embedder`'s, however the texts are cut.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from hybrid.quant.ggml.errors import Remedy, UsageError

from ..engine.applied import Applied
from ..engine.encoder import Encoder
from ..loading.classifier import Classifier
from ..loading.dense import NO_LAYERS, Dense
from ..model import LoadedModel
from ..program.threads import core_turns
from ..runner import Slot, Work
from ..text.tokenizer import Tokenizer
from .pooling import Pooled, Pooling, finished


class TextTokens(NamedTuple):
    """The ids of every text. truncated: indexes of the texts that have lost tokens."""

    ids: list[list[int]]
    truncated: tuple[int, ...]


def text_ids(
    tokenizer: Tokenizer, texts: Iterable[str | list[int]], n_ctx: int, *, truncate: bool, has_context: bool
) -> TextTokens:
    """The ids of every text, see `Embedder.tokens`. A text may already be ids.

    has_context: whether the user can choose the context, for the message.
    """
    ids = [tokenizer.encode(text) if isinstance(text, str) else text for text in texts]
    truncated = []
    for i, text in enumerate(ids):
        if not text:
            raise UsageError(f"text {i + 1} is empty, and this model puts nothing around a text. Leave it out.")
        if len(text) > n_ctx:
            if not truncate:
                raise UsageError(
                    f"text {i + 1} is too large: it has {len(text)} tokens, the context has {n_ctx}.",
                    remedy=Remedy.TRUNCATE_OR_LARGER_CONTEXT if has_context else Remedy.TRUNCATE,
                )
            kept = 1 if tokenizer.add_eos and n_ctx > 1 else 0
            ids[i] = text[: n_ctx - kept] + text[len(text) - kept :]
            truncated.append(i)
    return TextTokens(ids, tuple(truncated))


def check_ids(ids: Sequence[Sequence[int]], n_ctx: int, n_vocab: int | None) -> None:
    """Raise UsageError when a text is empty, longer than the context, or has a token that is not in the vocabulary."""
    for i, text in enumerate(ids):
        if not text:
            raise UsageError(f"text {i + 1} has 0 tokens, expected 1 or more.")
        if len(text) > n_ctx:
            raise UsageError(f"text {i + 1} is too large: it has {len(text)} tokens, the context has {n_ctx}.")
        if n_vocab is not None and not 0 <= min(text) <= max(text) < n_vocab:
            raise UsageError(f"text {i + 1} has a token that is not of the vocabulary of {n_vocab}.")


class EmbedReading:
    """The reading of some texts. Only the thread that runs the model may use it."""

    def __init__(self, pooling: Pooling, ids: Sequence[Sequence[int]], dense: Dense = NO_LAYERS) -> None:
        self.pooling, self.ids, self.dense = pooling, ids, dense
        self.next = 0  # index of the first text that is not read to its end
        self._vectors: list[np.ndarray] = []

    @property
    def done(self) -> bool:
        """Whether all texts are read."""
        return self.next == len(self.ids)

    @property
    def between(self) -> bool:
        """Whether it holds no sequence, so that other texts may be read now."""
        return True

    def step(self, most: int) -> tuple[int, float]:
        """Read at most `most` more tokens; returns how many, and the seconds without compiling."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the sequence in use."""

    def _add(self, vector: np.ndarray) -> None:
        self._vectors.append(vector)
        self.next += 1

    def vectors(self, *, normalize: bool = True, dimensions: int | None = None) -> np.ndarray:
        """Vectors of the texts, f32 [n, n_embd] or [n, dimensions], after all are read."""
        rows = np.stack([self.dense.apply(vector) for vector in self._vectors])
        return finished(rows, normalize=normalize, dimensions=dimensions)

    def scores(self, classifier: Classifier) -> np.ndarray:
        """Scores of the texts by the model's head, f32 [n, n_labels], after all are read."""
        return np.stack([classifier.scores(vector) for vector in self._vectors]).astype(np.float32)


class EncoderReading(EmbedReading):
    """Reading by an encoder, which reads a text as a whole: a step is one pass, whatever the limit on tokens."""

    def __init__(
        self, encoder: Encoder, pooling: Pooling, ids: Sequence[Sequence[int]], seconds: Sequence[int] = ()
    ) -> None:
        """seconds: as in `Encoder.encode`."""
        super().__init__(pooling, ids, encoder.dense)
        self.encoder, self.seconds = encoder, seconds
        self._passes = encoder.passes([len(text) for text in ids])

    def step(self, most: int) -> tuple[int, float]:
        begin, compiled = core_turns().clock(), self.encoder.compile_seconds
        indices = next(self._passes)
        part = [self.ids[i] for i in indices]
        for rows in self.encoder.encode(part, [self.seconds[i] for i in indices] if self.seconds else ()):
            pooled = Pooled(self.pooling)
            pooled.add(rows[self.pooling.outputs(0, len(rows), len(rows))])
            self._add(pooled.vector)
        return sum(map(len, part)), core_turns().clock() - begin - (self.encoder.compile_seconds - compiled)


class ModelReading(EmbedReading):
    """Reading by a generating model. A step needs a free sequence; one that ends within a text keeps it (`between`).

    applied: its adapters; None: the model's own.
    """

    def __init__(
        self, model: LoadedModel, pooling: Pooling, ids: Sequence[Sequence[int]], applied: Applied | None = None
    ) -> None:
        super().__init__(pooling, ids, Dense.read(model.gguf, model.hparams.n_embd))
        self.model, self._applied = model, model.runner.applied if applied is None else applied
        self._held: Slot | None = None  # has read a prefix of text `next`
        self._pooled = Pooled(pooling)

    @property
    def between(self) -> bool:
        return self._held is None

    def step(self, most: int) -> tuple[int, float]:
        begin, compiled = core_turns().clock(), self.model.compile_seconds
        n = self._read_part(most) if self._held or len(self.ids[self.next]) > most else self._read_whole(most)
        return n, core_turns().clock() - begin - (self.model.compile_seconds - compiled)

    def _read_whole(self, most: int) -> int:
        """Read as many of the next texts whole as fit `most` tokens and the free sequences."""
        works: list[Work] = []
        n = 0
        try:
            while self.next + len(works) < len(self.ids) and (not works or self.model.n_free):
                text = self.ids[self.next + len(works)]
                if n + len(text) > most:
                    break
                works.append(Work(self._slot(), text, self.pooling.outputs(0, len(text), len(text))))
                n += len(text)
            for rows in self.model.runner.hidden_states(works):
                pooled = Pooled(self.pooling)
                pooled.add(rows)
                self._finish(pooled)
        finally:
            for work in works:
                work.seq.close()
        return n

    def _read_part(self, most: int) -> int:
        """Read at most `most` more tokens of the next text."""
        text = self.ids[self.next]
        if self._held is None:
            self._held, self._pooled = self._slot(), Pooled(self.pooling)
        begin = self._held.n_past
        end = min(len(text), begin + most)
        work = Work(self._held, text[begin:end], self.pooling.outputs(begin, end, len(text)))
        self._pooled.add(self.model.runner.hidden_states([work])[0])
        if end == len(text):
            self.close()
            self._finish(self._pooled)
        return end - begin

    def _slot(self) -> Slot:
        slot = Slot(self.model.runner)
        slot.use(self._applied)
        return slot

    def _finish(self, pooled: Pooled) -> None:
        # hidden states are divided by this, see Runner.hidden_states
        self._add(pooled.vector * float(self.model.hparams.scales.logits))

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None
