"""A chat that never processes a prompt twice: only what the rendered conversation adds is given to the model.

The sequence holds the tokens of the conversation so far. For the next answer the whole conversation is rendered by the
model's template; if what the sequence holds is the beginning of that, the rest is all that is new. If it is not
(an answer was removed, a template rewrote an earlier turn), the sequence goes back to the last token in common, or as
far as its memory can: a recurrent state that has moved on is not undone, so the text is processed again from there.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import StateError, UsageError

if TYPE_CHECKING:
    from hybrid.infer import Model
    from hybrid.infer.chat_template import ChatTemplate
    from hybrid.infer.generate import GenerationResult
    from hybrid.infer.sampling import SamplingParams

Message = dict[str, str]


@dataclass
class Stats:
    """What the conversation cost so far, in tokens and seconds."""

    n_prompt: int = 0
    n_reused: int = 0
    n_generated: int = 0
    prompt_seconds: float = 0.0
    generation_seconds: float = 0.0


@dataclass
class Conversation:
    """Messages, and the sequence that holds them. `template` None: plain completion, messages are simply joined."""

    model: "Model"
    params: "SamplingParams"
    template: "ChatTemplate | None"
    max_tokens: int
    stop: list[str] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    stats: Stats = field(default_factory=Stats)
    result: "GenerationResult | None" = None

    def __post_init__(self) -> None:
        from hybrid.infer.sampling import Sampler

        self.seq = self.model.sequence()
        self.sampler = Sampler(self.params, self.model.n_vocab)
        self.held = ""  # the text that the tokens of the sequence stand for

    def render(self) -> str:
        """The conversation as the text that the next answer continues."""
        if self.template is None:
            return "".join(m["content"] for m in self.messages)
        return self.template.render(self.messages, add_generation_prompt=True)

    def encode(self, text: str, start: bool) -> list[int]:
        """Token ids of a piece of the rendering; `start` when it is its beginning."""
        tok = self.model.tokenizer
        if self.template is None:
            return tok.encode(text, add_special=start)
        has_bos = tok.bos is not None and text.startswith(tok.piece(tok.bos).decode("utf-8", "replace"))
        return tok.encode(text, add_special=start and not has_bos, parse_special=True)

    def pending(self, text: str) -> list[int]:
        """The ids to process so that the sequence stands for `text`; takes the sequence back where it must."""
        tokens = self.seq.tokens
        if tokens and self.held and text.startswith(self.held):
            # Encoding the addition alone is safe where a control token begins it: nothing merges across that border.
            added = self.encode(text[len(self.held) :], start=False)
            if not added or self.template is None or self.model.tokenizer.is_control(added[0]):
                return added
        ids = self.encode(text, start=True)
        common = next((i for i, (a, b) in enumerate(zip(tokens, ids, strict=False)) if a != b), None)
        if common is None:
            common = min(len(tokens), len(ids))
        if common < len(tokens) or common == len(ids):
            common = self.seq.rewind(min(common, len(ids) - 1)) if common else 0
            if common == 0:
                self.seq.clear()
        return ids[common:]

    def answer(self, text: str, progress: Callable[[int, int], None] | None = None) -> Iterator[str]:
        """Adds the user's `text`, yields the answer as it is generated. On an error the message is taken back."""
        self.messages.append({"role": "user", "content": text})
        try:
            yield from self._generate(progress)
        except Exception:
            self.messages.pop()
            raise

    def regenerate(self, progress: Callable[[int, int], None] | None = None) -> Iterator[str]:
        """Drops the last answer and yields another one."""
        if self.messages and self.messages[-1]["role"] == "assistant":
            self.messages.pop()
        if not self.messages:
            raise UsageError("there is no answer yet. Write something first.")
        yield from self._generate(progress)

    def _generate(self, progress: Callable[[int, int], None] | None) -> Iterator[str]:
        from hybrid.infer.generate import generate

        text = self.render()
        ids = self.pending(text)
        if len(self.seq.tokens) + len(ids) >= self.model.n_ctx:
            raise UsageError(
                f"the conversation has {len(self.seq.tokens) + len(ids)} tokens, the context {self.model.n_ctx}. "
                "Use /clear, or start with a larger -c."
            )
        self.stats.n_reused += len(self.seq.tokens)
        self.stats.n_prompt += len(ids)
        room = self.model.n_ctx - len(self.seq.tokens) - len(ids)
        limit = room if self.max_tokens < 0 else min(self.max_tokens, room)
        pieces: list[str] = []
        run = generate(self.seq, ids, self.sampler, max_tokens=limit, stop=self.stop, progress=progress)
        try:
            for piece in run:
                pieces.append(piece.text)
                yield piece.text
        finally:
            content = "".join(pieces)
            self.held = text + content
            self.messages.append({"role": "assistant", "content": content})
            self.result = getattr(run, "result", None)

    def clear(self) -> None:
        """Forgets everything."""
        self.messages.clear()
        self.seq.clear()
        self.held = ""

    def save(self, path: Path) -> None:
        """Writes the conversation with the state of the model: loading it processes nothing again."""
        chat = {"messages": self.messages, "held": self.held}
        self.seq.save(path, {"chat": chat, "sampler": self.sampler.state()})

    def load(self, path: Path) -> None:
        """Replaces the conversation by a saved one. StateError when it is another model's, or not a chat."""
        restored = self.model.restore(path, self.seq)
        extra: dict[str, Any] = restored.extra or {}
        chat = extra.get("chat")
        if not isinstance(chat, dict):
            self.clear()
            raise StateError(f"{path} holds a completion, not a chat. Continue it: hybrid run -p TEXT --state {path}")
        self.seq = restored
        self.messages = [{"role": str(m["role"]), "content": str(m["content"])} for m in chat["messages"]]
        self.held = str(chat["held"])
        if "sampler" in extra:
            self.sampler.set_state(extra["sampler"])
