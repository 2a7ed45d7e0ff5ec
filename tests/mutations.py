"""Injects random faults into the product: which of them do the tests find?

    python tests/mutations.py choose sites.json --n 60 --seed 1        60 sites, and the faults there
    python tests/mutations.py cover sites.json hits -- -m "not long"   which tests execute them: one run of these
    python tests/mutations.py judge sites.json hits                    each fault, against the tests that execute it

A fault changes one expression: an operator, a comparison, a constant, the order of two arguments. A module gets its
fault while it is imported, so files do not change; caches are new. `judge` ends with the first failing test of a fault,
and prints the faults that no test finds. Code that numba compiles and processes that tests start (except forks) get no
faults.
"""

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
COMPILED = {"device", "fast", "kernel", "njit", "overload"}  # decorators of code that numba compiles
FOLDERS = ("cli", "convert", "infer", "library", "quant")
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Add,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


@dataclass(frozen=True)
class Site:
    """An expression that a fault can change. number: its index within the file."""

    path: str
    number: int
    line: int
    change: str


def changed(node: ast.expr) -> ast.expr | None:
    """The node with its fault. None: there is no fault for it."""
    match node:
        case ast.Compare(left, [op], right) if type(op) in COMPARISONS:
            return ast.Compare(left, [COMPARISONS[type(op)]()], right)
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.BoolOp(op, values):
            return ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.Constant(bool(value)):
            return ast.Constant(not value)
        case ast.Constant(int(value)):
            return ast.Constant(value + 1)
        case ast.Call(function, [first, second, *rest], keywords) if not isinstance(first, ast.Starred):
            return ast.Call(function, [second, first, *rest], keywords)
        case _:
            return None


class Faults(ast.NodeTransformer):
    """Numbers the expressions inside functions that can be changed. place: called with number and node, returns the new
    node."""

    def __init__(self, place: Callable[[int, ast.expr], ast.expr]) -> None:
        self.place, self.n, self.depth = place, 0, 0

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(ast.unparse(each).split("(")[0] in COMPILED for each in node.decorator_list):
                return node
            self.depth += 1
            node.body = [self.visit(each) for each in node.body]
            self.depth -= 1
            return node
        if isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.Raise | ast.Assert | ast.Match):
            return node  # texts, types, and texts of errors
        self.generic_visit(node)
        if self.depth and isinstance(node, ast.expr) and changed(node) is not None:
            self.n += 1
            return ast.copy_location(self.place(self.n, node), node)
        return node


def compiled(source: str, path: str, place: Callable[[int, ast.expr], ast.expr]) -> Any:
    """A module's code, with nodes replaced by `place`."""
    tree = ast.fix_missing_locations(Faults(place).visit(ast.parse(source)))
    return compile(tree, path, "exec", dont_inherit=True)


def sites() -> Iterator[Site]:
    """All sites of the product."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found: list[Site] = []
            name = str(path.relative_to(ROOT))

            def note(number: int, node: ast.expr, found: list[Site] = found, name: str = name) -> ast.expr:
                fault = changed(node)
                assert fault is not None
                found.append(Site(name, number, node.lineno, f"{ast.unparse(node)} -> {ast.unparse(fault)}"))
                return node

            Faults(note).visit(ast.parse(path.read_text(encoding="utf-8")))
            yield from found


# --- in the processes of pytest: `-p mutations` ---
HITS: set[int] = set()


def watch(number: int, value: Any) -> Any:
    """Note that a site was executed; return its value."""
    HITS.add(number)
    return value


def _install() -> None:
    """Compile modules that have sites with probes (cover) or with the one fault (judge)."""
    chosen = json.loads(Path(os.environ["MUTATION_SITES"]).read_text(encoding="utf-8"))
    only = os.environ.get("MUTATION_ONLY")
    of_file: dict[str, dict[int, int]] = {}
    for index, site in enumerate(chosen):
        if only is None or int(only) == index:
            of_file.setdefault(str(ROOT / site["path"]), {})[site["number"]] = index
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> Any:
        path = os.path.realpath(self.path)
        if path not in of_file:
            return original(self, fullname)

        def place(number: int, node: ast.expr) -> ast.expr:
            index = of_file[path].get(number)
            if index is None:
                return node
            if only is not None:
                return changed(node) or node
            probe = ast.parse(f"__import__('mutations').watch({index}, None)", mode="eval").body
            assert isinstance(probe, ast.Call)
            probe.args[1] = node
            return probe

        return compiled(Path(path).read_text(encoding="utf-8"), path, place)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note which sites each test executes."""
    HITS.clear()
    result = yield
    if HITS and (folder := os.environ.get("MUTATION_HITS")):
        with (Path(folder) / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps([item.nodeid, sorted(HITS)]) + "\n")
    return result


if "MUTATION_SITES" in os.environ:
    _install()


# --- the command ---
def run_tests(sites: Path, variables: dict[str, str], *arguments: str) -> int:
    """Exit status of pytest with probes or a fault. Its caches, with kernels and models, are deleted after it."""
    command = [sys.executable, "-m", "pytest", "-p", "mutations", "-p", "no:cacheprovider", *arguments]
    with tempfile.TemporaryDirectory() as caches:
        env = {
            **os.environ,
            "MUTATION_SITES": str(sites.resolve()),
            "XDG_CACHE_HOME": caches,
            "NUMBA_CACHE_DIR": caches,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]),
            **variables,
        }
        return subprocess.run(
            command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        ).returncode


def choose(path: Path, n: int, seed: int) -> None:
    """Choose n sites in different files, or else most would be in long tables."""
    by_file: dict[str, list[Site]] = {}
    for site in sites():
        by_file.setdefault(site.path, []).append(site)
    rng = random.Random(seed)
    files = rng.sample(sorted(by_file), n)
    path.write_text(json.dumps([asdict(rng.choice(by_file[file])) for file in files], indent=1), encoding="utf-8")


def tests_of(hits: Path) -> dict[int, list[str]]:
    """The tests that execute each site."""
    found: dict[int, list[str]] = {}
    for path in sorted(hits.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            test, numbers = json.loads(line)
            for number in numbers:
                found.setdefault(number, []).append(test)
    return found


def judge(path: Path, hits: Path, n_processes: int) -> int:
    """Print the faults that no test finds; return their number."""
    chosen, tests = json.loads(path.read_text(encoding="utf-8")), tests_of(hits)

    def is_found(index: int) -> bool:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(tests[index]))
            file.flush()
            return run_tests(path, {"MUTATION_ONLY": str(index)}, "-x", "--timeout=120", f"@{file.name}") != 0

    met = [index for index in range(len(chosen)) if index in tests]
    assert not run_tests(path, {"MUTATION_ONLY": "-1"}, "-x", tests[met[0]][0]), "a test fails without a fault"
    with ThreadPoolExecutor(n_processes) as pool:
        found = dict(zip(met, pool.map(is_found, met), strict=True))
    for index, site in enumerate(chosen):
        word = "not executed" if index not in found else "found" if found[index] else "NOT FOUND"
        n = len(tests.get(index, ()))
        print(f"{word:12} {n:5} tests  {site['path']}:{site['line']}  {site['change']}", flush=True)
    print(f"{sum(found.values())} of {len(met)} faults are found; {len(chosen) - len(met)} places are not executed")
    return len(met) - sum(found.values())


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("choose", "cover", "judge"))
    parser.add_argument("sites", type=Path)
    parser.add_argument("hits", type=Path, nargs="?")
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    given, more = parser.parse_known_args([each for each in arguments if each != "--"])
    if given.what == "choose":
        choose(given.sites, given.n, given.seed)
    elif given.what == "cover":
        given.hits.mkdir(parents=True, exist_ok=True)
        hits = {"MUTATION_HITS": str(given.hits.resolve())}
        print(f"pytest: {run_tests(given.sites, hits, '-n', 'auto', '--dist', 'worksteal', *more)}")
    else:
        judge(given.sites, given.hits, given.processes)


if __name__ == "__main__":
    main(sys.argv[1:])
