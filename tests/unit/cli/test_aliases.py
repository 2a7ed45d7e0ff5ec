"""Option names of other programs are translated to ours; an unknown option's error names the nearest one."""

import pytest

from hybrid.cli import aliases
from hybrid.cli.main import COMMANDS, LazyGroup, load
from hybrid.quant.ggml.errors import UsageError

FA = "-fa is ignored: attention never stores its scores"


def translated(command: str, *args: str) -> aliases.Translated:
    loaded = load(command)
    return aliases.translated(loaded.params, args, f"hybrid {command}")


@pytest.mark.parametrize(
    ("command", "given", "ours"),
    [
        ("run", "-m m.gguf -p Hi", "m.gguf -p Hi"),
        ("run", "-p Hi --model=m.gguf", "m.gguf -p Hi"),
        ("run", "-hf org/m:Q8_0 --ctx-size 64", "org/m:Q8_0 --ctx 64"),
        ("run", "--temperature=0 --max_tokens 5", "--temp=0 --n-predict 5"),
        ("run", "-sys Hello -cnv", "--chat --system Hello --no-raw"),
        ("run", "--template -p Hi -ngl 0 --device=none", "--no-raw -p Hi"),
        ("run", "-no-cnv -s 3", "--raw --seed 3"),
        ("run", "-ctk f16 -ctv f16", "--k-type f16 --v-type f16"),
        ("inspect", "-ctk q8_0 -ctv q8_0", "--kv-type q8_0"),
        ("bench", "-ctk f16,q8_0 -ctv=q4_0", "--kv-type f16/q4_0,q8_0/q4_0"),
        ("bench", "-ctv q4_0", "--kv-type f16/q4_0"),
        ("run", "-n5 -t 2 -fx.txt", "-n5 -t 2 -fx.txt"),
        ("run", "-n -1", "-n -1"),
        ("run", "-p -m -c 64", "-p -m -c 64"),  # a value that looks like an alias
        ("run", "-p --nothing", "-p --nothing"),
        ("run", "--exact -- -m", "--exact -- -m"),
        ("serve", "--model m.gguf -np 2", "m.gguf --parallel 2"),
        ("run", "--format json --think false", '--json-schema {"type":"object"} --think off'),
        ("run", "--format=json --think=true --think on", '--json-schema={"type":"object"} --think=on --think on'),
        ("run", "-j {} -jf s.json -p true", "--json-schema {} --json-schema s.json -p true"),
        ("eval", "--num_fewshot 3 --model m.gguf", "m.gguf --num-fewshot 3"),
        ("bench", "-np 1,2 -m m.gguf", "m.gguf -np 1,2"),
    ],
)
def test_other_programs_names(command: str, given: str, ours: str) -> None:
    found = translated(command, *given.split())
    assert found.args == ours.split() and not found.ignored


@pytest.mark.parametrize(
    ("given", "left", "ignored"),
    [
        ("-ngl 99 -p Hi", "-p Hi", "-ngl is ignored: there is no GPU here"),
        ("--n_gpu_layers=99", "", "--n_gpu_layers is ignored: there is no GPU here"),
        ("-fa -p Hi", "-p Hi", FA),
        ("-v --keepalive 5m -n 3", "-n 3", "-v is ignored: figures are always printed; "
         "--keepalive is ignored: a model stays loaded until its command ends"),
        ("-st -cnv -p Hi", "--no-raw -p Hi", "-st is ignored: a prompt gets one answer, and a chat many"),
        ("-ngl=1 -dev none", "", "-ngl is ignored: there is no GPU here"),
        ("-fa on --no-mmap", "", f"{FA}; --no-mmap is ignored: weights are always mapped"),
    ],
)  # fmt: skip
def test_options_without_effect_are_ignored_with_a_note(given: str, left: str, ignored: str) -> None:
    found = translated("run", *given.split())
    assert found.args == left.split() and aliases.note(found.ignored) == ignored


@pytest.mark.parametrize(
    ("command", "given", "message"),
    [
        ("run", "--temprature 1", r"No such option: --temprature\. Did you mean --temp"),
        ("run", "--max-token 1", r"Did you mean --max-tokens\? See hybrid run --help\."),
        ("run", "--lorra x", r"No such option: --lorra\. Did you mean --lora\?"),
        ("inspect", "--format json", r"No such option: --format\. See hybrid inspect --help\."),
        ("run", "-nope", r"No such option: -nope\."),
        ("run", "--frobnicate", r"No such option: --frobnicate\. See hybrid run --help\."),
        ("run", "-ngl", r"'-ngl' requires an argument"),
        ("run", "--model", r"'--model' requires an argument"),
        ("convert", "-m m.gguf", "No such option: -m"),  # convert has no MODEL
    ],
)
def test_what_is_unknown_or_missing(command: str, given: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        translated(command, *given.split())


def test_a_command_that_is_an_option_here_is_named() -> None:
    group = LazyGroup(name="hybrid")
    for name, option in {"help": "hybrid COMMAND --help", "version": "hybrid --version"}.items():
        with pytest.raises(UsageError, match=option):
            group.resolve_command(None, [name, "run"])


def test_every_alias_stands_for_an_option() -> None:
    names = set()
    for command in COMMANDS:
        loaded = load(command)
        for each in (loaded, *getattr(loaded, "commands", {}).values()):
            names |= {name for param in each.params for name in (*param.opts, *param.secondary_opts)}
    assert set(aliases.OPTIONS.values()) <= names
    assert {words[0] for words in aliases.COMMANDS.values()} <= set(COMMANDS) and not set(aliases.COMMANDS) & set(
        COMMANDS
    )
