"""Causal rerankers: a model that answers yes or no to the question whether a document answers a query.

Qwen3-Reranker (arXiv:2506.05176) reads an instruction, the query and a document; the score is the logit of "yes" less
the logit of "no" after them. All pairs of a query begin with the same tokens, which are read once. The logits come from
the rows of the output matrix, or from a head in the file, as llama.cpp and `hybrid convert` write it.
"""

import re
import time
from collections.abc import Callable, Sequence

import numpy as np

from hybrid.quant.ggml.errors import Remedy, UnsupportedError, UsageError, shown
from hybrid.quant.ggml.reader import GGUFFile

from ..engine.chosen_logits import ChosenLogits
from ..loading.classifier import Classifier
from ..model import LoadedModel
from ..runner import Slot, Work
from ..text.literal_text import BREAK, LiteralText
from ..text.tokenizer import Tokenizer
from .pairs import TEMPLATE
from .rerank import ANSWERS, ByLogOdds, Pairs, finite, ranking, ranks

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
# from the model card of Qwen3-Reranker
PROMPT = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
TURN_TOKENS = 4096  # of documents, after which other texts may be read and the query is read again
_NAMED = re.compile(r"qwen3[-_. ]?(vl[-_. ]?)?rerank", re.IGNORECASE)
_FIELD = re.compile(r"{(instruction|query|document)}")


def prompt_of(gguf: GGUFFile) -> str | None:
    """The prompt of a causal reranker; None: the model is not a reranker.

    A file says so by its prompt, as llama.cpp writes it, or by its name.
    """
    stated = gguf.get(TEMPLATE, None)
    if isinstance(stated, str) and "{query}" in stated.partition("{document}")[0] and "{document}" in stated:
        return stated.replace(INSTRUCTION, "{instruction}", 1)
    names = [gguf.get(f"general.{key}", "") for key in ("name", "basename")]
    return PROMPT if any(isinstance(name, str) and _NAMED.search(name) for name in (*names, gguf.path.stem)) else None


class YesNoPrompts:
    """Makes the tokens of pairs."""

    def __init__(self, tokenizer: Tokenizer, prompt: str = PROMPT) -> None:
        self.tokenizer = tokenizer
        before, _, self._after = prompt.partition("{document}")
        # a space belongs to the word after it, which is the document's
        self._before = before.rstrip(" ")
        self._space = before[len(self._before) :]
        self._literal = LiteralText(tokenizer)

    @property
    def answers(self) -> list[int]:
        """The tokens of "yes" and "no". UnsupportedError: the vocabulary lacks one."""
        found = []
        for answer in ANSWERS:
            token = next((i for i, text in enumerate(self.tokenizer.vocabulary.tokens) if text == answer), None)
            if token is None:
                raise UnsupportedError(f'this vocabulary has no token "{answer}", an answer of yes/no rerankers.')
            found.append(token)
        return found

    def pairs(
        self, query: str, documents: Sequence[str], *, n_ctx: int, instruction: str | None = None, truncate: bool
    ) -> Pairs:
        """The tokens of the query with each document, of at most n_ctx tokens. Control tokens in texts stay text."""
        values = {"query": query, "instruction": INSTRUCTION if instruction is None else instruction}
        quoted = {name: self._literal.text(value) for name, value in values.items()}
        shared = self._ids(_FIELD.sub(lambda found: quoted[found[1]], self._before))
        end = self._ids(self._after)
        room = n_ctx - len(shared) - len(end)
        if room < 1:
            raise UsageError(
                f"the query is too large: it has {len(shared) + len(end)} tokens with the prompt around it, the "
                f"context has {n_ctx}.",
                remedy=Remedy.LARGER_CONTEXT,
            )
        rest, truncated = [], []
        for i, document in enumerate(documents):
            ids = self._ids(self._space + self._literal.text(document), continues=True)
            if len(ids) > room:
                if not truncate:
                    raise UsageError(
                        f"document {i + 1} is too large: it has {len(ids)} tokens, the context has {room} beside the "
                        "query.",
                        remedy=Remedy.TRUNCATE_OR_LARGER_CONTEXT,
                    )
                truncated.append(i)
            rest.append(ids[:room] + end)
        return Pairs(shared, rest, tuple(truncated))

    def _ids(self, text: str, *, continues: bool = False) -> list[int]:
        return self.tokenizer.encode(text, add_special=False, parse_special=True, continues=continues, dropped=BREAK)


Scores = Callable[[np.ndarray], np.ndarray]  # f64 [n] of hidden states f32 [n, n_embd]


def _of_answers(model: LoadedModel, answers: Sequence[int]) -> Scores:
    """Scores by the logits of "yes" and "no"."""
    logits = ChosenLogits(model.engine, answers)

    def scores(rows: np.ndarray) -> np.ndarray:
        found = logits(rows).astype(np.float64)
        return found[:, 0] - found[:, 1]

    return scores


def _of_head(model: LoadedModel, head: Classifier) -> Scores:
    """Scores by the file's head, in the bits of `Embedder.scores`."""
    scale = float(model.hparams.scales.logits)  # see Runner.hidden_states

    def scores(rows: np.ndarray) -> np.ndarray:
        found = np.stack([head.scores(row.astype(np.float64) * scale) for row in rows]).astype(np.float32)
        return ranking(found.astype(np.float64))

    return scores


class YesNoReranker(ByLogOdds):
    """A `Reranker`: a loaded causal model. UnsupportedError: its head has other labels, or its vocabulary no answer."""

    def __init__(self, model: LoadedModel, prompt: str = PROMPT) -> None:
        self.model, self.n_ctx = model, model.n_ctx
        head = Classifier.read(model.gguf, model.hparams.n_embd, model.hparams.eps)
        if head is not None and not ranks(head.labels):
            raise UnsupportedError(
                f"{model.path.name} has the labels {shown(', '.join(head.labels))}: a reranker has one, or yes and no."
            )
        self.prompts = YesNoPrompts(model.tokenizer, prompt)
        self._scores = _of_answers(model, self.prompts.answers) if head is None else _of_head(model, head)

    def pairs(
        self, query: str, documents: Sequence[str], *, instruction: str | None = None, truncate: bool = False
    ) -> Pairs:
        """See `Reranker`."""
        return self.prompts.pairs(query, documents, n_ctx=self.n_ctx, instruction=instruction, truncate=truncate)

    def begin(self, pairs: Pairs) -> "YesNoReading":
        """Begins to read pairs."""
        return YesNoReading(self.model, self._scores, pairs)


class YesNoReading:
    """A `ScoreReading`. It holds one sequence, with the shared tokens, and takes free ones for documents in a step."""

    def __init__(self, model: LoadedModel, scores: Scores, pairs: Pairs) -> None:
        self.model, self._scores_of, self.pairs = model, scores, pairs
        self._scores: list[float] = []
        self._held: Slot | None = None
        self._left = TURN_TOKENS
        self.n_read = 0

    @property
    def done(self) -> bool:
        return len(self._scores) == len(self.pairs.rest)

    @property
    def between(self) -> bool:
        return self._held is None

    def step(self, most: int) -> tuple[int, float]:
        begin, compiled = time.perf_counter(), self.model.compile_seconds
        n = self._read(most)
        self.n_read += n
        return n, time.perf_counter() - begin - (self.model.compile_seconds - compiled)

    def _read(self, most: int) -> int:
        held = self._held
        if held is None:
            held, self._left = Slot(self.model.runner), TURN_TOKENS
            self._held = held
        shared, rest = self.pairs.shared, self.pairs.rest[len(self._scores)]
        if held.n_past < len(shared):
            part = shared[held.n_past :][:most]
            self.model.eval([Work(held, part, "none")])
            return len(part)
        alone = held.n_past > len(shared) or len(rest) > most or not self.model.n_free
        n = self._read_part(held, most) if alone else self._read_together(held, most)
        self._left -= n
        if self.done or (self._left <= 0 and held.n_past <= len(shared)):
            self.close()
        return n

    def _read_together(self, held: Slot, most: int) -> int:
        """Read as many of the next documents whole as fit `most` tokens and the free sequences."""
        works: list[Work] = []
        n = 0
        try:
            for rest in self.pairs.rest[len(self._scores) :]:
                if not self.model.n_free or n + len(rest) > most:
                    break
                slot = Slot(self.model.runner)
                works.append(Work(slot, rest))
                slot.become(held)
                n += len(rest)
            self._add(self.model.runner.hidden_states(works))
        finally:
            for work in works:
                work.seq.close()
        return n

    def _read_part(self, held: Slot, most: int) -> int:
        """Read at most `most` more tokens of the next document in the sequence of the shared tokens."""
        n_shared, rest = len(self.pairs.shared), self.pairs.rest[len(self._scores)]
        begin = held.n_past - n_shared
        end = min(len(rest), begin + most)
        is_last = end == len(rest)
        rows = self.model.runner.hidden_states([Work(held, rest[begin:end], "last" if is_last else "none")])
        if is_last:
            self._add(rows)
            held.truncate(n_shared)  # a recurrent state cannot go back: it reads the shared tokens again
        return end - begin

    def _add(self, rows: Sequence[np.ndarray]) -> None:
        self._scores += self._scores_of(np.concatenate(rows)).tolist()

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def scores(self) -> np.ndarray:
        return finite(self._scores, self.model.path.name)
