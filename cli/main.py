"""`hybrid`: the command line. A command's module is imported when it runs, so that `hybrid --help` is fast."""

import contextlib
import gc
import os
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from hybrid.quant.ggml.cpus import cpus
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.kernels import compiling

from . import aliases
from .interrupts import interrupt_behind

# name -> its line in `hybrid --help`. The command is the function of that name in commands/<name>.py; a test compares
# the line with the first line of its docstring.
COMMANDS = {
    "demo": "Convert, quantize, measure and run the bundled model.",
    "convert": "Convert a Hugging Face checkpoint to a GGUF file.",
    "quantize": "Store the weights of a model in fewer bits.",
    "imatrix": "Measure which weights matter, for `quantize --imatrix`.",
    "inspect": "Show the contents of a GGUF file.",
    "gguf": "Split, merge, hash or edit GGUF files.",
    "run": "Chat with a model, or ask it once.",
    "serve": "Serve models to clients of OpenAI, Anthropic and ollama.",
    "launch": "Set up a coding agent or editor for a model of `hybrid serve`.",
    "ps": "List the models of a running `hybrid serve`.",
    "stop": "Unload models of a running `hybrid serve`.",
    "tokenize": "Show the tokens of a text.",
    "embed": "Make embeddings of texts, one vector per line.",
    "rerank": "Rank documents by how well they answer a query.",
    "perplexity": "Measure how well a model predicts a text.",
    "eval": "Score a model on the tasks of lm-evaluation-harness.",
    "bench": "Measure prompt processing and generation speed.",
    "models": "List or remove the models on this machine.",
    "pull": "Download models from Hugging Face, or update them.",
    "state": "List, show or remove saved states.",
    "precompile": "Compile a model's kernels before it runs.",
    "cache": "List or clear compiled kernels and converted models.",
}

_RUNNING = "hybrid.cli.running"

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


# typer's name of a type -> the placeholder in help texts
_VALUES = {"int": "N", "float": "X", "str": "TEXT", "path": "FILE", "Path": "FILE"}


def _readable(name: str, text: str, is_argument: bool) -> tuple[str, str]:
    """A line of typer's help, shortened: `-c, --ctx N` for `-c, --ctx <int range>`, `N>=1` for `x>=1`."""
    match = re.search(r" <(?:list\[)?(\w+)(?: range)?\]?>$", name)
    if match is not None and match[1] in _VALUES:
        name = name[: match.start()] + ("" if is_argument else " " + _VALUES[match[1]])
    value = name.rpartition(" ")[2]
    return name, re.sub(r"\bx(?=[<>]=\S*\]$)|(?<=<=)x(?=\S*\]$)", value, text)


class Command(TyperCommand):
    """A command whose help is plain text, with options under the headings of their `rich_help_panel`."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command. Errors are then shown with remedies that name this command's options."""
        ctx.meta[_RUNNING] = ctx  # one dictionary for this context and those above it
        threads, most = ctx.params.get("threads"), cpus()
        if isinstance(threads, int) and threads > most and ctx.params.get("cluster") is None:
            from . import console

            console.note(f"-t {threads}: this process has {most} processors; more threads than that slow it down")
        _collect_garbage()
        return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the command line, after names of other programs are translated to ours."""
        translated = aliases.translated(self.get_params(ctx), args, ctx.command_path)
        if translated.ignored:
            from . import console

            console.note(aliases.note(translated.ignored))
        return super().parse_args(ctx, translated.args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes the names of other programs that the command accepts."""
        if found := aliases.applicable(self.get_params(ctx)):
            text = f"Names of other programs that work also: {', '.join(found)}."
            formatter.write_paragraph()
            formatter.write(textwrap.fill(text, formatter.width, break_on_hyphens=False) + "\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes options as plain text: drawing them with rich would double the time of --help."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                is_argument = param.param_type_name == "argument"
                heading = getattr(param, "rich_help_panel", None) or ("Arguments" if is_argument else "Options")
                panels.setdefault(heading, []).append(_readable(*record, is_argument))
        for heading in sorted(panels, key=lambda h: h != "Arguments"):
            with formatter.section(heading):
                formatter.write_dl(panels[heading])


def _collect_garbage() -> None:
    """From here on searches for garbage, where `__main__` has turned it off, but not among the imported modules."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(50_000, 10, 10)  # the usual 700 takes 5 % of the loading of a model
        gc.enable()


class LazyGroup(TyperGroup):
    """The group of commands. It knows names and one-line helps; looking up a name imports its module."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]  # what typer looks for similar names in

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes the names of other programs that are commands also."""
        names = ", ".join(f"{name} ({' '.join(ours)})" for name, ours in aliases.COMMANDS.items())
        formatter.write_paragraph()
        text = f"Names of other programs that work also: {names}."
        formatter.write(textwrap.fill(text, formatter.width, break_on_hyphens=False) + "\n")

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in aliases.REFUSED:
            raise UsageError(aliases.REFUSED[args[0]])
        args = [*aliases.COMMANDS.get(args[0], args[:1]), *args[1:]]
        name, _, rest = super().resolve_command(ctx, args)  # raises for an unknown name, with a suggestion
        assert name is not None
        return name, load(name), rest


@contextlib.contextmanager
def _one_thread_of_blas() -> Iterator[None]:
    """If numpy is imported within, its OpenBLAS starts no threads, unless the environment says how many. They would
    spin for 0.1 s of computing time; our arithmetic is in kernels. Programs that we start inherit nothing."""
    variable = "OPENBLAS_NUM_THREADS"
    if variable in os.environ:
        yield
        return
    os.environ[variable] = "1"
    try:
        yield
    finally:
        del os.environ[variable]


def load(name: str) -> Any:
    """The command `name`, ready to be invoked."""
    with _one_thread_of_blas():
        module = import_module(f"hybrid.cli.commands.{name}")
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    subcommands = getattr(module, "SUBCOMMANDS", None)
    if subcommands is None:
        app.command(name, cls=Command, context_settings=SETTINGS)(getattr(module, name))
    else:
        app.callback(no_args_is_help=True, context_settings=SETTINGS)(getattr(module, name))
        for word, function in subcommands.items():
            app.command(word, cls=Command, context_settings=SETTINGS)(function)
    command = typer.main.get_command(app)
    command.name = name
    return command


def _version(value: bool) -> None:
    if value:
        from .version import version_text

        print(version_text())
        raise typer.Exit


app = typer.Typer(cls=LazyGroup, add_completion=False, rich_markup_mode=None, context_settings=SETTINGS)


_COMPLETION = ("--install-completion", "--show-completion")


def _completed(option: str, following: Sequence[str]) -> None:
    """Runs --install-completion or --show-completion; the name of the shell may follow."""
    from .completion import shells

    shell = following[0] if following else shells.running()
    print(shells.install(shell) if option == _COMPLETION[0] else shells.script(shell))


@app.callback(no_args_is_help=True)
def hybrid(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print versions, code path and processor, and exit."
    ),
    install_completion: bool = typer.Option(
        False, _COMPLETION[0], help="Complete command lines in this shell from now on; bash, zsh or fish may follow."
    ),
    show_completion: bool = typer.Option(False, _COMPLETION[1], help="Print the script that does it, and exit."),
) -> None:
    """Language models that mix attention and state-space layers: convert, quantize, run and measure them on a CPU.

    `hybrid demo` shows everything on a small trained model that comes with the package.
    """


def run(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code. Wrong input gives one line on stderr, a bug a traceback."""
    running: dict[str, Any] = {}
    try:
        if argv and argv[0] in _COMPLETION:  # typer's options have a value or have none
            _completed(argv[0], argv[1:])
            return 0
        code = 0
        command = typer.main.get_command(app)
        try:
            with compiling.told(_say_once()), command.make_context("hybrid", list(argv)) as ctx:
                running = ctx.meta
                command.invoke(ctx)
        except typer.Exit as stop:
            code = stop.exit_code
        sys.stdout.flush()
        return code
    except (KeyboardInterrupt, typer.Abort) as end:
        return _interrupted(str(end))
    except BrokenPipeError:
        # `hybrid ... | head`: a closed pipe is not an error, and must not print one at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as err:
        interrupt = interrupt_behind(err)
        return _failed(err, running.get(_RUNNING)) if interrupt is None else _interrupted(str(interrupt))


def _say_once() -> Callable[[], None]:
    """A callback that notes once that quantization kernels are being compiled."""
    said = False

    def say() -> None:
        nonlocal said
        if not said:
            said = True
            from . import console

            console.note("compiling kernels for this processor (only the first time)")

    return say


def _interrupted(text: str) -> int:
    from . import console

    with contextlib.suppress(OSError):  # the terminal has hung up
        console.note(text or "interrupted")
    return 130


def _plain(text: str) -> str:
    """The text of typer's usage error, of any version, without technical terms."""
    text = text.replace("Value error, ", "").replace("Invalid value: Missing ", "Missing ")
    wanted = {"int": "a whole number", "number": "a number", "float": "a number"}
    quoted = r"""(?:'[^']*'|"[^"]*")"""
    text = re.sub(
        rf"Input should be a valid (int|number)(?:eger)?, unable to parse .*|{quoted} is not a valid (int|float)\b.*",
        lambda m: f"expected {wanted[m[1] or m[2]]}",
        text,
    )
    number = r"(-?[\d.]*\d)"
    text = re.sub(rf"{number} is not in the range {number}<=x<={number}", r"\1 is not between \2 and \3", text)
    text = re.sub(rf"{number} is not in the range x>={number}", r"\1 is less than \2", text)
    return re.sub(rf"{number} is not in the range x<={number}", r"\1 is greater than \2", text)


def _failed(err: Exception, running: Any) -> int:
    """Prints the error of a command; returns the exit code. running: the command's context, if one ran."""
    from hybrid.quant.ggml.errors import HybridError, Remedy, shown

    from . import console, remedies

    place = remedies.place_of(running) if running is not None else remedies.ErrorContext()
    usage = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
    if isinstance(err, HybridError):
        console.error(remedies.message(err, place))
        return err.exit_code
    if isinstance(err, usage):
        text = str(getattr(err, "format_message", err.__str__)() or "")
        if type(err).__name__ == "NoArgsIsHelpError":
            print(text, file=sys.stderr)
            return 2
        ctx = getattr(err, "ctx", None)
        hint = f" See {ctx.command_path} --help." if ctx is not None else ""
        text = _plain(text).rstrip(".")
        console.error(text + "." * (text[-1:] != "?") + hint)
        return int(getattr(err, "exit_code", 2))
    if isinstance(err, OSError):  # the file system's own words: not found, permission denied, disk full
        where = f"{shown(err.filename)}: " if err.filename is not None else ""
        console.error(f"{where}{err.strerror or err}.")
        return 1
    if isinstance(err, MemoryError):
        what = f": {console.one_line(str(err)).rstrip('.')}" if str(err) else ""
        console.error(remedies.message(HybridError(f"out of memory{what}.", remedy=Remedy.LESS_MEMORY), place))
        return 1
    raise err


def _ignore_interrupts() -> None:
    """Ignores Ctrl-C from now on: the work is done, and an interrupt would only print noise at exit."""
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def main() -> None:
    """Entry point of `hybrid`: runs the command line and exits with its code."""
    code: int | None = None
    cause = signal.SIGTERM

    def terminated(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal code
        code = 128 + cause
        raise KeyboardInterrupt("terminated")  # unwinds, so that unfinished output files are removed

    def hung_up(number: int, frame: FrameType | None) -> None:
        nonlocal cause
        cause = signal.SIGHUP
        signal.raise_signal(signal.SIGTERM)  # a chat and the server have their own handlers

    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, terminated)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup: ignored
            signal.signal(signal.SIGHUP, hung_up)
    result = 130
    with contextlib.suppress(KeyboardInterrupt):  # a second signal, before the handler was set
        with contextlib.suppress(KeyboardInterrupt):  # a second signal, during the clean-up after the first
            result = run(sys.argv[1:])
        _ignore_interrupts()
    _ignore_interrupts()
    # When text that is executed (dataclasses do that) is interrupted, CPython notes that it will end by SIGINT instead
    # of with an exit code, even if the interrupt is caught. The next such text makes it forget.
    exec("")
    gc.freeze()  # a search for garbage among the remaining objects would take 0.2 s
    sys.exit(result if code is None else code)
