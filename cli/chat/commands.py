"""All commands of a chat, in the order of `/help`."""

from . import about, asking, keeping, models, settings, turns
from .session import Command

COMMANDS = {
    "/exit": Command(about.leave, "leave (Ctrl-D does too, and Ctrl-C twice)"),
    "/clear": Command(turns.clear, "forget the conversation"),
    "/regen": Command(turns.regenerate, "generate another answer to the last question"),
    "/undo": Command(turns.undo, "take the last question and its answer back"),
    "/edit": Command(
        turns.edit, "ask TEXT instead of the Nth question; what followed stays in the tree", "N TEXT", turns.questions
    ),
    "/fork": Command(turns.fork, "begin a branch here and go on with it", "NAME"),
    "/switch": Command(
        turns.switch,
        "go on with another branch; a number: from that turn, on the branch that ends there or a new one",
        "NAME",
        turns.branches,
    ),
    "/tree": Command(turns.tree, "all turns and branches"),
    "/model": Command(
        models.model,
        "go on with another model, which reads the conversation once; or say which one this is",
        "[MODEL]",
        models.models_here,
    ),
    "/system": Command(
        asking.system,
        "what the model is told before everything; or something else from now on, or nothing",
        "[TEXT|off]",
        asking.system_text,
    ),
    "/set": Command(
        settings.set_,
        "how tokens are drawn; or change it: /set temp 0.2. `default`: as the model has it",
        "[NAME [VALUE]]",
        settings.settings,
    ),
    "/tools": Command(
        asking.tools,
        "the tools that can be called; or others from now on, or none",
        "[FILE|off]",
        asking.files_of_tools,
    ),
    "/skip": Command(asking.skip, "give no result of what was called, and ask something else"),
    "/think": Command(
        asking.think,
        "the thoughts behind the last answer; or whether to think from now on",
        "[on|off|auto]",
        asking.thinking,
    ),
    "/save": Command(keeping.save, "write the conversation and the model's state", "FILE", keeping.any_file),
    "/load": Command(
        keeping.load, "go on from a saved conversation; nothing is processed again", "FILE", keeping.saved_files
    ),
    "/stats": Command(about.statistics, "tokens, speed and memory so far"),
    "/help": Command(about.help_, "this list"),
    "/quit": Command(about.leave, ""),
}
"""By name. What has no help is in no list: another name, for who is used to it."""
