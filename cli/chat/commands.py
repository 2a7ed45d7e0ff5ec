"""All commands of a chat, in the order of `/help`."""

from . import about_commands, file_commands, model_command, request_commands, setting_commands, turn_commands
from .session import ChatCommand

COMMANDS = {
    "/exit": ChatCommand(about_commands.leave, "leave (Ctrl-D does too, and Ctrl-C twice)"),
    "/clear": ChatCommand(turn_commands.clear, "forget the conversation"),
    "/regen": ChatCommand(turn_commands.regenerate, "generate another answer to the last question"),
    "/undo": ChatCommand(turn_commands.undo, "take the last question and its answer back"),
    "/edit": ChatCommand(
        turn_commands.edit,
        "ask TEXT instead of the Nth question; what followed stays in the tree",
        "N TEXT",
        turn_commands.questions,
    ),
    "/fork": ChatCommand(turn_commands.fork, "begin a branch here and go on with it", "NAME"),
    "/switch": ChatCommand(
        turn_commands.switch,
        "go on with another branch; a number: from that turn, on the branch that ends there or a new one",
        "NAME",
        turn_commands.branches,
    ),
    "/tree": ChatCommand(turn_commands.tree, "all turns and branches"),
    "/model": ChatCommand(
        model_command.model,
        "go on with another model, which reads the conversation once; or say which one this is",
        "[MODEL]",
        model_command.models_here,
    ),
    "/system": ChatCommand(
        request_commands.system,
        "what the model is told before everything; or something else from now on, or nothing",
        "[TEXT|off]",
        request_commands.system_text,
    ),
    "/set": ChatCommand(
        setting_commands.set_,
        "how tokens are drawn; or change it: /set temp 0.2. `default`: as the model has it",
        "[NAME [VALUE]]",
        setting_commands.settings,
    ),
    "/tools": ChatCommand(
        request_commands.tools,
        "the tools that can be called; or others from now on, or none",
        "[FILE|off]",
        request_commands.files_of_tools,
    ),
    "/skip": ChatCommand(request_commands.skip, "give no result of what was called, and ask something else"),
    "/think": ChatCommand(
        request_commands.think,
        "the thoughts behind the last answer; or whether to think from now on",
        "[on|off|auto]",
        request_commands.thinking,
    ),
    "/save": ChatCommand(
        file_commands.save, "write the conversation and the model's state", "FILE", file_commands.any_file
    ),
    "/load": ChatCommand(
        file_commands.load,
        "go on from a saved conversation; nothing is processed again",
        "FILE",
        file_commands.saved_files,
    ),
    "/stats": ChatCommand(about_commands.statistics, "tokens, speed and memory so far"),
    "/help": ChatCommand(about_commands.help_, "this list"),
    "/quit": ChatCommand(about_commands.leave, ""),
}
"""By name. What has no help is in no list: another name, for who is used to it."""
