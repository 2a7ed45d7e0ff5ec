"""llama.cpp's own server tests against `hybrid serve`.

    python -m venv suite && suite/bin/pip install -r PATH/to/tools/server/tests/requirements.txt
    python benchmarks/llama_server_suite.py PATH/to/tools/server/tests --python suite/bin/python \\
        --encoder PATH/to/bert --write

The tests are llama.cpp's (`tools/server/tests` of its repository, or of the sdist of llama-cpp-python). They need an
older `openai`, so they run in an environment of their own. In place of llama-server they start
`benchmarks/llama_server/stand_in.py`, which becomes `hybrid serve`; cases.py and plugin.py replace what depends on
their tiny model. --write renews benchmarks/LLAMA_SERVER_SUITE.md; further arguments go to pytest.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from adapters import write_adapter
from llama_server import cases

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
sys.path += [str(TESTS), str(TESTS / "unit" / "quant" / "ggml")]

import filling_models  # noqa: E402  # of our tests
import random_rerankers  # noqa: E402

PARTS = HERE / "llama_server"
PAGE = HERE / "LLAMA_SERVER_SUITE.md"
ORDER = ("failed", "not run", "decided otherwise", "does not apply")
FIRST_COMMAND = 'import runpy, sys; sys.path.insert(0, {parts!r}); runpy.run_path({stand_in!r}, run_name="__main__")'


def main() -> None:
    """Run the tests, print how many pass, and with --write write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", type=Path, help="tools/server/tests of llama.cpp")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="of the tests' environment")
    parser.add_argument("-n", type=int, default=2, help="tests at a time")
    parser.add_argument("--encoder", type=Path, help="Hugging Face folder of a small BERT; without it no embeddings")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    given, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="llama-server-suite-") as folder:
        results = run(given.tests.resolve(), given.python.absolute(), Path(folder), given.n, rest, given.encoder)
    print(summary(results))
    if given.write:
        PAGE.write_text(page(results))


def run(
    tests: Path, python: Path, folder: Path, n: int, rest: list[str], encoder: Path | None = None
) -> list[dict[str, str]]:
    """The outcome of each test."""
    copy = folder / "tools" / "server" / "tests"
    shutil.copytree(tests, copy, ignore=shutil.ignore_patterns("__pycache__", "tmp"))
    if (templates := tests.parents[2] / "models").is_dir():
        (folder / "models").symlink_to(templates)
    substitute(copy / "unit")
    shutil.copy(PARTS / "enabled.py", copy / "unit" / "test_enabled.py")
    models = folder / "gguf"
    make_models(models, encoder)
    program = folder / "llama-server"
    command = FIRST_COMMAND.format(parts=str(PARTS), stand_in=str(PARTS / "stand_in.py"))
    program.write_text(f"#!{sys.executable}\n{command}\n")
    program.chmod(0o755)
    report = folder / "report.jsonl"
    environment = {
        **os.environ,
        "LLAMA_SERVER_BIN_PATH": str(program),
        "PYTHONPATH": str(PARTS),
        "SUITE_PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "SUITE_MODELS": str(models),
        "SUITE_REPORT": str(report),
        **({"SUITE_ENCODER": "1"} if encoder is not None else {}),
    }
    arguments = ["-p", "plugin", "-p", "no:cacheprovider", "-q", "-n", str(n), *(rest or ["unit"])]
    subprocess.run([str(python), "-m", "pytest", *arguments], cwd=copy, env=environment)
    return [json.loads(line) for line in report.read_text().splitlines()]


def substitute(unit: Path) -> None:
    """Replace the tests' numbers by ours; each must be where cases.py says."""
    for change in cases.SUBSTITUTIONS:
        path = unit / change.file
        text = path.read_text()
        node = next(
            node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == change.function
        )
        lines = text.splitlines(keepends=True)
        first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
        body = "".join(lines[first - 1 : node.end_lineno])
        if body.count(change.old) != change.times:
            found = f"{change.old!r} {body.count(change.old)} times, expected {change.times}"
            sys.exit(f"{change.file}: {change.function} has {found}")
        lines[first - 1 : node.end_lineno] = [body.replace(change.old, change.new)]
        path.write_text("".join(lines))


def make_models(folder: Path, encoder: Path | None) -> None:
    """Write the bundled model in one file and in three, an encoder, and templates; with random weights an adapter, a
    model that fills gaps, and a ranker."""
    folder.mkdir()
    bundled = HERE.parent / "library" / "bundled" / "jamba-11m"
    for arguments in (
        ["convert", bundled, "-o", folder / "whole.gguf"],
        ["quantize", folder / "whole.gguf", folder / "text.gguf", "q8_0"],
        ["gguf", "split", "--split-max-tensors", "50", folder / "text.gguf", folder / "parts"],
        *([["convert", encoder, "-o", folder / "encoder.gguf"]] if encoder is not None else []),
    ):
        subprocess.run([sys.executable, "-m", "hybrid.cli", *map(str, arguments)], check=True, capture_output=True)
    write_adapter(folder / "adapter.gguf", folder / "text.gguf", 4, size=0.3)
    filling_models.by_text().write(folder / "filling.gguf")
    (folder / "ranker").mkdir()
    known = {"max_position_embeddings": 512, "type_vocab_size": 1}  # llama-server gives all tokens the first type
    ranker = random_rerankers.encoder(folder / "ranker", TESTS / "data", "LABEL_0", **known)
    shutil.move(ranker, folder / "ranker.gguf")
    for name, source in cases.TEMPLATES.items():
        (folder / f"{name}.jinja").write_text(source)


def summary(results: list[dict[str, str]]) -> str:
    """The results in one line."""
    counts = Counter(result["outcome"] for result in results)
    n = counts["passed"] + counts["failed"] + counts["skipped"]
    rest = ", ".join(f"{counts[kind]} {kind}" for kind in ORDER[1:])
    return f"{counts['passed']} of {n} cases that apply pass ({100 * counts['passed'] / max(1, n):.1f} %); {rest}"


def page(results: list[dict[str, str]]) -> str:
    """A list of the tests that do not pass, with reasons."""
    lines = [
        "# llama.cpp's server tests against `hybrid serve`",
        "",
        "Written by `benchmarks/llama_server_suite.py`, which says how to run it and what is replaced.",
        "",
        f"{summary(results)}.",
        "",
        "Three kinds of them are skipped or left out there because llama-server fails them: an answer with the cache "
        "and without it, temperature 1 with a seed, and any slot beside any others "
        "(`benchmarks/llama_server/enabled.py`, which also asks for several scales of an adapter at a time).",
    ]
    for kind in ORDER:
        found = Counter((_test(result["test"]), result["why"]) for result in results if result["outcome"] == kind)
        lines += ["", f"## {kind.capitalize()}: {found.total()}", "", "| test | cases | why |", "|---|--:|---|"]
        lines += [
            f"| `{test}` | {n} | {why.replace('|', chr(92) + '|')[:160]} |" for (test, why), n in sorted(found.items())
        ]
    passed = Counter(result["test"].partition(".py::")[0] for result in results if result["outcome"] == "passed")
    lines += ["", f"## Passed: {passed.total()}", "", "| file | cases |", "|---|--:|"]
    lines += [f"| `{file}` | {n} |" for file, n in sorted(passed.items())]
    return "\n".join(lines) + "\n"


def _test(name: str) -> str:
    return name.partition("[")[0].replace(".py::", " ")


if __name__ == "__main__":
    main()
