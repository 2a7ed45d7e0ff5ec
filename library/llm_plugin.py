"""The plug-in for `llm` (https://llm.datasette.io): `llm -m hybrid/NAME`.

Our modules are imported only when a model answers: every command of `llm` loads this one.
"""

import json
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import llm
from llm.parts import StreamEvent
from pydantic import Field

if TYPE_CHECKING:
    import hybrid

    from .answer import Answer

PREFIX = "hybrid/"
BUNDLED = "bundled"  # the name of the small model in the package
KEPT = 2  # models that stay loaded
PICTURES = {"image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp", "image/x-ms-bmp"}


class LlmSettings(llm.Options):
    """Settings of `-o NAME VALUE`. The model file's values are the defaults."""

    max_tokens: int | None = Field(default=None, description="Maximum tokens of the answer")
    temperature: float | None = Field(default=None, description="0: always the most likely token")
    top_p: float | None = Field(
        default=None, description="Keep the most likely tokens whose probabilities add up to this"
    )
    top_k: int | None = Field(default=None, description="Keep this many of the most likely tokens; 0: all")
    min_p: float | None = Field(default=None, description="Drop tokens less likely than this times the most likely one")
    repeat_penalty: float | None = Field(
        default=None, description="Penalty on recent tokens: divides their logits; 1: off"
    )
    presence_penalty: float | None = Field(
        default=None, description="Subtracted once from the logits of recent tokens; 0: off"
    )
    frequency_penalty: float | None = Field(
        default=None, description="Subtracted from the logits of recent tokens per occurrence; 0: off"
    )
    seed: int | None = Field(default=None, description="The same seed gives the same answer")
    stop: str | None = Field(default=None, description="A text that ends the answer")
    regex: str | None = Field(default=None, description="A regular expression that the whole answer matches")
    grammar: str | None = Field(default=None, description="A grammar of the whole answer, in GBNF or Lark")
    think: bool | None = Field(default=None, description="Whether the model thinks before it answers")
    context: int | None = Field(default=None, ge=1, description="Maximum tokens of the conversation")
    keys_values: Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "iq4_nl", "q4_0"] | None = Field(
        default=None, description="Type of the KV cache, as in f16, q8_0 or q4_0"
    )

    @property
    def loading(self) -> dict[str, Any]:
        """The settings for `hybrid.load`."""
        return self.model_dump(include={"context", "keys_values"}, exclude_none=True)

    @property
    def answering(self) -> dict[str, Any]:
        """The settings for `Model.reply`."""
        given = self.model_dump(exclude={"context", "keys_values", "max_tokens"}, exclude_none=True)
        return given if self.max_tokens is None else {**given, "tokens": self.max_tokens}


# --- models that are loaded ---
_loaded: "OrderedDict[tuple[Any, ...], hybrid.Model]" = OrderedDict()
_loading = threading.Lock()


def loaded(name: str, options: dict[str, Any]) -> "hybrid.Model":
    """The model, loaded with these options; it stays loaded for the next turn. HybridError: it cannot be loaded."""
    import hybrid

    key = (name, *sorted(options.items()))
    with _loading:
        if key not in _loaded:
            for other in [other for other in _loaded if other[0] == name]:  # loaded with other options: replace it
                del _loaded[other]
            _loaded[key] = hybrid.load(None if name == BUNDLED else name, **options)
            while len(_loaded) > KEPT:
                _loaded.popitem(last=False)  # it closes when its last answer has ended
        _loaded.move_to_end(key)
        return _loaded[key]


def unload() -> None:
    """Closes all loaded models."""
    with _loading:
        while _loaded:
            _loaded.popitem()[1].close()


# --- answers ---
class _Shared:
    """The common part of LlmChat and AsyncChat."""

    def __init__(self, name: str) -> None:
        self.name, self.model_id = name, PREFIX + name

    def answer(self, prompt: llm.Prompt) -> "Answer":
        """Starts an answer."""
        from .llm_messages import messages_of, tools_of

        options: Any = prompt.options
        settings = options.answering
        if prompt.schema is not None:
            settings["schema"] = prompt.schema
        model, messages = loaded(self.name, options.loading), messages_of(prompt.messages)
        if model.answering.template is not None:
            return model.reply(messages, tools=tools_of(prompt.tools), stream=True, **settings)
        # a model without a chat template continues the text
        settings.pop("think", None)
        if any(isinstance(message["content"], list) for message in messages):
            from hybrid.quant.ggml.errors import UsageError

            raise UsageError(f"{self.name} has no chat template: it continues texts, and reads no pictures.")
        text = "".join(message["content"] or "" for message in messages)
        return model.complete(text, stream=True, **{"tokens": -1, **settings})

    def finished(self, answer: "Answer", response: Any) -> None:
        """Notes the facts that `llm` stores about an answer."""
        from .llm_messages import arguments_of

        for call in answer.tool_calls:
            response.add_tool_call(llm.ToolCall(call.name, arguments_of(call), call.id))
        timings = answer.timings
        details = {"reused_tokens": timings.reused_tokens} if timings.reused_tokens else None
        response.set_usage(input=timings.prompt_tokens, output=timings.tokens, details=details)
        response.response_json = {
            "finish": answer.finish,
            "seed": answer.seed,
            "prompt_seconds": round(timings.prompt_seconds, 4),
            "seconds": round(timings.seconds, 4),
        }


def _event(part: Any, calls: dict[int, str]) -> StreamEvent:
    """An event for `llm`. calls: ids of the answer's calls by number."""
    if part.kind == "call":
        calls[part.index] = part.id
        return StreamEvent(type="tool_call_name", chunk=part.text, tool_call_id=part.id)
    if part.kind == "arguments":
        return StreamEvent(type="tool_call_args", chunk=part.text, tool_call_id=calls[part.index])
    return StreamEvent(type="reasoning" if part.kind == "thought" else "text", chunk=part.text)


class LlmChat(_Shared, llm.Model):
    """A model, for `llm`."""

    can_stream = supports_schema = supports_tools = True
    attachment_types = PICTURES
    Options = LlmSettings  # type: ignore[assignment]  # it declares a class of its own there

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: llm.Conversation | None
    ) -> Iterator[str | StreamEvent]:
        """The answer, part by part."""
        answer, calls = self.answer(prompt), dict[int, str]()
        try:
            for part in answer.parts():
                yield _event(part, calls)
        finally:
            answer.stop()  # the consumer has left
        self.finished(answer, response)


class AsyncChat(_Shared, llm.AsyncModel):
    """A model, for `llm`'s event loop."""

    can_stream = supports_schema = supports_tools = True
    attachment_types = PICTURES
    Options = LlmSettings  # type: ignore[assignment]

    async def execute(
        self, prompt: llm.Prompt, stream: bool, response: Any, conversation: Any
    ) -> AsyncGenerator[str | StreamEvent, None]:
        """The answer, part by part."""
        import asyncio

        answer, calls = await asyncio.to_thread(self.answer, prompt), dict[int, str]()
        async for part in answer.parts_async():
            yield _event(part, calls)
        self.finished(answer, response)


class LlmEmbedding(llm.EmbeddingModel):
    """Vectors of texts, of length 1."""

    batch_size = 32

    def __init__(self, name: str) -> None:
        self.name, self.model_id = name, PREFIX + name

    def embed_batch(self, items: Iterable[str | bytes], *, key: str | None = None) -> Iterator[list[float]]:
        """A vector per text. HybridError: a text is empty, or longer than the context."""
        texts = [item if isinstance(item, str) else item.decode("utf-8", "replace") for item in items]
        yield from loaded(self.name, {}).embed(texts).tolist()


# --- names ---
def names() -> list[tuple[str, tuple[str, ...]]]:
    """Models on this machine with their other names: the bundled one, downloads, conversions, and names that were asked
    for.

    A file is named by its absolute path, so that a conversation finds it from any folder.
    """
    found: dict[str, set[str]] = {BUNDLED: set()}
    for name in [*here(), *_asked()]:
        path = Path(name).expanduser()
        if path.is_absolute() or path.exists():
            found.setdefault(str(path.absolute()), set()).add(name)
        else:
            found.setdefault(name, set())
    return [(name, tuple(PREFIX + alias for alias in aliases - {name})) for name, aliases in found.items()]


def here() -> list[str]:
    """Models that were downloaded, run lately or converted."""
    from .pipeline import cached_models, present
    from .pipeline.models import bundled_checkpoint

    converted = [Path(model.made_of) for model in cached_models.every() if model.in_use and model.made_of]
    ours = bundled_checkpoint().resolve()
    folders = [str(path) for path in converted if path.is_absolute() and path.resolve() != ours]
    return [*present.names(), *dict.fromkeys(folders)]


def _asked() -> list[str]:
    """Names on `llm`'s command line and in its settings: `llm` accepts only registered names, and a model may be named
    before it is downloaded."""
    aliases: dict[str, str] = {}
    with suppress(OSError, ValueError):
        aliases = json.loads((llm.user_dir() / "aliases.json").read_text(encoding="utf-8"))
    words = [*sys.argv[1:], os.environ.get("LLM_MODEL", ""), llm.get_default_model(), *map(str, aliases.values())]
    found = (word.partition(PREFIX) for word in words)
    return [name for before, _, name in found if name and before in ("", "-m", "--model=")]


@llm.hookimpl
def register_models(register: Any, model_aliases: Any) -> None:
    """Called by `llm` to look up models."""
    for name, aliases in names():
        register(LlmChat(name), AsyncChat(name), aliases=aliases)


@llm.hookimpl
def register_embedding_models(register: Any) -> None:
    """Registers all models: generating ones make vectors also."""
    for name, aliases in names():
        register(LlmEmbedding(name), aliases=aliases)
