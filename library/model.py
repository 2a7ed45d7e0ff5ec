"""A loaded model: completions, chats, embeddings, scores."""

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from .images import seen
from .model_thread import Message, ModelThread, Round
from .pipeline.model_eyes import ModelEyes
from .scores import Score
from .settings import Settings, checked_settings

if TYPE_CHECKING:
    from hybrid.infer.text.tokenizer import Tokenizer

TOKENS = 256  # default limit of a completion: a base model never ends one
SLICE = 128  # tokens of texts that are read between two steps of answers


class Model:
    """A model, made by `hybrid.load`. Any number of threads may use it.

    A prompt that begins like an earlier one reuses that work, whoever asks. An encoder makes embeddings only and
    refuses everything else.
    """

    def __init__(
        self,
        model: LoadedModel | Embedder,
        *,
        parallel: int = 1,
        template: str | None = None,
        pooling: Pooling | None = None,
        mmproj: Path | bool | None = None,
        adapters: Sequence[str] | None = None,
    ) -> None:
        """mmproj: see `hybrid.load`; adapters: their names, None: of their files."""
        self._embedder = model if isinstance(model, Embedder) else None
        self._answering: ModelThread | None = None
        if isinstance(model, Embedder):
            self.pooling, self._turn = model.pooling, threading.Lock()
            self._close: Callable[[], object] = weakref.finalize(self, model.close)
        else:
            self.pooling = pooling or stated_pooling(model.gguf) or Pooling.LAST
            tokens = special_tokens(model.tokenizer) if template is not None else {}
            given = model.chat_template if template is None else ChatTemplate(template, name="template", tokens=tokens)
            eyes = ModelEyes(model, mmproj if isinstance(mmproj, Path) else None, off=mmproj is False)
            self._answering = ModelThread(model, parallel, given, eyes, adapters)
            self._turn, self._close = self._answering.spare, self._answering.close

    # --- properties ---
    @property
    def answering(self) -> ModelThread:
        """The thread that answers. UnsupportedError: the model is an encoder."""
        if self._answering is None:
            assert self._embedder is not None
            raise UnsupportedError(
                f"{self._embedder.path.name} is an encoder: it makes embeddings only.", remedy=Remedy.EMBEDDINGS
            )
        return self._answering

    @property
    def _loaded(self) -> LoadedModel | Embedder:
        """The loaded model or encoder of `hybrid.infer`."""
        loaded = self._embedder if self._answering is None else self._answering.model
        assert loaded is not None
        return loaded

    @property
    def tokenizer(self) -> "Tokenizer":
        """The tokenizer of the file."""
        return self._loaded.tokenizer

    @property
    def context(self) -> int:
        """Tokens of a text and its answer together."""
        return self._loaded.n_ctx

    @property
    def name(self) -> str:
        """The name in the file, with the type of its weights."""
        return self._loaded.path.name if self._answering is None else self._answering.model.description

    def __repr__(self) -> str:
        return f"<Model {self.name}, context {self.context}>"

    # --- texts ---
    def complete(self, prompt: str | Sequence[int], *, stream: bool = False, **settings: Unpack[Settings]) -> Answer:
        """Continues a text or tokens; at most 256 tokens unless the settings say otherwise.

        stream  return the answer at once; it is generated while it is iterated. Several started like this are computed
                together
        HybridError: the prompt is empty or too long, or a setting is invalid.
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
        images: Sequence[Any] = (),
        **settings: Unpack[Settings],
    ) -> Chat:
        """Starts a conversation.

        system    the system message
        tools     tools that the model may call: Python functions, described to it by name, docstring and types,
                  or descriptions in OpenAI's format, whose calls are returned
        think     whether the model thinks before it answers; None: as its template decides
        images    pictures that the first question is about, as of `Chat.say`
        settings  of all answers
        HybridError: the model has no chat template, a tool is invalid, or a picture cannot be read.
        """
        with advised():
            chat = Chat(self.answering, system, tools, think, settings)
            chat.pictures = seen(self.answering.eyes, images)
            return chat

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
        """Answers a conversation that the caller keeps, as messages in OpenAI's format. No function is called: the
        answer has `tool_calls`. A content may be a list of parts, also of {"type": "image", "image": picture}, with
        pictures as of `Chat.say`."""
        with advised():
            answering, described = self.answering, Functions(tools).tools
            asked = ChatOptions(described, choice_of(tool_choice, described), think=think)
            made = answering.to_messages(messages, asked, checked_settings(settings, answering.sampling, -1))
            return Answer(answering, _only(made), stream=stream)

    def load_chat(
        self,
        path: str | os.PathLike[str],
        *,
        tools: Sequence[Callable[..., Any]] = (),
        lora: str | Mapping[str, float] | None = None,
    ) -> Chat:
        """Loads a chat that `Chat.save` or `hybrid run` has saved; nothing is read again.

        tools  the functions that it had; without them calls are returned
        lora   the adapter that it had, as of `chat`
        HybridError: it belongs to another model, or was read with other adapters
        """
        with advised():
            settings: Settings = {} if lora is None else {"lora": lora}
            found = loaded(self.answering, Path(path), checked_settings(settings, self.answering.sampling, 0))
            given = {getattr(function, "__name__", ""): function for function in tools}
            had = [given.pop(tool.name, tool.as_given) for tool in found.tools]
            if given:
                raise UsageError(f"{shown(path)} has no tool {shown(next(iter(given)))}: new ones are for model.chat.")
            chat = Chat(self.answering, found.system, had, found.think, settings)
            chat.go_on_from(found)
            return chat

    # --- measuring ---
    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text, with the tokens that the model adds around it. special: parse special tokens such as
        "<|im_end|>" in the text."""
        return self.tokenizer.encode(text, parse_special=special)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of token ids."""
        return self.tokenizer.decode(list(tokens))

    def embed(self, texts: str | Sequence[str], *, normalize: bool = True) -> np.ndarray:
        """Vectors of texts, f32 [n, width], or of one text, f32 [width]; normalize: to length 1.

        HybridError: a text is empty, or longer than the context; or one is no text but a picture, say.
        """
        many = list(texts) if isinstance(texts, Iterable) and not isinstance(texts, str) else [texts]
        if wrong := [type(one).__name__ for one in many if not isinstance(one, str)]:
            raise UsageError(f"embeddings are of texts, found a {wrong[0]}. No model here makes any of pictures.")
        with advised(), self._turn:
            if self._embedder is not None:
                vectors = self._embedder.embed(many, normalize=normalize)
            else:
                vectors = self._read_vectors(many, normalize=normalize)
        return vectors[0] if isinstance(texts, str) else vectors

    def _read_vectors(self, texts: Sequence[str], *, normalize: bool) -> np.ndarray:
        """Computes vectors in the service's thread, in slices, so that answers continue in between."""
        from hybrid.infer.evaluate.embed_reading import ModelReading, text_ids

        model, service = self.answering.model, self.answering.service
        ids = text_ids(model.tokenizer, texts, model.n_ctx, truncate=False, has_context=True).ids
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
        """Log-probability of a text, token by token; given: text before it, which is not scored.

        Without `given` the first token is scored only if the model begins every text with BOS.
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
        """The tokens of both texts, and how many are not scored: the tokens of `given`, and always the first."""
        tokenizer = self.tokenizer
        ids = tokenizer.encode(given + text)
        if not given:
            return 1, ids
        before = tokenizer.encode(given)
        if ids[: len(before)] == before:
            return len(before), ids
        # no token ends at the boundary: encode both texts alone, as a model that continues `given` sees them
        return len(before), [*before, *tokenizer.encode(text, add_special=False, continues=True)]

    # --- ending ---
    def close(self) -> None:
        """Stops running answers and frees the memory."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _only(made: Round) -> Rounds:
    yield made
