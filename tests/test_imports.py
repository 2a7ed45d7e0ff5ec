"""Who may import whom. The tree is the architecture: a failure here says where the import belongs.

Every import counts, also those inside functions and under `if TYPE_CHECKING`: a reader of the module needs them.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("cli", "convert", "infer", "library", "quant")

# package -> prefixes of hybrid's modules that it may import. The longest matching row counts.
ALLOWED = {
    "quant.ggml": ("quant.ggml",),  # files, block formats, keys of families: the floor
    "convert": ("convert", "quant.ggml"),
    "quant": ("quant",),
    "infer": ("infer", "quant.ggml"),
    "library": ("library", "convert", "infer", "quant"),  # the package `hybrid` itself: chains the three
    "cli": ("cli", "library", "convert", "infer", "quant"),
}

# The rooms of infer, lowest first: a module may import its own room and earlier rows.
INFER_ROOMS = (
    (
        "text",
        "kernels",
        "progress",
        "faults",
    ),  # tokens, templates; machine code; types of callbacks; what must not fail
    ("memory", "pictures"),  # a model's memory: keys and values, states, checkpoints, their files; a tower's inputs
    ("program",),  # ops over one arena, the threads that run them
    ("loading",),  # an open file: weights, metadata
    ("layers",),  # attention, Mamba, RWKV...: their weights, and the ops they add to a program
    ("architectures",),  # a family: its layers, and their tensors
    ("engine",),  # the network of one file, its programs, one pass of tokens through them
    ("towers",),  # vision towers: from patches of pictures to rows that a text model reads
    ("guessers", "step_costs"),  # guesses of tokens beside a model, and the cost of verifying them
    ("runner", "sequence", "model"),  # owners of memory slots; a text in one; the library's surface
    ("stages",),  # a model over several processes
    ("answers", "evaluate"),  # continuing texts; measuring texts
    ("bench",),  # speed
)
ANSWER_ROOMS = (
    ("constraints", "sampling"),  # which tokens may follow, which one does
    ("chat",),  # a family's syntax of calls and thoughts: detected by rendering, parsed, sampled
    ("guessing",),  # tokens guessed by n-grams, a draft model, or the model's own heads
    ("drawing",),  # one answer: sampling its tokens, its text, a full context
    ("state_files",),  # state files, ours and llama.cpp's
    ("batch",),  # many answers together, or one, and the thread that serves them
    ("asking",),  # a text or conversation becomes a prompt; sampled tokens are recognised when they return
    ("conversations",),  # a tree of turns, and its file
    ("prompt_files",),  # files of prompts
)
KERNEL_ROOMS = (
    ("emit",),  # LLVM's representation, written by small functions
    ("build",),  # machine code from it, kept on disk
    ("groups",),  # threads in groups
    ("weights",),  # unpacking of each weight type
    ("recurrent", "rows"),
    ("attention", "products"),
    ("execute",),
)
LIBRARY_ROOMS = (
    ("cache_paths", "reporting"),  # hybrid's folders; messages of work to its caller
    ("display", "hub"),  # display for a person; a hub of Hugging Face: names, lists of files, its cache, downloads
    ("pipeline",),  # conversion, quantization and loading in a row, and their cached results
    (  # `import hybrid`
        "advice", "answer", "chat", "chat_files", "files", "functions", "images", "llm_messages", "llm_plugin",
        "loading", "model", "model_thread", "scores", "settings",
    ),
)  # fmt: skip
ROOMS = {"infer": INFER_ROOMS, "infer.answers": ANSWER_ROOMS, "infer.kernels": KERNEL_ROOMS, "library": LIBRARY_ROOMS}

# module -> private names of others that it uses, and why
PRIVATES = {
    "infer.kernels.build.compiler": "numba and llvmlite have no public way to a library's module and its target",
    "quant.ggml.kernels.kept_code": "numba has no public way to choose where it keeps code",
}

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
                above = above[above[:1] == ["library"] :]
                base = ".".join(["hybrid", *above, *([base] if base else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def ours(path: Path) -> Iterator[tuple[int, str]]:
    """Imports of hybrid's modules, without `hybrid.`; names of the package itself become `library.NAME`."""
    for line, name in imports_of(path):
        if name == "hybrid":
            yield line, "library"
        elif name.startswith("hybrid."):
            inner = name.removeprefix("hybrid.")
            yield line, inner if inner.split(".")[0] in STAGES else f"library.{inner}"


def room_of(module: str, above: str, rooms: tuple[tuple[str, ...], ...]) -> int | None:
    """Index of the row in `rooms` that has the module's part below `above`, or None."""
    if not module.startswith(above + "."):
        return None
    part = module.removeprefix(above + ".").split(".")[0]
    return next((i for i, names in enumerate(rooms) if part in names), None)


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def refuse(violations: Iterator[str]) -> None:
    """Fail with all violations. There is one test per rule, not per file, so that files are parsed once."""
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
                        f"{', '.join(ALLOWED[row])}. Two stages share through quant.ggml; library chains them."
                    )

    refuse(violations())


def test_a_stage_names_its_own_modules_relatively() -> None:
    """Imports from other stages are absolute: their first word says where they lead."""

    def violations() -> Iterator[str]:
        for path in sources("cli", "convert", "infer", "quant"):
            stage = module_of(path).split(".")[0]
            for node in nodes_of(path):
                if not isinstance(node, ast.ImportFrom):
                    continue
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                if not node.level and within(node.module or "", (f"hybrid.{stage}",)):
                    yield f"{where} imports {node.module}, which is of its own package: from ... by a relative name"
                if node.level >= len(path.relative_to(ROOT).parts):
                    yield f"{where} leaves {stage} by a relative name: from hybrid. ..."

    refuse(violations())


@pytest.mark.parametrize(("package", "rooms"), ROOMS.items())
def test_rooms_import_what_is_below_them(package: str, rooms: tuple[tuple[str, ...], ...]) -> None:
    def violations() -> Iterator[str]:
        for path in sources(package.replace(".", "/")):
            module = module_of(path)
            if module == package:
                continue  # `hybrid` itself names all its modules
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


# --- circles ---
Graph = dict[str, list[str]]


def import_graph() -> Graph:
    """Module -> the modules of ours that it imports; a package is the module that its `__init__.py` is.

    `from .. import NAME` counts as an import of the package, which imports NAME's module, unless NAME is a module.
    """
    modules = {module_of(path): path for path in sources()}

    def module_that_has(name: str) -> str:
        while name not in modules:
            name = name.rpartition(".")[0]
        return name

    return {
        module: sorted({module_that_has(name) for _, name in ours(path)} - {module}) for module, path in modules.items()
    }


def reachable(graph: Graph, start: str) -> set[str]:
    """All direct and indirect imports of `start`; includes `start` if it is part of a circle."""
    seen: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        module = ahead.pop()
        if module not in seen:
            seen.add(module)
            ahead += graph[module]
    return seen


def circles(graph: Graph) -> set[frozenset[str]]:
    """The strongly connected components that have more than one module."""
    reach = {module: reachable(graph, module) for module in graph}
    return {
        frozenset(other for other in reach[module] if module in reach[other])
        for module in graph
        if module in reach[module]
    }


def shortest_circle(graph: Graph, members: frozenset[str]) -> list[str]:
    """A shortest path from the first of the modules back to itself."""
    start = min(members)
    ways = [[start]]
    for way in ways:
        for module in graph[way[-1]]:
            if module == start:
                return [*way, start]
            if module in members and all(module != other[-1] for other in ways):
                ways.append([*way, module])
    raise AssertionError(f"{start} is in no circle")


def test_no_circles() -> None:
    graph = import_graph()

    def violations() -> Iterator[str]:
        there = circles(graph)
        for members in sorted(there, key=min):
            way = " -> ".join(shortest_circle(graph, members))
            yield f"a circle: {way}. Put what both need (a type, mostly) into a module below them."

    refuse(violations())


SCRIPT_IMPORT = re.compile(r"""\b(?:import|from)\s*\(?\s*["']\./([\w./]+)["']""")


def test_no_circles_of_scripts() -> None:
    """The scripts of the server's page. `import`, `export ... from` and the lazy `import()` count."""
    folder = ROOT / "cli" / "serve" / "page" / "static"
    scripts = sorted(folder.glob("*.js"))
    graph = {path.name: SCRIPT_IMPORT.findall(path.read_text(encoding="utf-8")) for path in scripts}
    graph |= {name: [] for names in list(graph.values()) for name in names if name.startswith("vendor/")}
    assert (
        "dom.js" in graph["app.js"] and "help.js" in graph["app.js"] and "vendor/marked.esm.js" in graph["markdown.js"]
    )

    def violations() -> Iterator[str]:
        for members in sorted(circles(graph), key=min):
            way = " -> ".join(shortest_circle(graph, members))
            yield f"a circle: {way}. Put what both need into a script below them."

    refuse(violations())


def test_circles_are_found() -> None:
    graph = {"a": ["b", "e"], "b": ["c"], "c": ["d", "a"], "d": ["f"], "e": [], "f": ["d"]}
    assert circles(graph) == {frozenset("abc"), frozenset("df")}
    assert shortest_circle(graph, frozenset("abc")) == ["a", "b", "c", "a"]
    assert circles({"a": ["b"], "b": []}) == set()


def test_the_graph_has_lazy_imports_and_types() -> None:
    graph = import_graph()
    assert "infer.text.chat_template" in graph["infer.loading.model_file"], "inside a function, and under TYPE_CHECKING"
    assert "infer.model" in graph["infer"], "of a package's surface"
    assert "quant.ggml.errors" in graph["convert.plan"], "from another stage"


def test_privates_stay_private() -> None:
    """Only the module that defines a name with a leading underscore uses it."""

    def defined(nodes: tuple[ast.AST, ...]) -> set[str]:
        names = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and of_self(n)}
        names |= {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        return names | {n.target.id for n in nodes if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}

    def of_self(node: ast.Attribute) -> bool:
        owner = node.value
        return (isinstance(owner, ast.Name) and owner.id in ("self", "cls")) or (
            isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super"
        )

    def is_private(name: str) -> bool:
        return name.startswith("_") and not name.startswith("__")

    def violations() -> Iterator[str]:
        for path in sources():
            if module_of(path) in PRIVATES:
                continue
            nodes = nodes_of(path)
            mine = defined(nodes)
            of_others = (n for n in nodes if isinstance(n, ast.Attribute) and not of_self(n))
            for node in of_others:
                if is_private(node.attr) and node.attr not in mine:
                    yield f"{path.relative_to(ROOT)}:{node.lineno} uses {node.attr} of another module's object"
            for line, name in ours(path):
                if is_private(name.rpartition(".")[2]):
                    yield f"{path.relative_to(ROOT)}:{line} imports {name}"

    refuse(violations())


def test_outside_imports() -> None:
    def violations() -> Iterator[str]:
        for path in sources():
            for line, name in imports_of(path):
                top = name.split(".")[0]
                where = f"{path.relative_to(ROOT)}:{line} imports {top}"
                if top in NEVER:
                    yield f"{where}: {NEVER[top]}"
                if top == "rich" and module_of(path) not in ("cli.console", "library.display.screen"):
                    yield f"{where}: only cli/console.py and library/display/screen.py draw"

    refuse(violations())


def test_only_the_command_line_prints() -> None:
    def violations() -> Iterator[str]:
        for path in sources("convert", "infer", "library", "quant"):
            if module_of(path) == "library.display.lines":
                continue  # messages of `hybrid.load` to a person at a notebook
            for node in nodes_of(path):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                    yield f"{path.relative_to(ROOT)}:{node.lineno} prints: take a Reporter or a callback"

    refuse(violations())


def test_no_branches_for_windows() -> None:
    """The code uses POSIX's memory mapping, locks and file owners: a branch for Windows could not be tested."""
    words = re.compile(r"win32|msvcrt|os\.name\b|O_BINARY|\"(?:geteuid|nice|O_DIRECTORY|fork)\"|# Windows")

    def violations() -> Iterator[str]:
        for path in sources():
            for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if words.search(text):
                    yield f"{path.relative_to(ROOT)}:{line}: {text.strip()}"

    refuse(violations())


def test_the_rules_see_violations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader resolves relative imports; otherwise the rules above would pass on anything."""
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
