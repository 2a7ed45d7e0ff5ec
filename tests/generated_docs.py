"""The parts of the documentation that are generated from code. `make docs` writes them; a test compares them.

In a Markdown file such a part stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

import contextlib
import inspect
import io
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self
from unittest import mock

if TYPE_CHECKING:
    from hybrid.convert.architectures import Family

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))
sys.path.append(str(ROOT / "tests"))
FILES = (
    "README.md",
    "docs/models.md",
    "docs/quantize.md",
    "docs/chat.md",
    "docs/measure.md",
    "docs/commands.md",
    "docs/server.md",
    "docs/clients.md",
    "docs/forms.md",
    "docs/config-fields.md",
    "benchmarks/RESULTS.md",
    "benchmarks/QUALITY.md",
)
_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{5})")
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?( *<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class FamilyFile:
    """The docstrings of a file in convert/architectures, parsed: `NAME: what its layers are. Source.`"""

    name: str
    about: str
    papers: tuple[str, ...]  # arXiv numbers, oldest first
    classes: "tuple[type[Family], ...]"

    @classmethod
    def read(cls, module: str, classes: "Sequence[type[Family]]") -> Self:
        """Parse a module's docstring; papers may also be in classes' docstrings. Raises ValueError if it does not begin
        with `NAME: `."""
        text = " ".join((sys.modules[module].__doc__ or "").split("\n\n")[0].split())
        said = re.fullmatch(r"([^:]+): (.+?)\.?(?:(?<=\.) .*)?", text)
        if said is None:
            raise ValueError(f"{module}: the docstring begins with {text!r}, not with `NAME: what it is.`")
        papers = _ARXIV.findall(f"{sys.modules[module].__doc__} {' '.join(c.__doc__ or '' for c in classes)}")
        return cls(said[1], said[2], tuple(sorted(set(papers))), tuple(classes))


def family_files(families: "Sequence[type[Family]] | None" = None) -> list[FamilyFile]:
    """The files of convertible families, or of these, sorted by name."""
    from hybrid.convert.architectures import FAMILIES

    modules: dict[str, list[type[Family]]] = {}
    for family in families or FAMILIES:
        modules.setdefault(family.__module__, []).append(family)
    return sorted((FamilyFile.read(*item) for item in modules.items()), key=lambda file: file.name.lower())


def families() -> str:
    """A table of the convertible checkpoints: family, layers, names in config.json and GGUF, papers."""
    lines = ["| family | its layers | in config.json | in GGUF | paper |", "|---|---|---|---|---|"]
    for file in family_files():
        about = file.about
        if not any(family.generates for family in file.classes):
            about += "; for `hybrid embed`"
        if not any(family.in_llama_cpp for family in file.classes):
            about += "; not in llama.cpp"
        names = dict.fromkeys(f"`{name}`" for family in file.classes for name in family.architectures)
        archs = dict.fromkeys(f"`{family.arch}`" for family in file.classes)
        papers = (f"[{number}](https://arxiv.org/abs/{number})" for number in file.papers)
        lines.append(f"| {file.name} | {about} | {', '.join(names)} | {', '.join(archs)} | {', '.join(papers)} |")
    return "\n".join(lines) + "\n"


def wrappers() -> str:
    """A table of the classes of which only the text model is converted."""
    from hybrid.convert.architectures.wrapped import TEXTS
    from hybrid.convert.architectures.wrappers import FLAT, ROWS

    lines = ["| in config.json | its text model | where the config has it | left out |", "|---|---|---|---|"]
    for wrapper in ROWS:
        kinds = dict.fromkeys(TEXTS[kind] for kind in wrapper.texts)
        kinds = {TEXTS[wrapper.usual]: None} if wrapper.section == FLAT else kinds
        text = ", ".join(f"`{kind}`" for kind in kinds) or f"by `model_type`, else `{TEXTS[wrapper.usual]}`"
        section = " or ".join(f"`{path}`" if path else "at its top" for path in wrapper.section.split("|"))
        lines.append(f"| `{wrapper.name}` | {text} | {section} | {', '.join(f'`{part}`' for part in wrapper.parts)} |")
    return "\n".join(lines) + "\n"


def towers() -> str:
    """A table of the vision towers that can be converted."""
    from hybrid.convert.vision import FAMILIES

    lines = ["| models | the tower | in config.json | `clip.projector_type` | paper |", "|---|---|---|---|---|"]
    for file in family_files(FAMILIES):
        (tower,) = file.classes
        about = file.about + ("" if tower.in_llama_cpp else "; not in llama.cpp")
        names = ", ".join(f"`{name}`" for name in tower.architectures)
        papers = (f"[{number}](https://arxiv.org/abs/{number})" for number in file.papers)
        lines.append(f"| {file.name} | {about} | {names} | `{tower.projector}` | {', '.join(papers)} |")  # type: ignore[attr-defined]
    return "\n".join(lines) + "\n"


KNOWN_HYBRIDS = (
    "Jamba",
    "Mamba",
    "Mamba-2",
    "Granite 4 H and Bamba",
    "Falcon-H1",
    "Nemotron-H",
    "LFM2",
    "Qwen3-Next",
    "Qwen3.5 (text)",
    "Kimi Linear",
    "Ling 3.0",
    "RWKV-6 and RWKV-7",
)
KNOWN_OTHERS = (
    "Llama and Mistral",
    "Qwen2 and Qwen3",
    "Gemma 1, 2 and 3 (text)",
    "Gemma 4 (text)",
    "gpt-oss",
    "DeepSeek-V2 and V3, GLM-4.7-Flash",
    "Phi-3",
)


def family_names() -> str:
    """A sentence with the number of families, and the ones most asked for."""
    known = {f.name for f in family_files()}
    assert known >= {*KNOWN_HYBRIDS, *KNOWN_OTHERS}, {*KNOWN_HYBRIDS, *KNOWN_OTHERS} - known
    hybrids, others = ("; ".join(names) for names in (KNOWN_HYBRIDS, KNOWN_OTHERS))
    text = (
        f"{len(known)} families: hybrid and recurrent models ({hybrids}, ...), transformers ({others}, ...), encoders."
    )
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def formats() -> str:
    """A table of the weight types by size, and which of them are only read."""
    from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, NOT_WEIGHTS, TRAITS
    from hybrid.quant.policy import TARGETS

    lines = ["| type | bits per weight | weights in a block | bytes of a block |", "|---|---|---|---|"]
    weights = TRAITS.keys() - NOT_WEIGHTS
    for kind in sorted(weights, key=lambda kind: (-TRAITS[kind].nbytes / TRAITS[kind].block, kind.name)):
        t = TRAITS[kind]
        bits = f"{8 * t.nbytes / t.block:.4f}".rstrip("0").rstrip(".")
        lines.append(f"| {kind.name} | {bits} | {t.block} | {t.nbytes} |")
    written = {FILE_TYPE_WEIGHT[target] for target in TARGETS}
    only_read = ", ".join(kind.name for kind in TRAITS if kind in weights - written)
    return "\n".join(lines) + f"\n\n`hybrid quantize` writes all of them except {only_read}, which is only read.\n"


def file_types() -> str:
    """The types that `hybrid quantize IN OUT TYPE` takes."""
    from hybrid.quant.policy import TARGETS

    return textwrap.fill(", ".join(f"`{kind.name}`" for kind in TARGETS), 120) + "\n"


def role_mixes() -> str:
    """A table of the mixes by role."""
    from hybrid.quant.ggml.role_mixes import ROLE_MIXES

    lines = ["| | most | first quarter | high | output | routed experts | their down projections |", "|---" * 7 + "|"]
    for name, mix in ROLE_MIXES.items():
        for title, kinds, experts in (
            (name, mix.alone, ("", "")),
            (f"{name}, with experts", mix.beside, (mix.experts.name, mix.experts_down.name)),
        ):
            cells = (kinds.low.name, kinds.early.name, kinds.high.name, kinds.output.name, *experts)
            lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def chat_commands() -> str:
    """A table of the chat's commands."""
    from hybrid.cli.chat.commands import COMMANDS

    shown = ((f"{name} {command.takes}".rstrip(), command.help) for name, command in COMMANDS.items() if command.help)
    lines = (f"| `{name}` | {what} |" for name, what in shown)
    return "\n".join(["| in the chat | what it does |", "|---|---|", *lines]) + "\n"


def launched_clients() -> str:
    """A table of the clients of `hybrid launch`."""
    from hybrid.cli.launch.clients import CLIENTS
    from hybrid.cli.launch.found_server import FoundServer

    server, home, env = FoundServer("http://127.0.0.1:8080", "NAME", 65536), Path("/~"), {"HOME": "/~"}
    with mock.patch.dict(os.environ, env, clear=True), mock.patch.object(Path, "home", return_value=home):
        rows = [
            (
                f"`hybrid launch {name}`",
                f"[{client.title}]({client.page})",
                client.api,
                ", ".join(f"`{str(file.path)[1:]}`" for file in client.files(server)),
            )
            for name, client in CLIENTS.items()
        ]
    head = ["| command | client | uses | `--write` changes |", "|---|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def shapes() -> str:
    """The names that `hybrid bench --shape` accepts."""
    from hybrid.pipeline.config_shapes import ALL_SHAPES

    return textwrap.fill(", ".join(f"`{name}`" for name in ALL_SHAPES), 120, break_on_hyphens=False) + "\n"


def help_text(*args: str) -> str:
    """Output of `hybrid ARGS --help` in a terminal of 100 columns."""
    from hybrid.cli.main import run

    out = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": "100"}), contextlib.redirect_stdout(out):
        assert run([*args, "--help"]) == 0
    return out.getvalue()


def results() -> str:
    """The report of all measurements."""
    import results as measured

    return measured.report(measured.load())


def speed() -> str:
    """The README's table of speed."""
    import results as measured

    return measured.summary(measured.load())


def prompts() -> str:
    """The README's claim about the speed of prompts."""
    import results as measured

    return measured.prompt_claim(measured.load())


def quality(part: str) -> str:
    """The cost of quantization: a table of `quality.py`, or all files of a model."""
    import quality as measured

    rows = measured.load()
    tables = {"sizes": measured.sizes, "importance": measured.importances, "effort": measured.efforts}
    if part in tables:
        return tables[part](rows)
    return measured.table(measured.of_model(rows, f"{part}-trained-bf16").values())


def config_fields(part: str) -> str:
    """Lists or a table of the fields of configs, by their effect."""
    import config_examples as examples

    return {"tally": examples.tally, "of_all": examples.of_all, "fields": examples.by_architecture}[part]()


def usage() -> str:
    return f"```\n{help_text()}```\n"


def commands() -> str:
    from hybrid.cli.commands.gguf import SUBCOMMANDS
    from hybrid.cli.main import COMMANDS

    lines = [[name] for name in COMMANDS]
    lines[[*COMMANDS].index("gguf") + 1 : 0] = [["gguf", name] for name in SUBCOMMANDS]
    return "\n".join(f"## hybrid {' '.join(words)}\n\n```\n{help_text(*words)}```\n" for words in lines)


def server_limits() -> str:
    """A table of the limits of `hybrid serve`."""
    from hybrid.cli.commands import serve
    from hybrid.cli.serve import connections, conversations, guards, jobs, request_jobs
    from hybrid.cli.serve.connections import LEAST_READ, SPARE_CONNECTIONS, Bounds
    from hybrid.cli.serve.llama_server import tokens
    from hybrid.cli.serve.pictures import fetching, sight
    from hybrid.infer.answers.drawing import stop_strings
    from hybrid.infer.pictures import decode
    from hybrid.quant.ggml.byte_sizes import size_text

    default = {name: p.default for name, p in inspect.signature(serve.serve).parameters.items()}
    bounds, fetcher = Bounds(), fetching.Fetcher()
    rows = [
        ("answers at a time", f"`--parallel`: {default['parallel']}", "they wait"),
        (
            "requests that wait",
            f"`--queue`: {default['queue']}, as many again of clients that have fewer than others",
            "429, `Retry-After`",
        ),
        (
            "an answer, with its pictures and its time in the queue",
            "`--timeout`: none",
            "504, or an error in the stream",
        ),
        (
            "a body",
            f"{size_text(guards.MOST_BODY)}, with pictures {size_text(guards.MOST_BODY_SEEING)}, in "
            f"{connections.MOST_CHUNKS} chunks",
            "413",
        ),
        ("pictures of a request", f"{sight.MOST_PICTURES}, together {size_text(sight.MOST_BYTES)}", "400"),
        (
            "a picture",
            f"{size_text(decode.LIMITS.nbytes)}, {decode.LIMITS.pixels} pixels, {decode.LIMITS.side} on a side",
            "400, before it is decoded",
        ),
        (
            "a picture that is fetched",
            f"{fetcher.seconds:g} s with {fetching.MOST_REDIRECTS} redirects; {sight.MOST_FETCHED} at a time",
            "400; 429",
        ),
        ("all bodies that are held", size_text(guards.MOST_BODIES), "429"),
        ("a text, per token of the context", f"{jobs.MOST_PER_TOKEN} characters", "400, before it is encoded"),
        ("the head of a request", size_text(bounds.most_head), "431"),
        ("until a head is there", f"{bounds.head_seconds:g} s", "408"),
        ("until a body is there", f"{bounds.body_seconds:g} s", "408"),
        ("between two requests of a connection", f"{bounds.idle_seconds} s", "it is closed"),
        ("reading an answer", f"{size_text(LEAST_READ)} in {bounds.unread_seconds:g} s", "it is closed"),
        (
            "tokens of a stream that wait to be read",
            str(request_jobs.MOST_AHEAD),
            "no more are sampled until half are read",
        ),
        ("the same after a shift of the context", str(request_jobs.MOST_UNREAD), "an error in the stream"),
        ("candidates of tokens in a whole answer", str(request_jobs.MOST_LISTED), "400: a stream lists any number"),
        ("messages of a conversation", str(conversations.MOST_MESSAGES), "400"),
        ("stop strings", f"{stop_strings.MOST} of {stop_strings.MOST_CHARACTERS} characters together", "400"),
        ("tokens to be decoded, characters to be encoded", f"{tokens.MOST_TOKENS}, {tokens.MOST_TEXT}", "413"),
        ("connections", f"those that run and wait, and {SPARE_CONNECTIONS}", "an idle one is closed, or 503"),
        ("what runs when a signal comes", f"`--grace`: {default['grace']:g} s", "503, or an error in the stream"),
    ]
    head = "| what | limit | otherwise |\n|---|---|---|\n"
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def schema_refusals() -> str:
    """A table of the reasons for refusing schemas of the JSON-Schema-Test-Suite."""
    sys.path.append(str(ROOT / "tests" / "unit" / "infer" / "answers"))
    from verdicts import refusals

    n, counts = refusals(ROOT / "tests" / "data" / "grammars")
    n_refused = counts.pop("all")
    rows = [
        f"| {reason} | {number} |" for reason, number in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    about = f"{n - n_refused} of {n} schemas are used, {n_refused} are refused:"
    return "\n".join([about, "", "| refused for | schemas |", "|---|--:|", *rows, ""])


PARTS: dict[str, Callable[[], str]] = {
    "schema_refusals": schema_refusals,
    "families": families,
    "towers": towers,
    "wrappers": wrappers,
    "family_names": family_names,
    "formats": formats,
    "file_types": file_types,
    "role_mixes": role_mixes,
    "chat_commands": chat_commands,
    "prompts": prompts,
    "launched_clients": launched_clients,
    "shapes": shapes,
    "server_limits": server_limits,
    "results": results,
    "speed": speed,
    **{f"quality_{part}": partial(quality, part) for part in ("sizes", "importance", "effort", "jamba", "mamba")},
    **{f"config_{part}": partial(config_fields, part) for part in ("tally", "of_all", "fields")},
    "usage": usage,
    "commands": commands,
}


def renewed(text: str) -> str:
    """`text` with every generated part renewed."""
    return _PART.sub(lambda m: m[1] + PARTS[m[2]]() + m[3], text)


def main() -> None:
    for name in FILES:
        path = ROOT / name
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
