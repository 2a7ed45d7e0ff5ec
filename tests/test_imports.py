"""Who may import whom. The tree is the architecture: a failure here says where the import belongs."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("cli", "convert", "infer", "quant")

# package -> what it may import of ours (prefixes). The longest matching row counts.
ALLOWED = {
    "quant.ggml": ("quant.ggml",),
    "convert": ("convert", "quant.ggml"),
    "quant": ("quant",),
    "infer": ("infer", "quant.ggml"),
    "cli": ("cli", "convert", "infer", "quant"),
}

# The rooms of infer, from the ground up: a module may import its own room and those of the rows above it.
INFER_ROOMS = (
    ("text", "kernels"),  # tokens and templates; machine code and who writes it
    ("memory",),  # what a model remembers: keys and values, states, checkpoints, their files
    ("program",),  # ops over one arena, the threads that run them
    ("loading",),  # hyper-parameters and weights of an open file
    ("layers",),
    ("architectures",),  # a family: which layers, with which tensors
    ("engine",),  # a model's network, programs and passes
    ("model", "sequence"),  # the library's surface
    ("answers", "evaluate"),  # texts continued; texts measured
    ("bench",),
)
KERNEL_ROOMS = (
    ("emit",),  # LLVM's representation, written by small functions
    ("build",),  # machine code from it, kept on disk
    ("weights",),  # how each weight type is unpacked
    ("recurrent", "rows"),
    ("attention", "products"),
    ("execute",),
)

NEVER = {"torch": "weights are read without it", "transformers": "references are made with it, outside this repository"}


def sources(*stages: str) -> list[Path]:
    return [path for stage in stages or STAGES for path in sorted((ROOT / stage).rglob("*.py"))]


def module_of(path: Path) -> str:
    """cli/commands/run.py -> cli.commands.run; quant/ggml/__init__.py -> quant.ggml"""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of every import; `hybrid.` is dropped from ours, outside names stay whole."""
    module = module_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(["hybrid", *above, *([base] if base else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def ours(path: Path) -> Iterator[tuple[int, str]]:
    for line, name in imports_of(path):
        if name.startswith("hybrid."):
            yield line, name.removeprefix("hybrid.")


def room_of(module: str, above: str, rooms: tuple[tuple[str, ...], ...]) -> int | None:
    """Row of the room that a module of the package `above` is in."""
    if not module.startswith(above + "."):
        return None
    part = module.removeprefix(above + ".").split(".")[0]
    return next((i for i, names in enumerate(rooms) if part in names), None)


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def refuse(violations: Iterator[str]) -> None:
    """One test per rule, not per file: the files are parsed once, and all violations are shown."""
    if lines := list(violations):
        pytest.fail("\n".join(lines), pytrace=False)


def test_stages_import_what_the_table_allows() -> None:
    def violations() -> Iterator[str]:
        for path in sources():
            row = max((key for key in ALLOWED if within(module_of(path), (key,))), key=len)
            for line, name in ours(path):
                if not within(name, ALLOWED[row]):
                    yield (
                        f"{path.relative_to(ROOT)}:{line} imports hybrid.{name}: {row} may import "
                        f"{', '.join(ALLOWED[row])}. Two stages share through quant.ggml; cli chains them."
                    )

    refuse(violations())


@pytest.mark.parametrize(("package", "rooms"), [("infer", INFER_ROOMS), ("infer.kernels", KERNEL_ROOMS)])
def test_rooms_import_what_is_below_them(package: str, rooms: tuple[tuple[str, ...], ...]) -> None:
    def violations() -> Iterator[str]:
        for path in sources(package.replace(".", "/")):
            module = module_of(path)
            if module == package:
                continue  # the surface names everything
            mine = room_of(module, package, rooms)
            if mine is None:
                yield f"{path.relative_to(ROOT)} is in no room of {package}: give it one in the table"
                continue
            for line, name in ours(path):
                other = room_of(name, package, rooms)
                if other is not None and other > mine:
                    where = f"{path.relative_to(ROOT)}:{line} imports hybrid.{name}"
                    yield f"{where}: {', '.join(rooms[other])} comes after {', '.join(rooms[mine])}"

    refuse(violations())


def circles(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Sets of modules that all reach each other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    behind = {module: reached(module) for module in graph}
    shown: set[str] = set()
    for module in sorted(graph):
        circle = sorted(other for other in behind[module] if module in behind[other])
        if circle and module not in shown:
            shown.update(circle)
            yield circle


@pytest.mark.parametrize(
    "stage",
    [
        "cli",
        "convert",
        "quant",
        "infer.architectures",
        "infer.kernels",
        "infer.layers",
        "infer.memory",
        "infer.program",
    ],
)
def test_no_circles(stage: str) -> None:
    """Nor any that are broken up by imports inside functions, or for types alone: the type belongs below both."""
    modules = {module_of(path): path for path in sources(stage.replace(".", "/"))}

    def imported(path: Path) -> Iterator[str]:
        for _, name in ours(path):
            yield name if name in modules else name.rpartition(".")[0]  # a name in a module

    graph = {
        module: {name for name in imported(path) if name in modules and name != module}
        for module, path in modules.items()
        if module != stage  # the surface names everything
    }
    graph = {module: names & graph.keys() for module, names in graph.items()}
    refuse(f"{' -> '.join([*circle, circle[0]])} import each other" for circle in circles(graph))


def test_circles_are_seen() -> None:
    assert list(circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}})) == [["b", "c"]]


def test_outside_imports() -> None:
    def violations() -> Iterator[str]:
        for path in sources():
            for line, name in imports_of(path):
                top = name.split(".")[0]
                where = f"{path.relative_to(ROOT)}:{line} imports {top}"
                if top in NEVER:
                    yield f"{where}: {NEVER[top]}"
                if top == "rich" and path != ROOT / "cli" / "console.py":
                    yield f"{where}: only cli/console.py draws"

    refuse(violations())


def test_only_the_command_line_prints() -> None:
    def violations() -> Iterator[str]:
        for path in sources("convert", "infer", "quant"):
            for node in nodes_of(path):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                    yield f"{path.relative_to(ROOT)}:{node.lineno} prints: take a progress callback, print in cli"

    refuse(violations())


def test_no_branches_for_windows() -> None:
    """Memory mapping, locks and owners of files are POSIX's throughout: a branch for Windows could not be tried."""
    words = re.compile(r"win32|msvcrt|os\.name\b|O_BINARY|\"(?:geteuid|nice|O_DIRECTORY|fork)\"|# Windows")

    def violations() -> Iterator[str]:
        for path in sources():
            for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if words.search(text):
                    yield f"{path.relative_to(ROOT)}:{line}: {text.strip()}"

    refuse(violations())


def test_the_rules_see_violations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader resolves relative imports; without that the rules above would pass on anything."""
    folder = ROOT / "convert" / "architectures"
    text = "from ...infer import model\nfrom ..registry import f\nimport torch.nn\nfrom hybrid.quant import quantize\n"
    fake = folder / "fake.py"
    monkeypatch.setattr(Path, "read_text", lambda self, **_: text)
    assert [name for _, name in imports_of(fake)] == [
        "hybrid.infer.model",
        "hybrid.convert.registry.f",
        "torch.nn",
        "hybrid.quant.quantize",
    ]
    assert not within("quant.quantize", ALLOWED["convert"])
    assert within("quant.ggml.reader", ALLOWED["convert"])
