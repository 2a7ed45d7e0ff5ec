"""A chat that never processes a prompt twice: only what the rendered conversation adds is given to the model.

The sequence holds the tokens of the conversation so far. For the next answer the whole conversation is rendered by the
model's template; if what the sequence holds is the beginning of that, the rest is all that is new. If it is not
(an answer was removed, a template rewrote an earlier turn), the sequence goes back to the last token in common, or as
far as its memory can: a recurrent state that has moved on is not undone, so the text is processed again from there.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid.quant.ggml.errors import StateError, UsageError

from . import texts

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
    gen_seconds: float = 0.0


@dataclass
class Conversation:
    """Messages, and the sequence that holds them. `template` None: plain completion, messages are simply joined."""

    model: "Model"
    params: "SamplingParams"
    template: "ChatTemplate | None" = None
    max_tokens: int = -1
    stop: list[str] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    stats: Stats = field(default_factory=Stats)
    result: "GenerationResult | None" = None

    def __post_init__(self) -> None:
        from hybrid.infer.sampling import Sampler

        self.seq = self.model.sequence()
        self.sampler = Sampler(self.params, self.model.n_vocab)
        self.asked = ""  # the rendering that the last answer continued; "" when the sequence does not hold it
        self.said = ""  # that answer, as the model wrote it
        self.pending: list[int] = []  # tokens of the answer that the sequence has yet to take in

    def render(self) -> str:
        """The conversation as the text that the next answer continues."""
        if self.template is None:
            return "".join(m["content"] for m in self.messages)
        return self.template.render(self.messages, add_generation_prompt=True)

    def encode(self, text: str) -> list[int]:
        """Token ids of a whole rendering; a BOS that the template writes itself is not added again."""
        tok = self.model.tokenizer
        if self.template is None:
            return tok.encode(text)
        written = tok.bos is not None and text.startswith(tok.piece(tok.bos).decode("utf-8", "replace"))
        return tok.encode(text, add_special=not written, parse_special=True)

    def addition(self, text: str) -> list[int] | None:
        """The ids that `text` adds to what the sequence holds; None when it is not a continuation of that.

        White space around the answer may differ: templates trim it or add some, and what the model wrote stands.
        """
        if not self.asked:
            return None
        answer = self.said.strip()
        at = text.find(answer, len(self.asked.rstrip() if answer else self.asked))
        if at < 0 or text[:at].strip() != self.asked.strip():
            return None
        added = text[at + len(answer) :]
        tok = self.model.tokenizer
        if self.template is None:
            return self.pending + texts.continued(tok, added.removeprefix(self.said[len(self.said.rstrip()) :]))
        ids = tok.encode(added.lstrip(), add_special=False, parse_special=True)
        # nothing merges across a control token; without one, only the whole text can be encoded rightly
        return self.pending + ids if ids and tok.is_control(ids[0]) else None

    def due(self, text: str) -> list[int]:
        """The ids to process so that the sequence stands for `text`; takes the sequence back where it must."""
        ids = self.addition(text)
        if ids is not None:
            return ids
        ids = self.encode(text)
        held = self.seq.tokens
        common = next((i for i, (a, b) in enumerate(zip(held, ids, strict=False)) if a != b), min(len(held), len(ids)))
        if common < len(held) or common == len(ids):
            common = self.seq.rewind(min(common, len(ids) - 1))
        return ids[common:]

    def answer(self, text: str, progress: Callable[[int, int], None] | None = None) -> Iterator[str]:
        """Adds the user's `text`, yields the answer as it is generated; takes `text` back when none could be."""
        self.messages.append({"role": "user", "content": text})
        yield from self._generate(progress)

    def regenerate(self, progress: Callable[[int, int], None] | None = None) -> Iterator[str]:
        """Drops the last answer and yields another one."""
        if not self.messages:
            raise UsageError("there is no answer yet. Write something first.")
        if self.messages[-1]["role"] == "assistant":
            self.messages.pop()
        yield from self._generate(progress)

    def _generate(self, progress: Callable[[int, int], None] | None) -> Iterator[str]:
        from hybrid.infer.generate import generate

        run = None
        try:
            text = self.render()
            ids = self.due(text)
            reused = len(self.seq.tokens)
            if reused + len(ids) >= self.model.n_ctx:
                raise UsageError(
                    f"the conversation has {reused + len(ids)} tokens, the context {self.model.n_ctx}. "
                    "Use /clear, or start with a larger -c."
                )
            run = generate(self.seq, ids, self.sampler, max_tokens=self.max_tokens, stop=self.stop, progress=progress)
            for piece in run:
                yield piece.text
        finally:
            if run is None or (ids and not run.result.prompt_tokens):  # nothing was answered
                self.asked = ""
                if self.messages and self.messages[-1]["role"] == "user":
                    self.messages.pop()
            else:
                self._note(text, run.result, reused)

    def _note(self, text: str, result: "GenerationResult", reused: int) -> None:
        """Remembers the answer, and what the sequence holds of it."""
        # a stop text is in the sequence but not in the answer: then only the tokens can be compared
        self.asked = text if result.stop is None else ""
        self.said, self.pending = result.text, result.pending
        # sentencepiece writes a space before the first word, and so do templates
        content = result.text if self.template is None else result.text.lstrip()
        self.messages.append({"role": "assistant", "content": content})
        self.result = result
        self.stats.n_reused += reused
        self.stats.n_prompt += result.prompt_tokens
        self.stats.n_generated += len(result.ids)
        self.stats.prompt_seconds += result.prompt_seconds
        self.stats.gen_seconds += result.gen_seconds

    def clear(self) -> None:
        """Forgets everything."""
        self.messages.clear()
        self.seq.clear()
        self.asked = self.said = ""
        self.pending = []

    def save(self, path: Path) -> None:
        """Writes the conversation with the state of the model: going on from it processes nothing again."""
        chat = {"messages": self.messages, "asked": self.asked, "said": self.said}
        self.seq.save(path, {"chat": chat, "sampler": self.sampler.state(), "pending": self.pending})

    def load(self, path: Path) -> None:
        """Replaces the conversation by a saved one. StateError when it is another model's, or not a chat."""
        seq = self.model.restore(path, self.seq)
        extra = seq.extra
        chat = extra.get("chat")
        if not isinstance(chat, dict):
            self.clear()
            raise StateError(f"{path} holds a completion, not a chat. Continue it: hybrid run -p TEXT --state {path}")
        self.seq = seq
        try:
            self.messages = [{"role": str(m["role"]), "content": str(m["content"])} for m in chat["messages"]]
            self.asked, self.said = str(chat["asked"]), str(chat["said"])
            self.pending = seq.pending
            if "sampler" in extra:
                self.sampler.set_state(extra["sampler"])
        except (KeyError, TypeError):
            self.clear()
            raise StateError(f"{path} is damaged: its chat has no list of messages. Start a new one.") from None
        except StateError:
            self.clear()
            raise
