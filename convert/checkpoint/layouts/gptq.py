"""Integers of GPTQ and AWQ, in words of 32 bits along the rows of the transposed matrix.

gptq
    BASE.qweight i32 [columns / n, rows], BASE.qzeros i32 [groups, rows / n] (less 1 but in gptq_v2), BASE.scales
    [groups, rows], BASE.g_idx: of BASE.weight; n = 32 / bits fields of a word, low bits first
awq
    BASE.qweight i32 [columns, rows / 8], BASE.qzeros i32 [groups, rows / 8], BASE.scales [groups, rows]; the fields
    of a word are rows 0, 2, 4, 6, 1, 3, 5, 7
"""

import numpy as np

from hybrid.quant.ggml.errors import UnsupportedError, shown

from ..config import Config
from ..tensor import StoredTensor
from .matrix import Matrices, Matrix, Tensors, check_shapes, columns, fields, groups, matrix_shape, need

_AWQ_ROWS = (0, 2, 4, 6, 1, 3, 5, 7)
# Settings that change no stored value: how the values were found, which modules have any, how to run them.
IDLE = (
    "quant_method", "method", "meta", "group_size", "desc_act", "act_order", "sym", "zero_point", "lm_head",
    "damp_percent", "damp_auto_increment", "true_sequential", "static_groups", "act_group_aware", "mse",
    "block_name_to_quantize", "to_quant_block_names", "module_name_preceding_first_block",
    "modules_in_block_to_quantize", "modules_to_not_convert", "dataset", "tokenizer", "model_seqlen", "seqlen",
    "batch_size", "pad_token_id", "max_input_length", "cache_block_outputs", "nsamples", "iters", "lr", "minmax_lr",
    "enable_minmax_tuning", "enable_quanted_input", "gradient_accumulate_steps", "low_gpu_mem_usage", "scale_dtype",
    "autoround_version", "provider", "model_name_or_path", "model_file_base_name", "pack_impl", "use_exllama",
    "disable_exllama", "exllama_config", "use_cuda_fp16", "do_fuse", "modules_to_fuse", "fuse_max_seq_len",
)  # fmt: skip


def gptq(tensors: Tensors, section: Config) -> Matrices:
    """See github.com/AutoGPTQ/AutoGPTQ, nn_modules/qlinear."""
    bits = section.integer("bits")
    _check_packing(section, bits, ("checkpoint_format", "format"), "gptq", "gptq_v2")
    if bits not in (2, 4, 8):
        raise UnsupportedError(f"{section.where}: GPTQ of {bits} bits cannot be read. Give the original checkpoint.")
    added = 0 if section.get("checkpoint_format", "format") == "gptq_v2" else 1
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


def _check_packing(section: Config, bits: int, keys: tuple[str, ...], *formats: str) -> None:
    """UnsupportedError: matrices, or some of them, are packed in another way. keys: of the format."""
    for key in keys:
        section.expects(key, *formats)
    section.expects("pack_dtype", "int32")
    section.expects("data_type", "int")
    section.expects("is_marlin_format", False)
    if section.get("backend") == "llm-awq":
        raise UnsupportedError(f"{section.where}: llm-awq packs matrices in another way. Give the original checkpoint.")
    rules = section.section("dynamic")
    for name, rule in rules.data.items():
        # -:NAME leaves modules unchanged
        own = rule.get("bits") if isinstance(rule, dict) else None
        if own not in (None, bits) and not name.startswith("-:"):
            raise UnsupportedError(
                f"{rules.where}: matrices of {shown(name)} have other bits than {bits}. Give the original checkpoint."
            )


def awq(tensors: Tensors, section: Config) -> Matrices:
    """See github.com/casper-hansen/AutoAWQ, utils/packing_utils."""
    section.expects("bits", 4)
    _check_packing(section, 4, ("version", "format", "checkpoint_format"), "gemm", "GEMM")
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
