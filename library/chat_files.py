"""Chat files, shared with `hybrid run`; they contain the model's state."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.infer.answers.asking.named_adapters import of_prompt
from hybrid.infer.answers.conversations.chat_file import SAVED_CHECKPOINTS, SavedChat, know_turns
from hybrid.infer.answers.sampling import Sampler

if TYPE_CHECKING:
    from .model_thread import ModelThread
    from .settings import CheckedSettings


def saved(answering: "ModelThread", path: Path, chat: SavedChat, checked: "CheckedSettings") -> None:
    """Writes a chat file."""
    model, head, values = answering.model, chat.turns.head, chat.to_json()
    ids = head.ids if head else []
    sampler = Sampler(checked.params, model.n_vocab, model.tokenizer).state()

    def write() -> None:
        seq = model.sequence()
        try:
            seq.use(of_prompt(model.runner, answering.chosen(checked), ids))
            if left := ids[seq.resume(ids) :]:  # the last sampled token
                seq.prefill(left)
            seq.save(path, {"chat": values, "sampler": sampler}, checkpoints=SAVED_CHECKPOINTS)
        finally:
            seq.close()

    with answering.spare:
        answering.service.call(write).result()


def loaded(answering: "ModelThread", path: Path, checked: "CheckedSettings") -> SavedChat:
    """Reads a chat file and restores the model's state. checked: with the adapters that it was saved with.

    StateError: it belongs to another model, is damaged, or is not a chat.
    """
    model = answering.model

    def read() -> Any:
        seq = model.sequence()
        try:
            seq.use(answering.chosen(checked))
            model.restore(path, seq)
            return seq.extra.get("chat")
        finally:
            seq.close()

    with answering.spare:
        chat = SavedChat.read(answering.service.call(read).result(), model.n_vocab, path, answering.eyes)
    know_turns(answering.asker.ledger, chat.turns)
    return chat
