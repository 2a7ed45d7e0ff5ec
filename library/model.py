"""A loaded model as a notebook uses it."""

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from hybrid.infer import LoadedModel
from hybrid.infer.answers.chat.dialect import ChatOptions
from hybrid.infer.answers.chat.tools import choice_of
from hybrid.infer.evaluate.embed import Embedder
from hybrid.infer.evaluate.pooling import Pooling, stated_pooling
from hybrid.infer.text.chat_template import ChatTemplate, special_tokens
from hybrid.quant.ggml.errors import Remedy, UnsupportedError, UsageError, shown

from .advice import advised
from .answer import Answer, Rounds
from .chat import Chat, Given
from .chat_files import loaded
from .functions import Functions
from .model_thread import Message, ModelThread, Round
from .scores import Score
from .settings import Settings, checked_settings

if TYPE_CHECKING:
    from hybrid.infer.text.tokenizer import Tokenizer

TOKENS = 256  # of a completion: a model that was not taught to answer never ends one
SLICE = 128  # tokens of embeddings that are read between two steps of answers


class Model:
    """A model that answers. `hybrid.load` makes one; any number of threads may use it.

    What begins like an earlier text is not read again, whoever asks. A model that makes embeddings only (an encoder)
    refuses the rest.
    """

    def __init__(
        self,
        model: LoadedModel | Embedder,
        *,
        parallel: int = 1,
        template: str | None = None,
        pooling: Pooling | None = None,
    ) -> None:
        self._embedder = model if isinstance(model, Embedder) else None
        self._answering: ModelThread | None = None
        if isinstance(model, Embedder):
            self.pooling, self._turn = model.pooling, threading.Lock()
            self._close: Callable[[], object] = weakref.finalize(self, model.close)
        else:
            self.pooling = pooling or stated_pooling(model.gguf) or Pooling.LAST
            tokens = special_tokens(model.tokenizer) if template is not None else {}
            given = model.chat_template if template is None else ChatTemplate(template, name="template", tokens=tokens)
            self._answering = ModelThread(model, parallel, given)
            self._turn, self._close = self._answering.spare, self._answering.close

    # --- what it is ---
    @property
    def answering(self) -> ModelThread:
        """What answers. UnsupportedError: it is an encoder."""
        if self._answering is None:
            assert self._embedder is not None
            raise UnsupportedError(
                f"{self._embedder.path.name} is an encoder: it makes embeddings and no text.", remedy=Remedy.EMBEDDINGS
            )
        return self._answering

    @property
    def _loaded(self) -> LoadedModel | Embedder:
        """The model or the encoder of the library."""
        loaded = self._embedder if self._answering is None else self._answering.model
        assert loaded is not None
        return loaded

    @property
    def tokenizer(self) -> "Tokenizer":
        """The file's own."""
        return self._loaded.tokenizer

    @property
    def context(self) -> int:
        """Tokens that a text and its answer may have together."""
        return self._loaded.n_ctx

    @property
    def name(self) -> str:
        """As its file says it, with the type of its weights."""
        return self._loaded.path.name if self._answering is None else self._answering.model.description

    def __repr__(self) -> str:
        return f"<Model {self.name}, context {self.context}>"

    # --- texts ---
    def complete(self, prompt: str | Sequence[int], *, stream: bool = False, **settings: Unpack[Settings]) -> Answer:
        """What follows a text, or tokens: at most 256 tokens unless the settings say it.

        stream  the answer is returned at once, and is written while it is iterated. Several that are begun like this
                are computed together
        HybridError: the prompt is empty or too long, or a setting cannot be used.
        """
        if not isinstance(prompt, str | Sequence):
            raise UsageError(f"the prompt is {shown(type(prompt).__name__)}, expected a text or tokens.")
        with advised():
            answering = self.answering
            made = answering.to_text(prompt, checked_settings(settings, answering.sampling, TOKENS))
            return Answer(answering, _only(made), stream=stream)

    def chat(
        self,
        system: str = "",
        *,
        tools: Sequence[Given] = (),
        think: bool | None = None,
        **settings: Unpack[Settings],
    ) -> Chat:
        """A conversation.

        system    what the model is told before all
        tools     what it may call: Python functions, of which it is told the name, the docstring and the types of the
                  parameters; or descriptions as OpenAI has them, whose calls are returned
        think     whether it thinks before it answers; None: as its template has it
        settings  of all answers
        HybridError: the model has no chat template, or a tool cannot be one.
        """
        with advised():
            return Chat(self.answering, system, tools, think, settings)

    def reply(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Given] = (),
        tool_choice: str | Mapping[str, Any] = "auto",
        think: bool | None = None,
        stream: bool = False,
        **settings: Unpack[Settings],
    ) -> Answer:
        """The next message of a conversation that somebody else keeps, as OpenAI writes one. No function is called:
        the answer has `tool_calls`."""
        with advised():
            answering, described = self.answering, Functions(tools).tools
            asked = ChatOptions(described, choice_of(tool_choice, described), think=think)
            made = answering.to_messages(messages, asked, checked_settings(settings, answering.sampling, -1))
            return Answer(answering, _only(made), stream=stream)

    def load_chat(self, path: str | os.PathLike[str], *, tools: Sequence[Callable[..., Any]] = ()) -> Chat:
        """A chat that `Chat.save` or `hybrid run` has kept, which goes on without reading anything again.

        tools: the functions that it had; without them their calls are returned. HybridError: it is another model's.
        """
        with advised():
            found = loaded(self.answering, Path(path))
            given = {getattr(function, "__name__", ""): function for function in tools}
            had = [given.pop(tool.name, tool.as_given) for tool in found.tools]
            if given:
                raise UsageError(f"{shown(path)} has no tool {shown(next(iter(given)))}: new ones are for model.chat.")
            chat = Chat(self.answering, found.system, had, found.think)
            chat.go_on_from(found.turns)
            return chat

    # --- measuring ---
    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of a text, with what the model wants around it. special: tokens like "<|im_end|>" count where they
        are written out."""
        return self.tokenizer.encode(text, parse_special=special)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return self.tokenizer.decode(list(tokens))

    def embed(self, texts: str | Sequence[str], *, normalize: bool = True) -> np.ndarray:
        """Vectors of texts, f32 [n, width], or of one text, f32 [width]; normalize: of length 1.

        HybridError: a text is empty, or longer than the context.
        """
        many = [texts] if isinstance(texts, str) else list(texts)
        with advised(), self._turn:
            if self._embedder is not None:
                vectors = self._embedder.embed(many, normalize=normalize)
            else:
                vectors = self._read_vectors(many, normalize=normalize)
        return vectors[0] if isinstance(texts, str) else vectors

    def _read_vectors(self, texts: Sequence[str], *, normalize: bool) -> np.ndarray:
        """In the service's thread, a slice at a time: answers go on in between."""
        from hybrid.infer.evaluate.embed_reading import ModelReading, text_ids

        model, service = self.answering.model, self.answering.service
        ids = text_ids(model.tokenizer, texts, model.n_ctx, truncate=False, has_context=True)
        if not ids:
            return np.zeros((0, model.hparams.n_embd), np.float32)
        reading = ModelReading(model, self.pooling, ids)
        try:
            while not reading.done:
                service.call(lambda: reading.step(SLICE)).result()
            return reading.vectors(normalize=normalize)
        finally:
            service.call(reading.close)

    def score(self, text: str, *, given: str = "") -> Score:
        """How likely a text is, token by token; given: what stands before it and is not scored.

        Without it the first token is scored only if the model begins every text with a token of its own.
        """
        answering = self.answering
        with advised():
            before, ids = self._tokens_behind(given, text)
            settings: Settings = {"tokens": 0, "temperature": 0.0}
            made = answering.to_text(ids, checked_settings(settings, answering.sampling, 0))
            made.job.prompt_top, made.job.remember, made.job.speculate = 0, False, False
            Answer(answering, _only(made), stream=False)
        known = [(i, one.logprob) for i, one in zip(ids, made.job.prompt_logprobs, strict=True) if one is not None]
        scored = known[len(known) - (len(ids) - before) :]
        stream = self.tokenizer.stream()
        return Score(tuple(i for i, _ in scored), tuple(stream.push(i) for i, _ in scored), tuple(p for _, p in scored))

    def _tokens_behind(self, given: str, text: str) -> tuple[int, list[int]]:
        """The tokens of both, and how many of them are not scored: those of `given`, and the first in any case."""
        tokenizer = self.tokenizer
        ids = tokenizer.encode(given + text)
        if not given:
            return 1, ids
        before = tokenizer.encode(given)
        if ids[: len(before)] == before:
            return len(before), ids
        # no token ends there: the two are encoded by themselves, as a model that goes on from `given` would see them
        return len(before), [*before, *tokenizer.encode(text, add_special=False, continues=True)]

    # --- ending ---
    def close(self) -> None:
        """Stops what is written and gives the memory back."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _only(made: Round) -> Rounds:
    yield made
