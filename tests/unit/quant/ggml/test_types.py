"""Numbers and sizes of types against the tables of the gguf package."""

import ast
from pathlib import Path

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType

from hybrid.quant.ggml import kernels
from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, OTHER_TYPE_NAMES, TRAITS, FileType, GGMLType

NEWER = {"Q2_0", "PQ2_0", "PTQ1_0"}  # in llama.cpp or PrismML's, not in the package


def test_types() -> None:
    """Every type of the package is a weight type with its size, or listed as another type."""
    for theirs in GGMLQuantizationType:
        if int(theirs) in OTHER_TYPE_NAMES:
            assert OTHER_TYPE_NAMES[int(theirs)] == theirs.name
            continue
        kind = GGMLType(int(theirs))
        assert kind.name == theirs.name
        assert (TRAITS[kind].block, TRAITS[kind].nbytes) == GGML_QUANT_SIZES[theirs]
    assert {kind.name for kind in GGMLType} - {theirs.name for theirs in GGMLQuantizationType} == NEWER


def test_file_types() -> None:
    theirs = {int(t): t.name.removeprefix("ALL_").removeprefix("MOSTLY_") for t in LlamaFileType}
    del theirs[int(LlamaFileType.GUESSED)]  # never in a file
    ours = {int(t): t.name for t in FileType}
    assert {number: name for number, name in ours.items() if name not in NEWER} == theirs


def test_most_weights_of_a_file_type_are_of_its_name() -> None:
    for file_type, kind in FILE_TYPE_WEIGHT.items():
        # file types whose names differ from the types that llama-quantize uses
        if file_type not in (FileType.IQ2_S, FileType.IQ2_M, FileType.IQ3_XS, FileType.IQ3_M):
            assert file_type.name.startswith(kind.name)


def test_kernels_take_the_size_of_a_block_from_the_table() -> None:
    """`b * 144` would repeat a format's size; 32 and 64 are also numbers of weights and codes."""
    sizes = {traits.nbytes for traits in TRAITS.values() if traits.nbytes > 4}
    stated = [
        f"{path.name}:{node.lineno}"
        for path in sorted(Path(kernels.__path__[0]).glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
        for side, other in ((node.left, node.right), (node.right, node.left))
        if isinstance(side, ast.Name) and side.id == "b" and isinstance(other, ast.Constant) and other.value in sizes
    ]
    assert not stated
