"""All commands of a chat, in the order of `/help`."""

from . import (
    about_commands,
    file_commands,
    model_command,
    picture_commands,
    request_commands,
    setting_commands,
    turn_commands,
)
from .session import ChatCommand

COMMANDS = {
    "/exit": ChatCommand(about_commands.leave, "leave; so does Ctrl-D, or Ctrl-C twice"),
    "/clear": ChatCommand(turn_commands.clear, "begin a new conversation; the one so far stays among the kept chats"),
    "/regen": ChatCommand(turn_commands.regenerate, "generate another answer to the last question"),
    "/undo": ChatCommand(turn_commands.undo, "remove the last question and its answer"),
    "/edit": ChatCommand(
        turn_commands.edit,
        "ask TEXT instead of the question of turn N; the later turns stay in the tree",
        "N TEXT",
        turn_commands.questions,
    ),
    "/fork": ChatCommand(turn_commands.fork, "start a branch here and continue on it", "NAME"),
    "/switch": ChatCommand(
        turn_commands.switch,
        "continue another branch, or turn N on the branch that ends there, else on a new one",
        "NAME",
        turn_commands.branches,
    ),
    "/tree": ChatCommand(turn_commands.tree, "all turns with their numbers N, and branches"),
    "/model": ChatCommand(
        model_command.model,
        "continue with another model, which reads the conversation once; alone: show the model",
        "[MODEL]",
        model_command.models_here,
    ),
    "/system": ChatCommand(
        request_commands.system,
        "show, change or remove the system message",
        "[TEXT|off]",
        request_commands.system_text,
    ),
    "/set": ChatCommand(
        setting_commands.set_,
        "show or change settings of answers: /set temp 0.2; `default`: the model's own",
        "[NAME [VALUE]]",
        setting_commands.settings,
    ),
    "/tools": ChatCommand(
        request_commands.tools,
        "show, change or remove the tools",
        "[FILE|off]",
        request_commands.files_of_tools,
    ),
    "/image": ChatCommand(
        picture_commands.image,
        "a picture for your next message, as is a line of paths of pictures; off: without; alone: list them",
        "[FILE|off]",
        picture_commands.picture_files,
    ),
    "/skip": ChatCommand(request_commands.skip, "give no result for the call, and ask something else"),
    "/think": ChatCommand(
        request_commands.think,
        "show the thoughts of the last answer; or turn thinking on or off",
        "[on|off|auto]",
        request_commands.thinking,
    ),
    "/save": ChatCommand(
        file_commands.save, "write the conversation and the model's state", "FILE", file_commands.any_file
    ),
    "/load": ChatCommand(
        file_commands.load,
        "continue a saved conversation; nothing is read again",
        "FILE",
        file_commands.saved_files,
    ),
    "/show": ChatCommand(
        about_commands.show,
        "facts of the model; or its settings, system message or chat template",
        "[info|parameters|system|template]",
        about_commands.what_is_shown,
    ),
    "/stats": ChatCommand(about_commands.statistics, "tokens, speed and memory so far"),
    "/help": ChatCommand(about_commands.help_, "this list, or one command of it", "[NAME]", about_commands.commands),
    "/info": ChatCommand(about_commands.show, ""),
    "/?": ChatCommand(about_commands.help_, ""),
    "/quit": ChatCommand(about_commands.leave, ""),
    "/bye": ChatCommand(about_commands.leave, ""),
}
"""By name. A command without help is an alias and not listed."""
