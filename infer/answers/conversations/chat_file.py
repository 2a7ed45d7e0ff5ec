"""The chat in a state file, beside the state of the model: only this module reads and writes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from hybrid.quant.ggml.errors import Remedy, StateError, UsageError, shown

from ..chat.tools import Tool, tools_of
from .turns import Turn, Turns, is_token

if TYPE_CHECKING:
    from ..asking.eyes import PictureReader
    from ..asking.ledger import Ledger

SAVED_CHECKPOINTS = 256 << 20  # bytes of checkpoints and other branches in a saved chat, at most


@dataclass(frozen=True, eq=False)
class SavedChat:
    """A chat. think: see ChatOptions; held, unseen, settings: see Conversation."""

    turns: Turns
    system: str = ""
    tools: tuple[Tool, ...] = ()
    think: bool | None = None
    held: Turn | None = None
    unseen: tuple[int, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The chat for the state file."""
        chat: dict[str, Any] = {**self.turns.to_json(), "system": self.system}
        if self.tools:
            chat["tools"] = [tool.as_given for tool in self.tools]
        if self.think is not None:
            chat["think"] = self.think
        if self.settings:
            chat["settings"] = dict(self.settings)
        if self.held is not None:
            chat |= {"held": self.held.number, "unseen": list(self.unseen)}
        return chat

    @classmethod
    def read(cls, chat: Any, n_vocab: int, path: Path, reader: "PictureReader | None" = None) -> Self:
        """The chat in the state file `path`. Raises StateError if it is damaged, or not a chat, or has pictures that
        `reader` cannot read."""
        if not isinstance(chat, dict):
            raise StateError(
                f"{shown(path)} holds a completion, not a chat.", remedy=Remedy.STATE_IS_COMPLETION, value=path
            )
        try:
            return cls._read(chat, n_vocab, reader)
        except (KeyError, TypeError, ValueError, IndexError, UsageError):
            raise StateError(f"{shown(path)} is damaged: its chat has no turns. Start a new one.") from None

    @classmethod
    def _read(cls, chat: dict[str, Any], n_vocab: int, reader: "PictureReader | None") -> Self:
        turns, think = Turns.from_json(chat, n_vocab, reader), chat.get("think")
        number, unseen, settings = chat.get("held", 0), chat.get("unseen", []), chat.get("settings", {})
        if not isinstance(think, bool | None):
            raise ValueError("think")
        if type(number) is not int or not 0 <= number <= len(turns.all):
            raise ValueError("held")
        if not isinstance(unseen, list) or not all(is_token(t, n_vocab) for t in unseen):
            raise ValueError("unseen")
        if not isinstance(settings, dict) or not all(isinstance(text, str) for text in settings.values()):
            raise ValueError("settings")
        held = turns.all[number - 1] if number else None
        tools = tuple(tools_of(chat.get("tools", [])))
        return cls(turns, str(chat["system"]), tools, think, held, tuple(unseen), settings)


def know_turns(ledger: "Ledger", turns: Turns) -> None:
    """Notes the answers of a saved chat in the ledger: when a client sends them back, they get their sampled tokens."""
    for turn in turns.all:
        if turn.asked:
            for said in {turn.said, turn.written or turn.said}:
                ledger.note(turn.asked, said, turn.ids)
