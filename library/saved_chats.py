"""Chats in files: those of `hybrid run`, with the state of the model."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.infer.answers.chat.tools import Tool, tools_of
from hybrid.infer.answers.conversations.conversation import SAVED_CHECKPOINTS
from hybrid.infer.answers.conversations.turns import Turns
from hybrid.infer.answers.sampling import Sampler
from hybrid.quant.ggml.errors import StateError, UsageError, shown

if TYPE_CHECKING:
    from hybrid.infer.answers.chat.dialect import Asked

    from .answering import Answering
    from .settings import Manner


def saved(answering: "Answering", path: Path, turns: Turns, system: str, asked: "Asked", manner: "Manner") -> None:
    """Writes a chat."""
    chat: dict[str, Any] = {**turns.to_json(), "system": system}
    if asked.tools:
        chat["tools"] = [tool.as_given for tool in asked.tools]
    if asked.think is not None:
        chat["think"] = asked.think
    model, ids = answering.model, turns.head.ids if turns.head else []
    sampler = Sampler(manner.params, model.n_vocab, model.tokenizer).state()

    def write() -> None:
        seq = model.sequence()
        try:
            if left := ids[seq.resume(ids) :]:  # the token drawn last
                seq.prefill(left)
            seq.save(path, {"chat": chat, "sampler": sampler}, checkpoints=SAVED_CHECKPOINTS)
        finally:
            seq.close()

    with answering.spare:
        answering.service.call(write).result()


@dataclass(frozen=True)
class Loaded:
    """What a file had."""

    turns: Turns
    system: str
    tools: tuple[Tool, ...]
    think: bool | None


def loaded(answering: "Answering", path: Path) -> Loaded:
    """Reads a chat; what the model knew of it is known again. StateError: it is another model's, damaged, no chat."""
    model = answering.model

    def read() -> Any:
        seq = model.restore(path)
        try:
            return seq.extra.get("chat")
        finally:
            seq.close()

    with answering.spare:
        chat = answering.service.call(read).result()
    if not isinstance(chat, dict):
        raise StateError(f"{shown(path)} holds a completion, not a chat.")
    try:
        think = chat.get("think")
        if not isinstance(think, bool | None):
            raise ValueError("think")
        made = Loaded(
            Turns.from_json(chat, model.n_vocab), str(chat["system"]), tuple(tools_of(chat.get("tools", []))), think
        )
    except (KeyError, TypeError, ValueError, IndexError, UsageError):
        raise StateError(f"{shown(path)} is damaged: its chat has no turns. Begin a new one.") from None
    for turn in made.turns.all:
        if turn.asked:
            for said in {turn.said, turn.written or turn.said}:
                answering.ledger.note(turn.asked, said, turn.ids)
    return made
