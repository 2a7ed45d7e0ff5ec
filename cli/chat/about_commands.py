"""Commands that describe the chat, and /exit."""

from collections.abc import Mapping

from hybrid.infer.answers.conversations.conversation import Conversation

from .. import console
from .session import ChatCommand, ChatSession, Leave

KEYS = (
    'Alt-Enter, a \\ at the end of the line, or """ around several lines: a longer message; pasted lines are one. '
    "Tab completes. Ctrl-C stops an answer."
)
INDENT = 12  # of the values of /stats


def leave(chat: ChatSession, _: str) -> None:
    raise Leave


def statistics(chat: ChatSession, _: str) -> None:
    console.note(statistics_text(chat.conversation))


def help_(chat: ChatSession, _: str) -> None:
    console.note(help_text(chat.commands))


def help_text(commands: Mapping[str, ChatCommand]) -> str:
    """The text of /help."""
    rows = [(f"{name} {command.takes}".rstrip(), command.help) for name, command in commands.items() if command.help]
    width = max(len(name) for name, _ in rows)
    lines = (console.folded(f"{name.ljust(width)}  {what}", indent=width + 2) for name, what in rows)
    return "\n".join([*lines, console.folded(KEYS)])


def statistics_text(conversation: Conversation) -> str:
    """The text of /stats."""
    model, stats = conversation.model, conversation.stats
    head = conversation.turns.head
    shifted = conversation.held is not None  # the sequence holds less than the conversation
    held = len(conversation.seq.tokens) if shifted else 0 if head is None else len(head.ids)
    memory = model.memory.bytes_state_per_seq + held * model.memory.bytes_kv_per_token
    cache = model.cache
    kept = (
        f"{cache.n_tokens} tokens, {cache.n_checkpoints} checkpoints, {console.size(cache.nbytes)}"
        if cache is not None
        else "nothing (--checkpoint-budget 0)"
    )
    lines = [  # names of INDENT characters
        f"context     {held} of {model.n_ctx} tokens, {console.size(memory)}",
        f"prompt      {stats.n_prompt} tokens processed{console.rate(stats.n_prompt, stats.prompt_seconds)}, "
        f"{stats.n_reused} were there already",
        f"kept        {kept}",
        f"generated   {stats.n_generated} tokens{console.rate(stats.n_generated, stats.gen_seconds)}",
    ]
    if stats.n_thought:
        lines.append(f"thoughts    {stats.n_thought} of these tokens")
    if stats.n_calls:
        lines.append(f"calls       {stats.n_calls}")
    return "\n".join(console.folded(line, INDENT) for line in lines)
