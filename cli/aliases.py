"""Names from other programs (llama.cpp, ollama, mlx-lm, vLLM) for our commands and options.

An alias counts only in a command that has the option it stands for, and no option of that name itself.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hybrid.quant.ggml.errors import UsageError, shown

COMMANDS = {
    "chat": ("run",),
    "ls": ("models", "list"),
    "list": ("models", "list"),
    "rm": ("models", "rm"),
    "show": ("inspect",),
}
REFUSED = {
    "help": "`hybrid --help` lists the commands, `hybrid COMMAND --help` describes one.",
    "version": "`hybrid --version` prints the versions.",
}

OPTIONS = {
    "--ctx-size": "--ctx", "--n-ctx": "--ctx", "--max-model-len": "--ctx",
    "--temperature": "--temp",
    "--predict": "--n-predict", "--max-tokens": "--n-predict", "--num-predict": "--n-predict",
    "-sys": "--system", "--system-prompt": "--system",
    "-cnv": "--no-raw", "--conversation": "--no-raw", "--template": "--no-raw",
    "-no-cnv": "--raw", "--no-conversation": "--raw", "--no-template": "--raw",
    "-ctk": "--k-type", "--cache-type-k": "--k-type", "-ctv": "--v-type", "--cache-type-v": "--v-type",
    "-s": "--seed",
    "-np": "--parallel",
    "--repetition-penalty": "--repeat-penalty",
    "--typical-p": "--typical",
    "--grammar-file": "--grammar",
    "--draft-model": "--draft", "-md": "--draft", "--model-draft": "--draft",
    "--chat-template-file": "--chat-template",
    "-mm": "--mmproj", "--no-mmproj-auto": "--no-mmproj",
    "--format": "--json-schema", "-j": "--json-schema", "-jf": "--json-schema", "--json-schema-file": "--json-schema",
}  # fmt: skip
# values that have another name here, by option
VALUES = {"--format": {"json": '{"type":"object"}'}, "--think": {"true": "on", "false": "off"}}
# of these options -cnv also asks for a chat after the prompt, unless one answer is asked for
CHAT, CHATS, ONE_ANSWER = "--chat", ("-cnv", "--conversation"), ("-st", "--single-turn")
MODEL = ("-m", "--model", "-hf", "-hfr", "--hf-repo")  # the value is the argument MODEL
ANY = ("*",)
GPU = ("-ngl", "--gpu-layers", "--n-gpu-layers", "-dev", "--device")
WITHOUT_GPU = ("0", "none")  # values of these options that ask for the usual behaviour: no note
# options without effect here: the values that may follow (ANY: one of any kind), and why
IGNORED: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(GPU, (ANY, "there is no GPU here")),
    **dict.fromkeys(("--mmproj-offload", "--no-mmproj-offload"), ((), "there is no GPU here")),
    **dict.fromkeys(("-fa", "--flash-attn"), (("on", "off", "auto"), "attention never stores its scores")),
    **dict.fromkeys(("-i", "--interactive"), ((), "a chat is interactive")),
    **dict.fromkeys(ONE_ANSWER, ((), "a prompt gets one answer, and a chat many")),
    **dict.fromkeys(
        ("--color", "-co", "--simple-io", "--log-disable", "--perf", "--no-perf"), ((), "output is the same")
    ),
    **dict.fromkeys(("-v", "--verbose"), ((), "figures are always printed")),
    **dict.fromkeys(("--keepalive", "--keep-alive"), (ANY, "a model stays loaded until its command ends")),
    "--nowordwrap": ((), "lines are broken only in a terminal"),
    "--hidethinking": ((), "thoughts are not printed"),
    **dict.fromkeys(("-b", "--batch-size", "-ub", "--ubatch-size", "-tb"), (ANY, "the size is chosen by itself")),
    **dict.fromkeys(("-fit", "--fit"), (("on", "off"), "a context that does not fit is refused")),
    "--no-warmup": ((), "nothing is warmed up"),
    "--mlock": ((), "the system decides which weights stay in memory"),
    "--no-mmap": ((), "weights are always mapped"),
    "--no-display-prompt": ((), "the prompt is not printed"),
    "--jinja": ((), "chat templates are always Jinja"),
}
_NUMBERS = ("int", "int range", "float", "float range")


@dataclass(frozen=True)
class Translated:
    """A command line in our own names. ignored: options that were dropped, and why."""

    args: list[str]
    ignored: dict[str, str]


def applicable(params: Sequence[Any]) -> dict[str, str]:
    """The aliases that a command with these parameters accepts, with our names."""
    known = _options(params)
    both = {"--k-type", "--v-type"} if "--kv-type" in known else set()
    found = {alias: name for alias, name in OPTIONS.items() if name in known.keys() | both and alias not in known}
    if _takes_model(params):
        found |= {alias: "MODEL" for alias in MODEL if alias not in known}
    return found


def translated(params: Sequence[Any], args: Sequence[str], path: str) -> Translated:
    """The command line `args` in our names. path: the command's, for messages.

    Underscores in names of options become dashes. Raises UsageError for an unknown option, with the nearest known one.
    """
    line = _Line(params, args, path)
    while line.rest:
        arg = line.rest.popleft()
        if arg == "--":
            line.written += [arg, *line.rest]
            break
        line.read(arg)
    return Translated(line.model + line.keys_values() + line.chat() + line.written, line.ignored)


class _Line:
    """A command line while it is translated. kv: types of keys and of values, for commands that have one option."""

    def __init__(self, params: Sequence[Any], args: Sequence[str], path: str) -> None:
        self.known, self.aliases, self.path = _options(params), applicable(params), path
        self.rest = deque(args)
        self.written: list[str] = []
        self.model: list[str] = []
        self.ignored: dict[str, str] = {}
        self.kv: dict[str, str] = {}
        self.chats = False

    def read(self, arg: str) -> None:
        """Translates `arg`, and takes the values that follow it."""
        name, equals, value = arg.partition("=")
        dashed = name.replace("_", "-")
        if not arg.startswith("-") or arg == "-":
            self.written.append(arg)
        elif dashed in self.known:
            self._option(dashed, equals, value)
        elif dashed in self.aliases:
            self._alias(dashed, equals, value)
        elif self.known and dashed in IGNORED:
            self._ignore(name, dashed, equals, value)
        elif self._is_short(arg):
            self.written += [arg, *self._values(arg[:2], arg[2:])]
        else:
            raise UsageError(_unknown(name, [*self.known, *self.aliases], self.path))

    def _option(self, name: str, equals: str, value: str, given: str = "") -> None:
        """Our own option. given: its name on the command line, if that is another."""
        ours = VALUES.get(given or name, {})
        value, values = ours.get(value, value), [ours.get(text, text) for text in self._values(name, equals)]
        self.written += [name + equals + value, *values]

    def _alias(self, alias: str, equals: str, value: str) -> None:
        self.chats |= alias in CHATS
        if (ours := self.aliases[alias]) == "MODEL":
            self.model.append(value if equals else self._required(alias))
            return
        if ours in ("--k-type", "--v-type") and ours not in self.known:
            self.kv[ours] = value if equals else self._required(alias)
        else:
            self._option(ours, equals, value, alias)

    def keys_values(self) -> list[str]:
        """The option --kv-type for `kv`: every type of keys with every type of values, in f16 unless given."""
        keys, values = (self.kv.get(name, "f16").split(",") for name in ("--k-type", "--v-type"))
        pairs = [k if k == v else f"{k}/{v}" for k in keys for v in values]
        return ["--kv-type", ",".join(pairs)] if self.kv else []

    def chat(self) -> list[str]:
        """The option for a chat after the prompt, if llama.cpp's options ask for one."""
        return [CHAT] if self.chats and CHAT in self.known and not self.ignored.keys() & set(ONE_ANSWER) else []

    def _ignore(self, name: str, dashed: str, equals: str, value: str) -> None:
        values, why = IGNORED[dashed]
        value = self._required(name) if values is ANY and not equals else value
        if dashed not in GPU or value not in WITHOUT_GPU:
            self.ignored[name] = why
        if values is not ANY and not equals and self.rest and self.rest[0] in values:
            self.rest.popleft()

    def _values(self, name: str, given: str) -> Iterator[str]:
        """The value that follows an option, unless it has none or was `given` with its name."""
        param = self.known[name]
        if not given and not getattr(param, "is_flag", False) and self.rest:
            yield self.rest.popleft()

    def _required(self, name: str) -> str:
        if self.rest:
            return self.rest.popleft()
        raise UsageError(f"Option '{name}' requires an argument. See {self.path} --help.")

    def _is_short(self, arg: str) -> bool:
        """Whether `arg` is a short option with its value attached, as -n5. Only a number is a value for a number."""
        param = self.known.get(arg[:2])
        if param is None or arg.startswith("--"):
            return False
        is_number = getattr(param.type, "name", "") in _NUMBERS
        return not is_number or re.fullmatch(r"-?[\d.]+(e-?\d+)?", arg[2:]) is not None


def note(ignored: Mapping[str, str]) -> str:
    """A sentence about options without effect."""
    return "; ".join(f"{name} is ignored: {why}" for name, why in ignored.items())


def _options(params: Sequence[Any]) -> dict[str, Any]:
    options = [param for param in params if param.param_type_name == "option"]
    return {name: param for param in options for name in (*param.opts, *param.secondary_opts)}


def _takes_model(params: Sequence[Any]) -> bool:
    return any(param.param_type_name == "argument" and str(param.metavar).startswith("MODEL") for param in params)


def _unknown(name: str, names: Sequence[str], path: str) -> str:
    import difflib  # slow to import

    by_word = {known.strip("-"): known for known in names}  # dashes would make all names similar
    near = difflib.get_close_matches(name.strip("-"), by_word, 1, 0.7)
    return f"No such option: {shown(name)}.{f' Did you mean {by_word[near[0]]}?' if near else ''} See {path} --help."
