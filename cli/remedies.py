"""The sentence that the command line adds to a library's error: the option, command or file that helps.

A sentence is used if the command has all options that it names (`-c`, `--state`) and the chat all its commands
(`/clear`). Text in backticks is a whole command line. The first sentence of a remedy that fits is used; it may
continue the error's own sentence (`, or ...`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hybrid.quant.ggml.errors import HybridError, Remedy, shown


@dataclass(frozen=True)
class ErrorContext:
    """Where an error is shown. offered: all options, and commands of the chat; used: the options that were given."""

    offered: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Sentence:
    """A sentence that may be added. `{value}` in `text` is replaced by the error's value; it is used only if the
    options `used` were given."""

    text: str
    used: frozenset[str] = frozenset()

    @property
    def named(self) -> frozenset[str]:
        """The options and chat commands in the text."""
        return frozenset(_NAMED.findall(_COMMAND_LINE.sub("", self.text)))

    @property
    def command_lines(self) -> list[str]:
        return [text.strip("`") for text in _COMMAND_LINE.findall(self.text)]

    def fits(self, place: ErrorContext) -> bool:
        return self.named <= place.offered and self.used <= place.used


_NAMED = re.compile(r"(?<![\w/-])(?:--?[a-z][\w-]*|/[a-z]+)")
_COMMAND_LINE = re.compile(r"`[^`]*`|(?<=Use: )hybrid .*")


def _if_used(option: str, text: str) -> Sentence:
    return Sentence(text, frozenset({option}))


SENTENCES: dict[Remedy, tuple[Sentence, ...]] = {
    Remedy.LARGER_CONTEXT: (Sentence("Use a larger context (-c)."),),
    Remedy.SMALLER_CONTEXT: (Sentence("Use a smaller context (-c)."), Sentence("Use fewer tokens (-p, -n, -d).")),
    Remedy.SMALLER_MEMORY: (
        Sentence("Use a smaller context (-c), or fewer answers at a time (--parallel)."),
        Sentence("Use a smaller context (-c) or batch (-b)."),
        Sentence("Use fewer sequences (-np), or fewer tokens (-p, -n, -d)."),
        Sentence("Use a smaller context (-c)."),
    ),
    Remedy.LESS_MEMORY: (
        Sentence("Use a smaller context (-c), or a smaller file (`hybrid quantize`)."),
        Sentence("Use a smaller file (`hybrid quantize`)."),
    ),
    Remedy.FEWER_KEPT_TOKENS: (Sentence("Use a smaller --keep, or a larger context (-c)."),),
    Remedy.WITHOUT_CONTEXT_SHIFT: (
        _if_used("--context-shift", "Leave out --context-shift, or use a larger context (-c)."),
    ),
    Remedy.SEPARATE_ADAPTER: (Sentence("Give the model it belongs to, and this with --lora."),),
    Remedy.EMBEDDINGS: (Sentence("Use `hybrid embed`."),),
    Remedy.WITHOUT_TEMPLATE: (Sentence("Use --raw, or another template (--chat-template)."),),
    Remedy.WITHOUT_STATE: (
        _if_used("--state", "Start without --state."),
        _if_used("--continue", "Start without --continue."),
    ),
    Remedy.CHECKPOINTS: (_if_used("--state-dir", "Give --checkpoint-budget, or leave out --state-dir."),),
    Remedy.KV_TYPE: (Sentence("Use --kv-type {value}."),),
    Remedy.SAY_IF_ROTATED: (
        Sentence("Add --rotated if llama.cpp was built since April 2026, --not-rotated if it is older."),
    ),
    Remedy.KV_TYPE_OR_WITHOUT_STATE: (
        _if_used("--state", "Use --kv-type {value}, or start without --state."),
        _if_used("--continue", "Use --kv-type {value}, or start without --continue."),
        Sentence("Use --kv-type {value}."),
    ),
    Remedy.STATE_IS_COMPLETION: (Sentence("Continue it: `hybrid run -p TEXT --state {value}`."),),
    Remedy.ONE_SEQUENCE: (Sentence("Export one sequence (--sequence)."),),
    Remedy.GENERATE_ONE_TOKEN: (Sentence("Generate one: `hybrid run MODEL --state FILE -n 1`."),),
    Remedy.SHORTER_CONVERSATION: (
        Sentence("Use /clear, or start with a larger context (-c)."),
        Sentence("Use a larger context (-c)."),
    ),
    Remedy.CONTEXT_SHIFT: (
        Sentence("Use /clear, or start with a larger context (-c), or let its oldest part go (--context-shift)."),
        Sentence("Use a larger context (-c), or let its oldest part go (--context-shift)."),
    ),
    Remedy.LIST_TURNS: (Sentence("/tree shows them."),),
    Remedy.SWITCH_BRANCH: (Sentence("/switch {value} goes on there."),),
    Remedy.FORK_BRANCH: (Sentence("/fork {value} makes one."),),
    Remedy.SOMETHING_TO_MEASURE: (Sentence("Give a prompt (-p), a number of tokens to generate (-n) or both (-pg)."),),
    Remedy.KL_DIVERGENCE_BASE: (Sentence("Make it with --kl-divergence-base and the base model."),),
    Remedy.POOLING: (Sentence("Choose one with --pooling."),),
    Remedy.TRUNCATE: (Sentence("Cut it up, or use --truncate."),),
    Remedy.TRUNCATE_OR_LARGER_CONTEXT: (Sentence("Cut it up, or use --truncate or a larger context (-c)."),),
    Remedy.ALLOW_REQUANTIZE: (Sentence("Or give --allow-requantize."),),
    Remedy.IMATRIX: (
        Sentence("Add --imatrix FILE (`hybrid imatrix` makes one), or choose another type, for example IQ3_S or Q2_K."),
    ),
    Remedy.MAKE_IMATRIX: (Sentence("`hybrid imatrix` makes one."),),
    Remedy.IMATRIX_PATTERNS: (Sentence("Change --include-weights or --exclude-weights."),),
    Remedy.IMATRIX_OF_FILE: (Sentence(", or use `hybrid imatrix` and `hybrid quantize`."),),
    Remedy.SAME_TEXT: (Sentence("Leave out --resume, or give the same text and -c."),),
    Remedy.TENSOR_TYPE: (Sentence("Use --tensor-type '{value}'."),),
    Remedy.LIST_TENSORS: (Sentence("`hybrid inspect --tensors` lists them."),),
    Remedy.LIST_KEYS: (Sentence("`hybrid gguf show {value}` lists its keys."),),
    Remedy.MAKE_HASHES: (Sentence("Make one with `hybrid gguf hash`."),),
    Remedy.MAKE_ADAPTER: (Sentence("Make one: `hybrid convert BASE --lora FOLDER -o FILE`."),),
    Remedy.SERVED_ADAPTER: (Sentence("Serve the model with it: `hybrid serve MODEL --lora NAME=FILE`."),),
    Remedy.ADAPTER_AT_RUN_TIME: (Sentence("Or apply the adapter while running: `hybrid run MODEL --lora FILE`."),),
    Remedy.QUANTIZE: (Sentence("Use `hybrid quantize` to change its type."),),
    Remedy.OUTTYPE: (
        Sentence("Use --outtype bf16 or f32."),
        Sentence("Convert it with `hybrid convert --outtype bf16`."),
    ),
    Remedy.WITHOUT_VISION: (Sentence("--no-vision converts the text model alone."),),
    Remedy.TOKENIZER: (
        Sentence("Give another folder or GGUF file with --tokenizer."),
        Sentence("`hybrid convert --tokenizer` takes the tokenizer of another folder or GGUF file."),
    ),
    Remedy.BASE_MODEL: (Sentence("For example: `hybrid convert FOLDER --lora ADAPTER`."),),
    Remedy.LIST_ARCHITECTURES: (Sentence("`hybrid convert --list-architectures` lists the known ones."),),
    Remedy.VERIFY: (Sentence("`hybrid convert --verify` checks the file."),),
    Remedy.CONVERT_TO_FILE: (Sentence("Use: hybrid convert {value} -o model.gguf"),),
    Remedy.WITHOUT_NETWORK: (Sentence("; models on this machine run without it: `hybrid models`."),),
    Remedy.DOWNLOADED: (Sentence(", or choose from `hybrid models`."),),
    Remedy.DISK_ROOM: (
        Sentence(
            "Free some space (`hybrid models` lists the models), or set HF_HUB_CACHE to a folder on another disk."
        ),
    ),
    Remedy.LIST_MODELS: (Sentence("`hybrid models` lists the models on this machine."),),
    Remedy.SEE_MODELS: (Sentence("See `hybrid models`."),),
    Remedy.IN_CACHES_ONLY: (Sentence(": `hybrid models rm` removes files in a cache only."),),
}


def sentence(remedy: Remedy, value: str, place: ErrorContext) -> str:
    """The sentence to add, or "" if nothing fits."""
    for candidate in SENTENCES[remedy]:
        if candidate.fits(place):
            return candidate.text.replace("{value}", shown(value))
    return ""


def message(error: HybridError, place: ErrorContext) -> str:
    """The error and the sentence to add, as one text."""
    fact = str(error)
    help_text = "" if error.remedy is None else sentence(error.remedy, error.value, place)
    if not help_text or help_text[0] in ",;:":
        return fact + help_text
    return f"{fact}{'' if fact.endswith(('.', '?', '!')) else '.'} {help_text}"


def options(command: Any) -> frozenset[str]:
    """All options of a typer command, including switches for off."""
    names = (name for param in command.params for name in (*param.opts, *param.secondary_opts))
    return frozenset(name for name in names if name.startswith("-"))


def place_of(ctx: Any) -> ErrorContext:
    """The error context of the command that runs in a typer context."""
    given = (p for p in ctx.command.params if getattr(ctx.get_parameter_source(p.name), "name", "") == "COMMANDLINE")
    return ErrorContext(options(ctx.command), frozenset(option for param in given for option in param.opts))


def place_of_chat(commands: Iterable[str], run: Any) -> ErrorContext:
    """The error context of a chat: its commands, and the options of `run` that could start it again."""
    return ErrorContext(options(run) | frozenset(command.split()[0] for command in commands))
