"""Who may import whom. The tree is the architecture: a failure here says where the import belongs."""

import ast
from collections.abc import Iterator
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

# Inside infer a module may import its own layer and those above it in this list; what is not listed is a leaf that
# imports nothing of infer but other leaves.
INFER_LAYERS = (
    ("kernels",),
    ("memory",),
    ("operands", "products", "program"),
    ("threads",),
    ("weights", "hparams"),
    ("layers",),
    ("architectures",),
    ("network",),
    ("engine", "encoder"),
    ("precompile",),
    ("model", "sequence"),
    (
        "generate",
        "perplexity",
        "imatrix",
        "kl_divergence",
        "sensitivity",
        "batching",
        "shared",
        "llama_session",
        "hellaswag",
        "embed",
    ),
    ("bench",),
)

NEVER = {"torch": "weights are read without it", "transformers": "references are made with it, outside this repository"}


def sources() -> list[Path]:
    return [path for stage in STAGES for path in sorted((ROOT / stage).rglob("*.py"))]


def module_of(path: Path) -> str:
    """cli/commands/run.py -> cli.commands.run; quant/ggml/__init__.py -> quant.ggml"""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of every import; `hybrid.` is dropped from ours, outside names stay whole."""
    module = module_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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


def infer_layer(module: str) -> int | None:
    part = module.split(".")[1] if module.count(".") else ""
    return next((i for i, names in enumerate(INFER_LAYERS) if part in names), None)


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


@pytest.mark.parametrize("path", sources(), ids=module_of)
def test_stages_import_what_the_table_allows(path: Path) -> None:
    module = module_of(path)
    row = max((key for key in ALLOWED if within(module, (key,))), key=len)
    for line, name in ours(path):
        assert within(name, ALLOWED[row]), (
            f"{path.relative_to(ROOT)}:{line} imports hybrid.{name}: {row} may import {', '.join(ALLOWED[row])}. "
            "What two stages share belongs in quant.ggml; what chains them belongs in cli."
        )


@pytest.mark.parametrize("path", sorted((ROOT / "infer").rglob("*.py")), ids=module_of)
def test_infer_is_layered(path: Path) -> None:
    module = module_of(path)
    if module == "infer":
        return  # the library surface names everything
    mine = infer_layer(module)
    for line, name in ours(path):
        other = infer_layer(name) if within(name, ("infer",)) else None
        if other is None:
            continue
        where = f"{path.relative_to(ROOT)}:{line} imports hybrid.{name}"
        assert mine is not None, f"{where}: {module} is a leaf of infer and may only import leaves"
        assert other <= mine, f"{where}: {INFER_LAYERS[other][0]} comes after {INFER_LAYERS[mine][0]}"


@pytest.mark.parametrize("path", sources(), ids=module_of)
def test_outside_imports(path: Path) -> None:
    for line, name in imports_of(path):
        top = name.split(".")[0]
        where = f"{path.relative_to(ROOT)}:{line}"
        assert top not in NEVER, f"{where} imports {top}: {NEVER.get(top)}"
        if top == "rich":
            assert path == ROOT / "cli" / "console.py", f"{where} imports rich: only cli/console.py draws"


@pytest.mark.parametrize("path", sources(), ids=module_of)
def test_only_the_command_line_prints(path: Path) -> None:
    if module_of(path).startswith("cli"):
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            pytest.fail(f"{path.relative_to(ROOT)}:{node.lineno} prints: take a progress callback, print in cli")


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
