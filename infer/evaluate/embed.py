"""Embeddings: one vector per text, from an encoder or a generating model.

with Embedder("bge-small.gguf") as embedder:
    vectors = embedder.embed(["how to read a file", "opening files"])   # f32 [2, n_embd], of length 1
    likeness = vectors @ vectors.T

The bits of a vector depend on its text alone: not on the texts beside it, nor on the number of threads.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

import numpy as np

from hybrid.quant.ggml.errors import Remedy, UnsupportedError, UsageError, shown
from hybrid.quant.ggml.split import open_gguf

from ..architectures import encoder_of
from ..engine.encoder import Encoder
from ..engine.network import family_of
from ..kernels.build.jit import CompileProgress
from ..loading.classifier import Classifier
from ..loading.dense import Dense
from ..loading.model_file import fitting_tokenizer, notes_on
from ..loading.options import DEFAULT_UBATCH, LoadFields, LoadOptions, merged
from ..model import LoadedModel
from ..progress import TokenProgress
from ..runner import Work
from ..text.tokenizer import Tokenizer, load_tokenizer
from .embed_prompts import EmbedPrompts, check_dimensions
from .embed_reading import check_ids, text_ids
from .pairs import PairTokens, Scored, TextIds
from .pooling import Pooled, Pooling, finished, scored_pooling, stated_pooling

MOST_SEQUENCES = 32  # limit on texts that a generating model reads together


class Embedder:
    """Makes embeddings with the model at `path`.

    options, fields, progress   as in `LoadedModel.load`, except n_seq_max, which is chosen here. n_ctx: limit on the
               tokens of a text; 0: the context that the model was trained for
    pooling    None: the file's; if it has none, the mean for an encoder, the last token for a generating model

    Raises FormatError, UnsupportedError or UsageError.
    """

    def __init__(
        self,
        path: Path | str,
        options: LoadOptions | None = None,
        *,
        pooling: Pooling | None = None,
        progress: CompileProgress | None = None,
        **fields: Unpack[LoadFields],
    ) -> None:
        given = merged(options, fields)
        self.gguf = open_gguf(path)
        self.path = Path(path)
        arch = self.gguf.get("general.architecture", "")
        self.encoder = Encoder.load(path, given, progress=progress) if encoder_of(self.gguf) else None
        # without any, `embed` refuses a model that scores texts
        self._chosen = pooling
        self.pooling = pooling or stated_pooling(self.gguf) or (Pooling.MEAN if self.encoder else Pooling.LAST)
        if self.encoder:
            usual = self.encoder.n_ctx
        else:
            usual = family_of(self.gguf).hparams.read(self.gguf, arch).usual_context(self.gguf.tensors)
        if self.encoder and given.n_ctx > usual:
            raise UsageError(
                f"a context of {given.n_ctx} tokens: {self.path.name} has {usual} positions.",
                remedy=Remedy.SMALLER_CONTEXT,
            )
        self.n_ctx = given.n_ctx or usual
        self._model: LoadedModel | None = None

        def load_model(n_ctx: int, n_seq: int) -> LoadedModel:
            return LoadedModel.load(path, given, n_ctx=n_ctx, n_seq_max=n_seq, progress=progress)

        self._load_model = load_model

        if self.encoder:
            self.classifier, self.dense = self.encoder.classifier, self.encoder.dense
        else:
            hparams = family_of(self.gguf).hparams.read(self.gguf, arch)
            self.classifier = Classifier.read(self.gguf, hparams.n_embd, hparams.eps)
            self.dense = Dense.read(self.gguf, hparams.n_embd)

    @property
    def numa_note(self) -> str:
        """As `LoadedModel.numa_note`. A generating model has none before it has read a text."""
        holder = self.encoder or self._model
        return holder.numa_note if holder else ""

    @property
    def file_notes(self) -> list[str]:
        """As `LoadedModel.file_notes`."""
        return notes_on(self.gguf, self.encoder.family.hparams if self.encoder else family_of(self.gguf).hparams)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return fitting_tokenizer(self.gguf, self.encoder.n_vocab) if self.encoder else load_tokenizer(self.gguf)

    @cached_property
    def prompts(self) -> EmbedPrompts:
        """The prompts that the model was trained with. FormatError: a key has a wrong value."""
        return EmbedPrompts.read(self.gguf)

    def tokens(
        self, texts: Sequence[str], *, truncate: bool = False, prompt_name: str | None = None
    ) -> list[list[int]]:
        """The ids of every text, with the special tokens that the model wants around it.

        Raises UsageError, which names the first text (counted from 1) that is empty or too long. truncate: too long
        texts lose their last tokens, but keep the EOS that the model puts at the end. prompt_name: see
        `EmbedPrompts.named`.
        """
        prompt, has_context = self.prompts.named(prompt_name), not self.encoder
        prompted = [prompt + text for text in texts]
        return text_ids(self.tokenizer, prompted, self.n_ctx, truncate=truncate, has_context=has_context).ids

    @property
    def by_token(self) -> bool:
        """Whether the model makes a vector of every token (ColBERT): dense layers, and no pooling in the file."""
        return bool(self.dense) and stated_pooling(self.gguf) is None

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the scores of a model that scores texts; empty: it makes embeddings only."""
        return self.classifier.labels if self.classifier else ()

    @property
    def makes_embeddings(self) -> bool:
        """Whether `embed` works: not with a model that scores texts, or makes a vector of every token, unless a pooling
        was chosen."""
        return self._chosen is not None or (self.classifier is None and not self.by_token)

    @property
    def n_labels(self) -> int:
        return len(self.labels)

    @cached_property
    def pairs(self) -> PairTokens:
        """Makes the tokens of texts and pairs for `scores_of_ids`."""
        return PairTokens(self.gguf, self.tokenizer, self.n_ctx, has_context=not self.encoder)

    def scores(
        self,
        texts: Sequence[Scored],
        *,
        truncate: bool = False,
        progress: TokenProgress | None = None,
    ) -> np.ndarray:
        """Scores of texts, or of pairs (query, document), f32 [n, n_labels]: logits, before any softmax or sigmoid.

        truncate: a document that does not fit the context loses its last tokens; otherwise it is a UsageError.
        UnsupportedError: the model has no head that scores texts.
        """
        return self.scores_of_ids(self.pairs.all(texts, truncate=truncate), progress=progress)

    def scores_of_ids(self, texts: Sequence[TextIds], *, progress: TokenProgress | None = None) -> np.ndarray:
        """`scores` of tokens, as `pairs` makes them."""
        if self.classifier is None:
            raise UnsupportedError(f"{self.path.name} has no cls.output.weight: it makes embeddings, and no scores.")
        ids, seconds = [text.ids for text in texts], [text.second for text in texts]
        check_ids(ids, self.n_ctx, self.encoder.n_vocab if self.encoder else None)
        pooling = scored_pooling(self.gguf, generates=self.encoder is None)
        vectors = self._all_vectors(ids, pooling, seconds, progress)
        rows = [self.classifier.scores(vector) for vector in vectors]
        return np.array(rows, np.float32).reshape(len(rows), self.n_labels)

    def token_vectors(
        self,
        texts: Sequence[str],
        *,
        normalize: bool = True,
        truncate: bool = False,
        prompt_name: str | None = None,
        progress: TokenProgress | None = None,
    ) -> list[np.ndarray]:
        """A vector of every token of each text, f32 [tok, n_embd], for late interaction (`max_similarity`).

        The special tokens around a text have vectors, too. Marks such as "[Q] " and "[D] ", which ColBERT models were
        trained with, are the caller's. truncate, prompt_name: see `tokens`.
        """
        ids = self.tokens(texts, truncate=truncate, prompt_name=prompt_name)
        check_ids(ids, self.n_ctx, self.encoder.n_vocab if self.encoder else None)
        total, done, found = sum(map(len, ids)), 0, []
        for rows in self._rows(ids):
            vectors = np.stack([self.dense.apply(row.astype(np.float64)) for row in rows])
            found.append(finished(vectors, normalize=normalize))
            done += len(rows)
            if progress:
                progress(done, total)
        return found

    def _rows(self, ids: Sequence[Sequence[int]]) -> Iterator[np.ndarray]:
        """The rows of all tokens of each text."""
        if self.encoder is None:
            yield from (rows * np.float64(scale) for _, rows, scale in self._hidden(ids, slice(None)))
            return
        for part in self.encoder.passes([len(text) for text in ids]):
            yield from self.encoder.encode([ids[i] for i in part])

    def embed(
        self,
        texts: Sequence[str],
        *,
        normalize: bool = True,
        truncate: bool = False,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        progress: TokenProgress | None = None,
    ) -> np.ndarray:
        """Vectors of the texts, f32 [n, n_embd]. normalize: to length 1. progress(tokens done, tokens in all).

        truncate, prompt_name: see `tokens`; dimensions: see `embed_ids`.
        """
        ids = self.tokens(texts, truncate=truncate, prompt_name=prompt_name)
        return self.embed_ids(ids, normalize=normalize, dimensions=dimensions, progress=progress)

    def embed_ids(
        self,
        ids: Sequence[Sequence[int]],
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        progress: TokenProgress | None = None,
    ) -> np.ndarray:
        """`embed` of token ids, as `tokens` returns them.

        dimensions: the vectors are cut to so many values, for which `prompts.dimensions` says whether the model was
        trained.

        Raises UsageError when an id is not in the vocabulary, or a text is empty or longer than the context.
        """
        if not self.makes_embeddings:
            what = "makes a vector of every token: it has no pooling."
            if self.classifier:
                what = f"scores texts ({shown(', '.join(self.labels))}): it makes no embeddings."
            raise UnsupportedError(f"{self.path.name} {what}", remedy=Remedy.POOLING)
        check_dimensions(dimensions, self.n_embd)
        # a generating model checks its tokens itself
        check_ids(ids, self.n_ctx, self.encoder.n_vocab if self.encoder else None)
        vectors = self._all_vectors(ids, self.pooling, (), progress)
        rows = np.stack([self.dense.apply(vector) for vector in vectors]) if vectors else np.zeros((0, self.n_embd))
        return finished(rows, normalize=normalize, dimensions=dimensions)

    @property
    def n_embd(self) -> int:
        """The width of a vector."""
        own = (
            self.encoder.n_embd
            if self.encoder
            else self.gguf.get(f"{self.gguf.get('general.architecture')}.embedding_length")
        )
        return self.dense.n_out(int(own))

    def _all_vectors(
        self, ids: Sequence[Sequence[int]], pooling: Pooling, seconds: Sequence[int], progress: TokenProgress | None
    ) -> list[np.ndarray]:
        """The vector of each text, f64. seconds: as in `Encoder.encode`."""
        total, done, vectors = sum(map(len, ids)), 0, []
        found = self._encoded(ids, pooling, seconds) if self.encoder else self._generating(ids, pooling)
        for n, vector in found:
            vectors.append(vector)
            done += n
            if progress:
                progress(done, total)
        return vectors

    def _encoded(
        self, ids: Sequence[Sequence[int]], pooling: Pooling, seconds: Sequence[int]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """For each text, the number of its tokens and its vector in f64."""
        assert self.encoder is not None
        for part in self.encoder.passes([len(text) for text in ids]):
            second = [seconds[i] for i in part] if seconds else ()
            for rows in self.encoder.encode([ids[i] for i in part], second):
                yield len(rows), _pooled(rows, pooling)

    def _generating(self, ids: Sequence[Sequence[int]], pooling: Pooling) -> Iterator[tuple[int, np.ndarray]]:
        output = {Pooling.MEAN: slice(None), Pooling.CLS: slice(0, 1), Pooling.LAST: slice(-1, None)}[pooling]
        for n, rows, scale in self._hidden(ids, output):
            yield n, _pooled(rows, pooling) * scale

    def _hidden(self, ids: Sequence[Sequence[int]], output: slice) -> Iterator[tuple[int, np.ndarray, float]]:
        """For each text, the number of its tokens, the hidden states of the tokens in `output`, and their factor."""
        longest = max(map(len, ids), default=0)
        if self._model is None or self._model.n_ctx < longest:
            self._close_model()
            # as many sequences as are needed to fill a ubatch with texts of this length
            n_seq = max(1, min(MOST_SEQUENCES, len(ids), 4 * DEFAULT_UBATCH // longest))
            self._model = self._load_model(longest, n_seq)
            kinds = {self._model.hparams.variant(self.gguf.tensors, n) for n in (longest, self.n_ctx)}
            if len(kinds) > 1:  # n_ctx alone decides on weights for long contexts, not the lengths of these texts
                self._close_model()
                self._model = self._load_model(self.n_ctx, n_seq)
        model = self._model
        # hidden states are divided by this, see Runner.hidden_states
        scale = float(model.hparams.scales.logits)
        size = model.n_seq_max
        for first in range(0, len(ids), size):
            part = ids[first : first + size]
            works = [Work(model.sequence(), text, output) for text in part]
            try:
                for work, rows in zip(works, model.runner.hidden_states(works), strict=True):
                    yield len(work.ids), rows, scale
            finally:
                for work in works:
                    work.seq.close()

    def _close_model(self) -> None:
        if self._model is not None:
            self._model.close()
            self._model = None

    def close(self) -> None:
        self._close_model()
        if self.encoder:
            self.encoder.close()
        self.gguf.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _pooled(rows: np.ndarray, pooling: Pooling) -> np.ndarray:
    pooled = Pooled(pooling)
    pooled.add(rows[pooling.outputs(0, len(rows), len(rows))])
    return pooled.vector


__all__ = ["Embedder", "Pooling"]
