"""Commands that describe the chat, and /exit."""

from collections.abc import Mapping

from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.pipeline.model_eyes import ModelEyes
from hybrid.quant.ggml.errors import UsageError, shown

from .. import console
from ..terminal.line_editing import Words
from .request_commands import system
from .session import ChatCommand, ChatSession, Leave
from .setting_commands import set_

KEYS = (
    'Alt-Enter, a \\ at the end of the line, or """ around several lines: a longer message; pasted lines are one. '
    "Tab completes. Ctrl-C stops an answer."
)
INDENT = 12  # of the values of /stats and /show
SHOWN = ("info", "parameters", "system", "template")  # ollama's words


def leave(chat: ChatSession, _: str) -> None:
    raise Leave


def statistics(chat: ChatSession, _: str) -> None:
    console.note(statistics_text(chat.conversation))


def help_(chat: ChatSession, argument: str) -> None:
    """Lists the commands, or describes one; for /set also its settings."""
    if not argument:
        console.note(help_text(chat.commands))
        return
    name = f"/{argument.removeprefix('/')}"
    if name not in chat.commands:
        raise UsageError(f"there is no command {shown(name)}. /help lists them.")
    command = chat.commands[name]
    same = next(known for known, one in chat.commands.items() if one.run is command.run and one.help)
    console.note(help_text({same: chat.commands[same]}, keys=False))
    if same == "/set":
        set_(chat, "")


def show(chat: ChatSession, argument: str) -> None:
    """Prints facts of the model, or one of SHOWN."""
    if argument == "parameters":
        set_(chat, "")
    elif argument == "system":
        system(chat, "")
    elif argument == "template":
        template = chat.conversation.template
        if template is None:
            raise UsageError("the model has no chat template.")
        console.out(console.harmless(template.source))
    elif argument in ("", "info"):
        console.note(facts_text(chat.conversation))
    else:
        raise UsageError(f"/show {shown(argument)}: expected {', '.join(SHOWN[:-1])} or {SHOWN[-1]}.")


def what_is_shown(chat: ChatSession, typed: str) -> Words:
    return Words(typed, SHOWN)


def commands(chat: ChatSession, typed: str) -> Words:
    """Completions: names of commands without their slash."""
    return Words(typed, [name[1:] for name, command in chat.commands.items() if command.help])


def help_text(commands: Mapping[str, ChatCommand], *, keys: bool = True) -> str:
    """The text of /help. keys: with the keys of the terminal."""
    rows = [(f"{name} {command.takes}".rstrip(), command.help) for name, command in commands.items() if command.help]
    width = max(len(name) for name, _ in rows)
    lines = (console.folded(f"{name.ljust(width)}  {what}", indent=width + 2) for name, what in rows)
    return "\n".join([*lines, *([console.folded(KEYS)] if keys else ())])


def facts_text(conversation: Conversation) -> str:
    """The text of /show: the model's facts and abilities."""
    model, dialect, eyes = conversation.model, conversation.dialect, conversation.eyes
    metadata = model.gguf.metadata
    licence = metadata.get("general.license")
    if dialect is None:
        can = "continues text; it has no chat template, or is used without it"
    else:
        format_ = dialect.format
        named = {"tools": format_.takes_tools, "thoughts": format_.thoughts is not None}
        named["pictures"] = isinstance(eyes, ModelEyes) and eyes.path is not None
        can = ", ".join(["answers messages", *(name for name, has in named.items() if has)])
    lines = [  # names of INDENT characters
        f"model       {console.one_line(model.name)}",
        f"file        {model.path}, {console.size(model.n_bytes)}",
        f"family      {metadata['general.architecture']}, {model.n_params / 1e6:.2f} M weights, {model.file_type}",
        f"context     {model.n_ctx} tokens, trained for {model.n_ctx_train}",
        f"can         {can}",
    ]
    if isinstance(licence, str):
        lines.append(f"license     {console.one_line(licence)}")
    return "\n".join(console.folded(line, INDENT) for line in lines)


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
