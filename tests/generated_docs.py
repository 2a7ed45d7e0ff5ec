"""The parts of the documentation that are made from the code. `make docs` writes them; a test compares them.

In a Markdown file such a part stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))
sys.path.append(str(ROOT / "tests"))
FILES = ("README.md", "cli/COMMANDS.md", "benchmarks/RESULTS.md", "benchmarks/QUALITY.md", "docs/config-fields.md")
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def families() -> str:
    """Which checkpoints can be converted, and which of them run."""
    from hybrid.convert.architectures import FAMILIES
    from hybrid.infer.architectures import ENCODERS
    from hybrid.infer.architectures import FAMILIES as RUNNING

    lines = ["| family | Hugging Face architectures | paper | convert | run |", "|---|---|---|---|---|"]
    for family in FAMILIES:
        module = __import__(family.__module__, fromlist=["_"]).__doc__ or ""
        about = f"{family.__doc__} {module.splitlines()[0]}"  # a class may have a paper of its own
        paper = re.search(r"arXiv:[\d.]*\d", about)
        names = ", ".join(f"`{name}`" for name in family.architectures)
        runs = "yes" if family.arch in RUNNING else "`embed`" if family.arch in ENCODERS else "no"
        lines.append(f"| {family.arch} | {names} | {paper[0] if paper else ''} | yes | {runs} |")
    return "\n".join(lines) + "\n"


def formats() -> str:
    """Weight types by size, and which of them are also written."""
    from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, TRAITS
    from hybrid.quant.policy import TARGETS

    lines = ["| type | bits per weight | block | bytes per block | `quantize` |", "|---|---|---|---|---|"]
    written = {FILE_TYPE_WEIGHT[target] for target in TARGETS}
    for kind in sorted(TRAITS, key=lambda kind: (-TRAITS[kind].nbytes / TRAITS[kind].block, kind.name)):
        t = TRAITS[kind]
        bits = f"{8 * t.nbytes / t.block:.4f}".rstrip("0").rstrip(".")
        lines.append(f"| {kind.name} | {bits} | {t.block} | {t.nbytes} | {'yes' if kind in written else ''} |")
    return "\n".join(lines) + "\n"


def shapes() -> str:
    """What `hybrid bench --shape` accepts."""
    from hybrid.cli.chains.config_shapes import ALL_SHAPES

    return ", ".join(f"`{name}`" for name in ALL_SHAPES) + "\n"


def help_text(*args: str) -> str:
    """What `hybrid ARGS --help` prints in a terminal of 100 columns."""
    from hybrid.cli.main import run

    out = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": "100"}), contextlib.redirect_stdout(out):
        assert run([*args, "--help"]) == 0
    return out.getvalue()


def results() -> str:
    """Everything that was measured."""
    import results as measured

    return measured.report(measured.load())


def speed() -> str:
    """The README's table of speed."""
    import results as measured

    return measured.summary(measured.load())


def quality(part: str) -> str:
    """What quantizing costs: a table of `quality.py`, or all files of a model."""
    import quality as measured

    rows = measured.load()
    tables = {"sizes": measured.sizes, "importance": measured.importances, "effort": measured.efforts}
    if part in tables:
        return tables[part](rows)
    return measured.table(measured.of_model(rows, f"{part}-trained-bf16").values())


def config_fields(part: str) -> str:
    """What becomes of the fields of a config."""
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


PARTS: dict[str, Callable[[], str]] = {
    "families": families,
    "formats": formats,
    "shapes": shapes,
    "results": results,
    "speed": speed,
    **{f"quality_{part}": partial(quality, part) for part in ("sizes", "importance", "effort", "jamba", "mamba")},
    **{f"config_{part}": partial(config_fields, part) for part in ("tally", "of_all", "fields")},
    "usage": usage,
    "commands": commands,
}


def renewed(text: str) -> str:
    """`text` with every generated part made anew."""
    return _PART.sub(lambda m: m[1] + PARTS[m[2]]() + m[3], text)


def main() -> None:
    for name in FILES:
        path = ROOT / name
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
