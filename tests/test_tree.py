"""The tree says where things are: unit tests mirror the tested folders, and a family has one name in convert and
infer."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from hybrid.convert.architectures import FAMILIES as CONVERTED
from hybrid.infer.architectures import ENCODERS, FAMILIES

ROOT = Path(__file__).resolve().parent.parent
UNIT = ROOT / "tests" / "unit"
STAGES = ("cli", "convert", "infer", "library", "quant")
FOLDERS = ("benchmarks", "cli", "convert", "infer", "library", "quant")

# Tests of unit/ that belong to a folder as a whole, with the reason.
OF_A_FOLDER = {
    "infer/kernels/test_arm64.py": "other tests of kernels, repeated in an emulator",
    "infer/kernels/test_assembly.py": "the machine code of all products",
    "infer/kernels/test_avx512.py": "other tests of kernels, repeated with instructions in other words",
    "benchmarks/test_kernels.py": "kernels_matmul.py, kernels_attention.py, kernels_recurrent.py",
}

# Files of architectures/ that are not a family, and their contents.
SHARED = {
    "convert": {
        "__init__": "the registry",
        "blocks": "parts",
        "classifier": "heads that score texts",
        "decoder": "what most decoders have",
        "delta": "the gated delta rule",
        "experts": "parts",
        "family": "what a family declares",
        "heads": "parts",
        "latent": "latent attention",
        "layer_ropes": "positions",
        "lightning": "decays of lightning attention",
        "ngrams": "embeddings of n-grams",
        "rope": "positions",
        "ungated": "parts",
        "unused_fields": "fields",
        "wrapped": "text models within other classes",
        "wrappers": "classes around text models",
        "windows": "parts",
    },
    "infer": {
        "__init__": "the registry",
        "base": "what a family declares",
        "experts": "parts",
        "kv_sharing": "parts",
        "latent": "latent attention",
        "rope": "positions",
    },
}

# Classes that share a name, and the meaning of each.
TWICE = {
    "Checkpoint": "a folder of Hugging Face; what a memory was after some tokens",
    "Code": "two tokenizers' tokens as numbers",
    "CompletionShape": "a completion in two wire formats",
    "Cursor": "a place in a text; in the bytes of a header",
    "Ending": "a guard of the server; a candidate of a test",
    "Head": "a head that guesses: its names in a checkpoint; the running one",
    "Heads": "of requests; of attention",
    "Indexer": "of two families",
    "Ngrams": "n-grams of inputs: their tensors; the running layer",
    "Node": "in the tree of known texts; in the tree of known tokens",
    "OtherTool": "of two wire formats",
    "Pages": "whose pages may ask the server; of the memory",
    "Parameter": "of a command line; of a tool",
    "PerLayerInputs": "their tensors; the running layer",
    "PlannedTensor": "of a conversion; of a quantization",
    "Pooling": "which one makes an embedding; the layer",
    "Positions": "that are measured; of the memory",
    "RefusalPart": "of two wire formats",
    "Rotation": "in a config; in the memory",
    "TextPart": "of two wire formats",
    "Tile": "of attention; of matrix products",
    "Vocabulary": "for writing a file; from reading one",
}


def problems(lines: list[str]) -> None:
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def names_in(folder: Path) -> set[str]:
    """Modules and packages of a folder, and the folder itself, which a test may be about."""
    modules = {path.stem for path in folder.glob("*.py")}
    return {folder.name} | modules | {path.parent.name for path in folder.glob("*/*.py")}


def is_named_after(test: str, names: set[str]) -> bool:
    """test_MODULE.py, or test_MODULE_ASPECT.py if one file would be too long."""
    name = test.removeprefix("test_")
    return any(name == module or name.startswith(f"{module}_") for module in names)


def test_unit_tests_mirror_the_tree() -> None:
    lines = []
    for path in sorted(UNIT.rglob("test_*.py")):
        where = path.relative_to(UNIT)
        folder = ROOT / where.parent
        if where.parts[0] not in FOLDERS or not folder.is_dir():
            lines.append(f"tests/unit/{where}: there is no folder {where.parent}. Move it to where its module is.")
        elif where.as_posix() not in OF_A_FOLDER and not is_named_after(path.stem, names_in(folder)):
            lines.append(
                f"tests/unit/{where}: {where.parent} has no such module. Name it test_MODULE or test_MODULE_ASPECT."
            )
    lines += [f"OF_A_FOLDER: there is no tests/unit/{name}" for name in OF_A_FOLDER if not (UNIT / name).is_file()]
    problems(lines)


def test_a_test_is_named_after_a_module() -> None:
    names = names_in(ROOT / "infer" / "memory")
    assert {"memory", "cache", "moves"} <= names
    assert is_named_after("test_cache", names) and is_named_after("test_cache_under_load", names)
    assert not is_named_after("test_caches", names) and not is_named_after("test_load", names)


def test_keys_are_read_as_they_are_written() -> None:
    read = {**FAMILIES, **ENCODERS}
    lines = [
        f"{family.__name__} is written as {family.hparams.__name__}, and {family.arch} read as another"
        for family in CONVERTED
        if family.hparams is not read[family.arch].hparams
    ]
    problems(lines)


def test_families_have_one_name_on_both_sides() -> None:
    """An architecture of GGUF is written by convert/architectures/NAME.py and run by infer/architectures/NAME.py."""
    written: dict[str, set[str]] = defaultdict(set)
    for family in CONVERTED:
        written[family.arch].add(family.__module__.rpartition(".")[2])
    run = {name: type(family).__module__.rpartition(".")[2] for name, family in {**FAMILIES, **ENCODERS}.items()}
    lines = []
    for arch in sorted(written.keys() | run.keys()):
        if written.get(arch) != {run.get(arch)}:
            there = ", ".join(sorted(written.get(arch, set()))) or "nothing"
            lines.append(f"{arch}: convert/architectures has it in {there}, infer/architectures in {run.get(arch)}")
    for stage, shared in SHARED.items():
        files = {path.stem for path in (ROOT / stage / "architectures").glob("*.py")}
        families = set().union(*written.values()) if stage == "convert" else set(run.values())
        lines += [
            f"{stage}/architectures/{name}.py has no family: add it to SHARED"
            for name in files - families - set(shared)
        ]
        lines += [
            f"SHARED: {stage}/architectures/{name}.py is no shared file" for name in set(shared) - (files - families)
        ]
    problems(lines)


def test_a_class_name_means_one_thing() -> None:
    """Families have one name in convert, infer and quant/ggml/families, and so do the layers they are named after."""
    homes: dict[str, set[str]] = defaultdict(set)
    for stage in STAGES:
        for path in (ROOT / stage).rglob("*.py"):
            for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
                homes[name].add(path.relative_to(ROOT).as_posix())
    read = {type(family).__name__ for family in {**FAMILIES, **ENCODERS}.values()}
    of_families = {"Family"} | read | {family.__name__ for family in CONVERTED}
    several = {name for name in homes.keys() - of_families if len(homes[name]) > 1 and not name.endswith("Hparams")}
    lines = [
        f"{name} is a class of {', '.join(sorted(homes[name]))}. Give each its own name, or say in TWICE what they are."
        for name in sorted(several - set(TWICE))
    ]
    lines += [f"TWICE: {name} is the name of one class, or of none" for name in sorted(set(TWICE) - several)]
    problems(lines)
