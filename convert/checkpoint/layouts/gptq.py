"""Integers of GPTQ and AWQ, in words of 32 bits along the rows of the transposed matrix.

gptq
    BASE.qweight i32 [columns / n, rows], BASE.qzeros i32 [groups, rows / n] (less 1 but in gptq_v2), BASE.scales
    [groups, rows], BASE.g_idx: of BASE.weight; n = 32 / bits fields of a word, low bits first
awq
    BASE.qweight i32 [columns, rows / 8], BASE.qzeros i32 [groups, rows / 8], BASE.scales [groups, rows]; the fields
    of a word are rows 0, 2, 4, 6, 1, 3, 5, 7
"""

import numpy as np

from hybrid.quant.ggml.errors import UnsupportedError

from ..config import Config
from ..tensor import StoredTensor
from .matrix import Matrices, Matrix, Tensors, check_shapes, columns, fields, groups, matrix_shape, need

_AWQ_ROWS = (0, 2, 4, 6, 1, 3, 5, 7)


def gptq(tensors: Tensors, section: Config) -> Matrices:
    """See github.com/AutoGPTQ/AutoGPTQ, nn_modules/qlinear."""
    section.expects("checkpoint_format", "gptq", "gptq_v2")
    bits = section.integer("bits")
    if bits not in (2, 4, 8):
        raise UnsupportedError(f"{section.where}: GPTQ of {bits} bits cannot be read. Give the original checkpoint.")
    added = 0 if section.get("checkpoint_format") == "gptq_v2" else 1
    mask, n = (1 << bits) - 1, 32 // bits
    for name in tensors:
        if not name.endswith(".qweight"):
            continue
        base = name.removesuffix("qweight")
        weight, zeros, scales = (need(tensors, base + end) for end in ("qweight", "qzeros", "scales"))
        (n_words, n_rows), (n_groups, _) = matrix_shape(weight), matrix_shape(scales)
        shape = (n_rows, n_words * n)
        wanted = ((weight, (n_words, n_rows)), (zeros, (n_groups, -(-n_rows // n))), (scales, (n_groups, n_rows)))
        check_shapes(wanted)
        group = groups(name, shape[1], n_groups, tensors.get(base + "g_idx"))

        def rows(
            start: int,
            stop: int,
            weight: StoredTensor = weight,
            zeros: StoredTensor = zeros,
            scales: StoredTensor = scales,
            group: np.ndarray = group,
        ) -> np.ndarray:
            values = fields(columns(weight, start, stop).T, bits)
            first = start // n
            less = fields(columns(zeros, first, -(-stop // n)), bits)[:, start - first * n : stop - first * n]
            less = ((less + added) & mask).T[:, group]
            weights: np.ndarray = (values - less).astype(np.float32) * columns(scales, start, stop).T[:, group]
            return weights

        yield name, Matrix(base + "weight", shape, rows, tuple(base + e for e in ("qzeros", "scales", "g_idx")))


def awq(tensors: Tensors, section: Config) -> Matrices:
    """See github.com/casper-hansen/AutoAWQ, utils/packing_utils."""
    section.expects("version", "gemm", "GEMM")
    section.expects("bits", 4)
    order = np.argsort(_AWQ_ROWS)
    for name in tensors:
        if not name.endswith(".qweight"):
            continue
        base = name.removesuffix("qweight")
        weight, zeros, scales = (need(tensors, base + end) for end in ("qweight", "qzeros", "scales"))
        (n_columns, n_words), (n_groups, _) = matrix_shape(weight), matrix_shape(scales)
        shape = (8 * n_words, n_columns)
        check_shapes(((weight, (n_columns, n_words)), (zeros, (n_groups, n_words)), (scales, (n_groups, shape[0]))))
        group = groups(name, n_columns, n_groups, None)

        def rows(
            start: int,
            stop: int,
            weight: StoredTensor = weight,
            zeros: StoredTensor = zeros,
            scales: StoredTensor = scales,
            group: np.ndarray = group,
        ) -> np.ndarray:
            first, last = start // 8, -(-stop // 8)

            def of(tensor: StoredTensor) -> np.ndarray:
                found = fields(columns(tensor, first, last), 4).reshape(tensor.shape[0], -1, 8)[:, :, order]
                return found.reshape(tensor.shape[0], -1)[:, start - 8 * first : stop - 8 * first].T

            whole = (of(weight) - of(zeros)[:, group]).astype(np.float32)
            weights: np.ndarray = whole * columns(scales, start, stop).T[:, group]
            return weights

        yield name, Matrix(base + "weight", shape, rows, tuple(base + e for e in ("qzeros", "scales")))
