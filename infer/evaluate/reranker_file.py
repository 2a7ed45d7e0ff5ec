"""A reranker loaded from a file, for texts that are all known: `hybrid rerank`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np

from hybrid.quant.ggml.errors import UnsupportedError, shown
from hybrid.quant.ggml.split import open_gguf

from ..architectures import encoder_of
from ..engine.network import family_of
from ..kernels.build.jit import CompileProgress
from ..loading.model_file import notes_on
from ..loading.options import DEFAULT_UBATCH, LoadFields, LoadOptions, merged
from ..model import LoadedModel
from ..progress import TokenProgress
from ..text.tokenizer import load_tokenizer
from .cross_encoder import CrossEncoder
from .embed import Embedder
from .late_interaction import LateInteraction
from .rerank import RERANKERS, Pairs, read, relevance
from .yes_no import YesNoPrompts, YesNoReranker, prompt_of

MOST_TOGETHER = 32  # documents that a model reads together


class RerankerFile:
    """Scores documents with the model at `path`.

    options, fields, progress   as in `LoadedModel.load`, except n_seq_max, which is chosen here. n_ctx: limit on the
               tokens of a query with a document; 0: the context that the model was trained for

    Raises FormatError, UnsupportedError (the model is no reranker) or UsageError.
    """

    def __init__(
        self,
        path: Path | str,
        options: LoadOptions | None = None,
        *,
        progress: CompileProgress | None = None,
        **fields: Unpack[LoadFields],
    ) -> None:
        self.path, self._options, self._compiling = Path(path), merged(options, fields), progress
        self.gguf = open_gguf(path)
        arch = self.gguf.get("general.architecture", "")
        self._encoder: CrossEncoder | LateInteraction | None = None
        if encoder_of(self.gguf):
            self._encoder = self._loaded_encoder()
            self.n_ctx = self._encoder.n_ctx
            self.file_notes, self.numa_note = self._encoder.embedder.file_notes, self._encoder.embedder.numa_note
            return
        prompt = prompt_of(self.gguf)
        if prompt is None:
            raise self._no_reranker("it is no reranker")
        self._family = family_of(self.gguf)
        self._hparams = self._family.hparams.read(self.gguf, arch)
        self.n_ctx = self._options.n_ctx or self._hparams.usual_context(self.gguf.tensors)
        self.file_notes, self.numa_note = notes_on(self.gguf, self._family.hparams), ""
        self._prompt, self._prompts = prompt, YesNoPrompts(load_tokenizer(self.gguf), prompt)

    def relevance(self, scores: np.ndarray) -> np.ndarray:
        """See `Reranker`."""
        return relevance(scores) if self._encoder is None else self._encoder.relevance(scores)

    def _loaded_encoder(self) -> CrossEncoder | LateInteraction:
        embedder = Embedder(self.path, self._options, progress=self._compiling)
        if embedder.by_token:
            return LateInteraction(embedder)
        if embedder.classifier is None:
            raise self._no_reranker("it makes embeddings only")
        found = CrossEncoder(embedder)
        if not found.ranks:
            raise self._no_reranker(f"it has the labels {shown(', '.join(found.labels))}, a reranker has one")
        return found

    def _no_reranker(self, why: str) -> UnsupportedError:
        return UnsupportedError(f"{self.path.name} scores no documents: {why}. Needed: {RERANKERS}.")

    def pairs(
        self, query: str, documents: Sequence[str], *, instruction: str | None = None, truncate: bool = False
    ) -> Pairs:
        """See `Reranker`."""
        if self._encoder is not None:
            return self._encoder.pairs(query, documents, instruction=instruction, truncate=truncate)
        return self._prompts.pairs(query, documents, n_ctx=self.n_ctx, instruction=instruction, truncate=truncate)

    def scores(self, pairs: Pairs, progress: TokenProgress | None = None) -> np.ndarray:
        """Log odds of each document, f64 [n]. progress(tokens done, tokens in all)."""
        if self._encoder is not None:
            return read(self._encoder.begin(pairs), progress)
        n_seq = 1 + max(1, min(MOST_TOGETHER, len(pairs.rest), DEFAULT_UBATCH // max(1, min(map(len, pairs.rest)))))
        variant = self._hparams.variant
        # n_ctx alone decides on weights for long contexts, not the lengths of these texts
        alike = variant(self.gguf.tensors, pairs.longest) == variant(self.gguf.tensors, self.n_ctx)
        with LoadedModel.load(
            self.path,
            self._options,
            n_ctx=pairs.longest if alike else self.n_ctx,
            n_seq_max=n_seq,
            progress=self._compiling,
        ) as model:
            self.numa_note = model.numa_note
            return read(YesNoReranker(model, self._prompt).begin(pairs), progress)

    def close(self) -> None:
        if self._encoder is not None:
            self._encoder.embedder.close()
        self.gguf.close()

    def __enter__(self) -> "RerankerFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
