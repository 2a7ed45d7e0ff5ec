"""Valid GGUF files of invalid models: the changes to a tiny model, and the error of each."""

from collections.abc import Callable
from dataclasses import dataclass

import gguf_bytes as b
import numpy as np
from tiny_models import FAMILIES, N_EMBD, N_VOCAB, TOKENS, Tensor, Tiny

from hybrid.quant.ggml.types import GGMLType

Change = Callable[[Tiny], object]
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Case:
    """A change and its error; `says` is part of the error's line."""

    family: str
    change: Change
    says: str

    def __call__(self) -> Tiny:
        model = FAMILIES[self.family]()
        self.change(model)
        return model


def key(name: str, value: object, kind: int | None = None) -> Change:
    return lambda m: m.set(name, value, kind)


def keys(*changes: Change) -> Change:
    return lambda m: [change(m) for change in changes]


def without(name: str) -> Change:
    return lambda m: m.drop(name)


def without_tensor(name: str) -> Change:
    return lambda m: m.tensors.pop(name)


def poisoned(name: str, value: float = NAN) -> Change:
    """Set one value of a tensor."""

    def change(m: Tiny) -> None:
        m.tensors[name].values.reshape(-1)[7 % m.tensors[name].values.size] = value

    return change


def whole(name: str, value: float, kind: GGMLType = GGMLType.F32) -> Change:
    def change(m: Tiny) -> None:
        m.tensors[name].values[:] = value
        m.tensors[name].kind = kind

    return change


def shaped(name: str, *shape: int) -> Change:
    """Replace a tensor by one of another shape, with data of that size."""

    def change(m: Tiny) -> None:
        m.tensors[name] = Tensor(np.full(shape, 0.1, np.float32), m.tensors[name].kind)

    return change


def extra(name: str, *shape: int) -> Change:
    def change(m: Tiny) -> None:
        m.tensors[name] = Tensor(np.full(shape, 0.1, np.float32))

    return change


def reshaped(name: str, *shape: int) -> Change:
    """Give a tensor another shape, with unchanged data."""

    def change(m: Tiny) -> None:
        m.tensors[name].shape = shape

    return change


JAMBA: dict[str, tuple[Change, str]] = {
    # the architecture
    "no architecture": (without("general.architecture"), "general.architecture"),
    "architecture unknown": (key("general.architecture", "mamba9"), "'mamba9' is not supported"),
    "architecture a number": (key("general.architecture", 7), "general.architecture = 7, expected a string"),
    "architecture an array": (key("general.architecture", ["jamba"]), "general.architecture"),
    "architecture of numbers": (key("general.architecture", [1, 2], b.I32), "general.architecture"),
    "architecture of another family": (key("general.architecture", "llama"), "llama.block_count"),
    # block_count
    "no block_count": (without(".block_count"), "jamba.block_count"),
    "block_count 0": (key(".block_count", 0), "jamba.block_count = 0"),
    "block_count -1": (key(".block_count", -1, b.I32), "jamba.block_count = -1"),
    "block_count 1": (keys(key(".block_count", 1), key(".attention.head_count_kv", 2)), "blk.1."),
    "block_count 3": (keys(key(".block_count", 3), key(".attention.head_count_kv", 2)), "blk."),
    "block_count 2^31": (key(".block_count", 2**31), "jamba.block_count = 2147483648"),
    "block_count 2^31 - 1": (
        keys(key(".block_count", 2**31 - 1), key(".attention.head_count_kv", 2)),
        "jamba.block_count = 2147483647",
    ),
    "block_count 2^63": (key(".block_count", 2**63, b.U64), "jamba.block_count = 9223372036854775808"),
    "block_count a string": (key(".block_count", "2"), "jamba.block_count = '2'"),
    "block_count a float": (key(".block_count", 2.0), "jamba.block_count = 2.0"),
    "block_count a bool": (key(".block_count", True), "jamba.block_count = True"),
    "block_count an array": (key(".block_count", [2, 2], b.U32), "jamba.block_count"),
    # sizes
    "embedding_length 0": (key(".embedding_length", 0), "jamba.embedding_length = 0"),
    "embedding_length 31": (key(".embedding_length", 31), "token_embd.weight has shape [56, 32]"),
    "embedding_length 2^31 - 1": (key(".embedding_length", 2**31 - 1), "token_embd.weight has shape"),
    "no embedding_length": (without(".embedding_length"), "jamba.embedding_length"),
    "context_length 0": (key(".context_length", 0), "jamba.context_length = 0"),
    "context_length -5": (key(".context_length", -5, b.I32), "jamba.context_length = -5"),
    "context_length a string": (key(".context_length", "many"), "jamba.context_length = 'many'"),
    "context_length a long string": (key(".context_length", "x" * 100_000), "jamba.context_length = 'xxx"),
    "context_length an array": (key(".context_length", list(range(5000)), b.I32), "jamba.context_length"),
    "context_length a bool": (key(".context_length", True), "jamba.context_length = True"),
    "context_length 2^64 - 1": (
        key(".context_length", 2**64 - 1, b.U64),
        "jamba.context_length = 18446744073709551615",
    ),
    "feed_forward_length 0": (key(".feed_forward_length", 0), "jamba.feed_forward_length = 0"),
    "feed_forward_length 2^30": (key(".feed_forward_length", 2**30), "has shape"),
    "feed_forward_length an array": (key(".feed_forward_length", [48, 48], b.I32), "jamba.feed_forward_length"),
    # attention
    "head_count 0": (key(".attention.head_count", 0), "jamba.attention.head_count = 0"),
    "head_count 3": (key(".attention.head_count", 3), "jamba.attention.head_count = 3"),
    "head_count 64": (key(".attention.head_count", 64), "jamba.attention.head_count = 64"),
    "head_count 2^31 - 1": (key(".attention.head_count", 2**31 - 1), "jamba.attention.head_count = 2147483647"),
    "head_count_kv 3": (
        keys(
            key(".attention.head_count_kv", [3, 0], b.I32),
            shaped("blk.0.attn_k.weight", 24, N_EMBD),
            shaped("blk.0.attn_v.weight", 24, N_EMBD),
        ),
        "jamba.attention.head_count_kv = 3",
    ),
    "head_count_kv 8": (
        keys(
            key(".attention.head_count_kv", [8, 0], b.I32),
            shaped("blk.0.attn_k.weight", 64, N_EMBD),
            shaped("blk.0.attn_v.weight", 64, N_EMBD),
        ),
        "jamba.attention.head_count_kv = 8",
    ),
    "head_count_kv -2": (key(".attention.head_count_kv", [-2, 0], b.I32), "jamba.attention.head_count_kv = -2"),
    "head_count_kv all 0": (key(".attention.head_count_kv", [0, 0], b.I32), "blk.0.ssm_in.weight"),
    "head_count_kv 2 everywhere": (key(".attention.head_count_kv", 2), "blk.1.attn_q.weight"),
    "head_count_kv of one layer": (key(".attention.head_count_kv", [2], b.I32), "has 1 values for 2 layers"),
    "head_count_kv of three": (key(".attention.head_count_kv", [2, 0, 0], b.I32), "has 3 values for 2 layers"),
    "head_count_kv of floats": (key(".attention.head_count_kv", [2.5, INF]), "jamba.attention.head_count_kv"),
    "head_count_kv of strings": (key(".attention.head_count_kv", ["2", "0"]), "jamba.attention.head_count_kv"),
    "head_count_kv a string": (key(".attention.head_count_kv", "20"), "jamba.attention.head_count_kv"),
    "head_count_kv of bools": (key(".attention.head_count_kv", [True, False]), "jamba.attention.head_count_kv"),
    "head_count_kv a float": (key(".attention.head_count_kv", 2.0), "jamba.attention.head_count_kv"),
    "eps NaN": (key(".attention.layer_norm_rms_epsilon", NAN), "layer_norm_rms_epsilon = nan"),
    "eps inf": (key(".attention.layer_norm_rms_epsilon", INF), "layer_norm_rms_epsilon = inf"),
    "eps negative": (key(".attention.layer_norm_rms_epsilon", -1e-5), "layer_norm_rms_epsilon = -9.99"),
    "eps beyond f32": (key(".attention.layer_norm_rms_epsilon", 1e300, b.F64), "layer_norm_rms_epsilon = 1e+300"),
    "eps a string": (key(".attention.layer_norm_rms_epsilon", "1e-5"), "layer_norm_rms_epsilon = '1e-5'"),
    "no eps": (without(".attention.layer_norm_rms_epsilon"), "layer_norm_rms_epsilon"),
    # state space
    "conv_kernel 0": (key(".ssm.conv_kernel", 0), "jamba.ssm.conv_kernel = 0"),
    "conv_kernel 1": (
        keys(key(".ssm.conv_kernel", 1), shaped("blk.1.ssm_conv1d.weight", 64, 1)),
        "jamba.ssm.conv_kernel = 1",
    ),
    "conv_kernel 1000": (key(".ssm.conv_kernel", 1000), "blk.1.ssm_conv1d.weight has shape [64, 4]"),
    "conv_kernel 2^31 - 1": (key(".ssm.conv_kernel", 2**31 - 1), "blk.1.ssm_conv1d.weight has shape"),
    "state_size 0": (key(".ssm.state_size", 0), "jamba.ssm.state_size = 0"),
    "state_size 2^31 - 1": (key(".ssm.state_size", 2**31 - 1), "has shape"),
    "inner_size 63": (key(".ssm.inner_size", 63), "blk.1.ssm_in.weight has shape [128, 32]"),
    "inner_size 2^31 - 1": (key(".ssm.inner_size", 2**31 - 1), "blk.1.ssm_in.weight has shape"),
    "time_step_rank 4": (key(".ssm.time_step_rank", 4), "blk.1.ssm_x.weight has shape [13, 64]"),
    "time_step_rank 0": (key(".ssm.time_step_rank", 0), "jamba.ssm.time_step_rank = 0"),
    # experts
    "expert_count 0": (key(".expert_count", 0), "jamba.expert_used_count = 2, expected 1 to 0"),
    "expert_count 4": (key(".expert_count", 4), "has shape"),
    "expert_count 2^31 - 1": (key(".expert_count", 2**31 - 1), "has shape"),
    "no expert_count": (without(".expert_count"), "jamba.expert_used_count = 2, expected 1 to 0"),
    "expert_used_count 0": (key(".expert_used_count", 0), "jamba.expert_used_count = 0"),
    "expert_used_count 4": (key(".expert_used_count", 4), "jamba.expert_used_count = 4"),
    "expert_used_count 2^31 - 1": (key(".expert_used_count", 2**31 - 1), "jamba.expert_used_count = 2147483647"),
    "expert_used_count -1": (key(".expert_used_count", -1, b.I32), "jamba.expert_used_count = -1"),
    "no expert_used_count": (without(".expert_used_count"), "jamba.expert_used_count"),
    "router missing": (without_tensor("blk.0.ffn_gate_inp.weight"), "blk.0.ffn_gate.weight"),
    # tensors
    "no embedding": (without_tensor("token_embd.weight"), "token_embd.weight"),
    "no output norm": (without_tensor("output_norm.weight"), "output_norm.weight"),
    "no ssm_d": (without_tensor("blk.1.ssm_d"), "blk.1.ssm_d"),
    "no norm": (without_tensor("blk.0.attn_norm.weight"), "blk.0.attn_norm.weight"),
    "no tensors": (lambda m: m.tensors.clear(), "holds no tensors, only metadata"),
    "left over": (
        extra("blk.0.attn_rel_b.bias", N_EMBD),
        "blk.0.attn_rel_b.bias: this architecture has no such tensor",
    ),
    "left over layer": (extra("blk.2.attn_norm.weight", N_EMBD), "blk.2.attn_norm.weight: this architecture"),
    "left over, named to hurt": (extra("a\x1b[31m\nerror: b", 3), "this architecture has no such tensor"),
    "embedding of one dimension": (shaped("token_embd.weight", N_EMBD), "token_embd.weight has shape [32]"),
    "embedding of three": (shaped("token_embd.weight", 1, N_VOCAB, N_EMBD), "token_embd.weight has shape [1, 56, 32]"),
    "embedding transposed": (shaped("token_embd.weight", N_EMBD, N_VOCAB), "token_embd.weight has shape [32, 56]"),
    "output of another vocabulary": (extra("output.weight", N_VOCAB + 1, N_EMBD), "output.weight has shape [57, 32]"),
    "norm of a matrix": (shaped("blk.0.attn_norm.weight", 1, N_EMBD), "blk.0.attn_norm.weight has shape [1, 32]"),
    "norm too long": (shaped("output_norm.weight", N_EMBD + 1), "output_norm.weight has shape [33]"),
    "matrix transposed": (shaped("blk.1.ffn_down.weight", 48, 32), "blk.1.ffn_down.weight has shape [48, 32]"),
    "experts flat": (reshaped("blk.0.ffn_up_exps.weight", 144, 32), "blk.0.ffn_up_exps.weight has shape [144, 32]"),
    "matrix of four dimensions": (reshaped("blk.1.ffn_up.weight", 1, 1, 48, 32), "has shape [1, 1, 48, 32]"),
    # values
    "NaN in a norm": (poisoned("blk.0.attn_norm.weight"), "blk.0.attn_norm.weight contains NaN"),
    "NaN in the output norm": (poisoned("output_norm.weight"), "output_norm.weight contains NaN"),
    "infinity in a norm": (poisoned("blk.1.ffn_norm.weight", INF), "blk.1.ffn_norm.weight contains NaN or infinity"),
    "NaN in A": (poisoned("blk.1.ssm_a"), "blk.1.ssm_a contains NaN"),
    "A above 0": (poisoned("blk.1.ssm_a", 3.0), "blk.1.ssm_a"),
    "NaN in D": (poisoned("blk.1.ssm_d"), "blk.1.ssm_d contains NaN"),
    "NaN in the convolution": (poisoned("blk.1.ssm_conv1d.weight"), "blk.1.ssm_conv1d.weight contains NaN"),
    "infinity in the step's bias": (poisoned("blk.1.ssm_dt.bias", -INF), "blk.1.ssm_dt.bias contains NaN"),
    "NaN in an inner norm": (poisoned("blk.1.ssm_b_norm.weight"), "blk.1.ssm_b_norm.weight contains NaN"),
    # found only by running the model
    "NaN in the embedding": (whole("token_embd.weight", NAN), "the logits hold NaN"),
    "NaN in the queries": (whole("blk.0.attn_q.weight", NAN), "the logits hold NaN"),
    "NaN in the router": (whole("blk.0.ffn_gate_inp.weight", NAN), "the logits hold NaN"),
    "NaN in one expert weight of each": (whole("blk.0.ffn_up_exps.weight", NAN), "the logits hold NaN"),
    "NaN in the step": (whole("blk.1.ssm_dt.weight", NAN), "the logits hold NaN"),
    "NaN in the projection": (whole("blk.1.ssm_out.weight", NAN), "the logits hold NaN"),
    "infinity in the feed-forward part": (whole("blk.1.ffn_down.weight", INF), "the logits hold NaN"),
    "weights beyond f32's range": (whole("blk.1.ffn_up.weight", 3e38), "the logits hold"),
    "an overflow that a norm makes zero": (whole("blk.1.ffn_down.weight", 1e25), "the logits are all zero"),
    "NaN in F16": (whole("blk.1.ffn_up.weight", NAN, GGMLType.F16), "the logits hold NaN"),
    "NaN in BF16": (whole("blk.1.ffn_up.weight", NAN, GGMLType.BF16), "the logits hold NaN"),
    "NaN in Q8_0 scales": (whole("blk.1.ffn_up.weight", NAN, GGMLType.Q8_0), "the logits hold NaN"),
    "NaN in Q4_0 scales": (whole("blk.1.ffn_up.weight", NAN, GGMLType.Q4_0), "the logits hold NaN"),
    "NaN in a quantized embedding": (whole("token_embd.weight", NAN, GGMLType.Q8_0), "the logits hold NaN"),
    "NaN before quantized weights": (
        keys(
            whole("blk.1.ffn_up.weight", 0.1, GGMLType.Q8_0),
            whole("blk.1.ffn_gate.weight", 0.1, GGMLType.Q4_0),
            whole("blk.1.ssm_out.weight", NAN),
        ),
        "the logits hold NaN",
    ),
    # the tokenizer
    "no tokenizer": (without("tokenizer.ggml.model"), "has no tokenizer"),
    "tokenizer kind unknown": (key("tokenizer.ggml.model", "wordpiece"), "tokenizer kind wordpiece"),
    "tokenizer kind a number": (key("tokenizer.ggml.model", 3), "tokenizer.ggml.model is int"),
    "no tokens": (without("tokenizer.ggml.tokens"), "tokenizer.ggml.tokens is missing"),
    "tokens are numbers": (key("tokenizer.ggml.tokens", [1, 2, 3], b.I32), "tokenizer.ggml.tokens is not an array"),
    "tokens are a string": (key("tokenizer.ggml.tokens", "abc"), "tokenizer.ggml.tokens is not an array"),
    "token not UTF-8": (
        lambda m: m.key_values.update(
            {"tokenizer.ggml.tokens": (b.ARR, b.array(b.STR, [b.string(b"\xff")] * N_VOCAB))}
        ),
        "tokenizer.ggml.tokens: string 0 is not UTF-8",
    ),
    "vocabulary shorter than the embedding": (
        keys(
            key("tokenizer.ggml.tokens", TOKENS[:-1]),
            key("tokenizer.ggml.scores", [0.0] * (N_VOCAB - 1)),
            key("tokenizer.ggml.token_type", [2, 3, 3] + [1] * (N_VOCAB - 4), b.I32),
        ),
        "55 tokens",
    ),
    "vocabulary longer than the embedding": (shaped("token_embd.weight", N_VOCAB - 1, N_EMBD), "56 tokens"),
    "scores too few": (key("tokenizer.ggml.scores", [0.0] * 5), "tokenizer.ggml.scores has 5 entries for 56 tokens"),
    "scores missing": (without("tokenizer.ggml.scores"), "tokenizer.ggml.scores is missing"),
    "scores NaN": (key("tokenizer.ggml.scores", [NAN] * N_VOCAB), "tokenizer.ggml.scores holds NaN"),
    "scores strings": (key("tokenizer.ggml.scores", ["a"] * N_VOCAB), "tokenizer.ggml.scores is not an array"),
    "token types too many": (key("tokenizer.ggml.token_type", [1] * 57, b.I32), "token_type has 57 entries for 56"),
    "all bytes, spelled otherwise": (key("tokenizer.ggml.token_type", [6] * N_VOCAB, b.I32), "is of type BYTE"),
    "bos 10^6": (key("tokenizer.ggml.bos_token_id", 10**6), "bos_token_id is 1000000, but the vocabulary has 56"),
    "bos -7": (key("tokenizer.ggml.bos_token_id", -7, b.I32), "bos_token_id is -7"),
    "eos a string": (key("tokenizer.ggml.eos_token_id", "</s>"), "eos_token_id is </s>, expected a token id"),
    "eos 2^64 - 1": (key("tokenizer.ggml.eos_token_id", 2**64 - 1, b.U64), "eos_token_id is 18446744073709551615"),
    "unknown token 99": (key("tokenizer.ggml.unknown_token_id", 99), "unknown_token_id is 99"),
    "add_bos a number": (key("tokenizer.ggml.add_bos_token", 1), "add_bos_token is 1, expected true or false"),
    "gpt2 without merges": (
        keys(key("tokenizer.ggml.model", "gpt2"), key("tokenizer.ggml.pre", "gpt-2")),
        "tokenizer.ggml.merges is missing",
    ),
    "gpt2 with an unknown pre-tokenizer": (
        keys(key("tokenizer.ggml.model", "gpt2"), key("tokenizer.ggml.pre", "nobody")),
        "tokenizer.ggml.pre = nobody",
    ),
    "charsmap garbage": (key("tokenizer.ggml.precompiled_charsmap", [255] * 40, b.U8), "sentencepiece refuses"),
    # sampling defaults
    "temp NaN": (key("general.sampling.temp", NAN), "general.sampling.temp = nan"),
    "top_k a string": (key("general.sampling.top_k", "many"), "general.sampling.top_k = many"),
    "top_p 7": (key("general.sampling.top_p", 7.0), "general.sampling.top_p = 7.0"),
}

LLAMA: dict[str, tuple[Change, str]] = {
    "head_count_kv 3": (
        keys(
            key(".attention.head_count_kv", 3),
            *(shaped(f"blk.{i}.attn_{t}.weight", 24, N_EMBD) for i in range(2) for t in "kv"),
        ),
        "llama.attention.head_count_kv = 3",
    ),
    "head_count_kv 0": (key(".attention.head_count_kv", 0), "llama.attention.head_count_kv = 0"),
    "rope 7": (
        key(".rope.dimension_count", 7),
        "llama.rope.dimension_count = 7, expected an even number of the 8 values of a head",
    ),
    "rope 16 of 8": (key(".rope.dimension_count", 16), "llama.rope.dimension_count = 16"),
    "rope 2^30": (key(".rope.dimension_count", 2**30), "llama.rope.dimension_count = 1073741824"),
    "rope -2": (key(".rope.dimension_count", -2, b.I32), "llama.rope.dimension_count = -2"),
    "rope base 0": (key(".rope.freq_base", 0.0), "llama.rope.freq_base = 0.0"),
    "rope base NaN": (key(".rope.freq_base", NAN), "llama.rope.freq_base = nan"),
    "rope base inf": (key(".rope.freq_base", INF), "llama.rope.freq_base = inf"),
    "rope base negative": (key(".rope.freq_base", -1.0), "llama.rope.freq_base = -1.0"),
    "rope factor NaN": (key(".rope.scaling.factor", NAN), "llama.rope.scaling.factor = nan"),
    "rope scaling dynamic": (key(".rope.scaling.type", "dynamic"), "llama.rope.scaling.type = 'dynamic'"),
    "rope factors of one kind": (extra("rope_factors_long.weight", 4), "rope_factors_short.weight"),
    "rope factors 0": (
        keys(
            extra("rope_factors_long.weight", 4),
            extra("rope_factors_short.weight", 4),
            whole("rope_factors_long.weight", 0.0),
        ),
        "rope_factors_long.weight has values down to 0",
    ),
    "yarn of 2^30 values": (
        keys(key(".rope.scaling.type", "yarn"), key(".rope.dimension_count", 2**30)),
        "expected at most 65536",
    ),
    "window of a third layer": (key("hybrid.attention.sliding_window", [1, 2, 3], b.I32), "has 3 values for 2 layers"),
    "window negative": (key("hybrid.attention.sliding_window", -1, b.I32), "hybrid.attention.sliding_window = -1"),
    "rope scaling a number": (key(".rope.scaling.type", 3), "llama.rope.scaling.type = 3"),
    "rope_freqs too long": (extra("rope_freqs.weight", 5), "rope_freqs.weight has shape [5]"),
    "rope_freqs 0": (keys(extra("rope_freqs.weight", 4), whole("rope_freqs.weight", 0.0)), "rope_freqs.weight"),
    "rope_freqs NaN": (keys(extra("rope_freqs.weight", 4), whole("rope_freqs.weight", NAN)), "rope_freqs.weight"),
    "key_length 5": (key(".attention.key_length", 5), "llama.rope.dimension_count = 8, expected an even number"),
    "key_length 6": (
        keys(key(".attention.key_length", 6), without(".rope.dimension_count")),
        "blk.0.attn_q.weight has shape [32, 32], expected [24, 32] by the model's keys",
    ),
    "key_length 2^31 - 1": (key(".attention.key_length", 2**31 - 1), "has shape"),
    "key_length odd": (
        keys(
            key(".attention.key_length", 9),
            without(".rope.dimension_count"),
            *(shaped(f"blk.{i}.attn_q.weight", 36, N_EMBD) for i in range(2)),
            *(shaped(f"blk.{i}.attn_{t}.weight", 18, N_EMBD) for i in range(2) for t in "kv"),
            *(shaped(f"blk.{i}.attn_output.weight", N_EMBD, 36) for i in range(2)),
        ),
        "llama.rope.dimension_count = 9, expected an even number",
    ),
    "head_count 5": (key(".attention.head_count", 5), "llama.attention.head_count = 5"),
}

MAMBA: dict[str, tuple[Change, str]] = {
    "dt_b_c_rms a number": (key(".ssm.dt_b_c_rms", 1), "mamba.ssm.dt_b_c_rms = 1"),
    "dt_b_c_rms_epsilon NaN": (key(".ssm.dt_b_c_rms_epsilon", NAN), "dt_b_c_rms_epsilon = nan"),
    "block_count 2^31 - 1": (key(".block_count", 2**31 - 1), "mamba.block_count = 2147483647"),
    "A of one row": (shaped("blk.0.ssm_a", 64), "blk.0.ssm_a has shape [64]"),
    "A huge": (whole("blk.0.ssm_a", 3e38), "blk.0.ssm_a"),
}

RWKV7: dict[str, tuple[Change, str]] = {
    "head_size 0": (key(".wkv.head_size", 0), "rwkv7.wkv.head_size = 0"),
    "head_size 5": (key(".wkv.head_size", 5), "rwkv7.wkv.head_size = 5, expected a divisor of embedding_length = 32"),
    "head_size 2^31 - 1": (key(".wkv.head_size", 2**31 - 1), "rwkv7.wkv.head_size = 2147483647"),
    "no head_size": (without(".wkv.head_size"), "rwkv7.wkv.head_size"),
    "one token shift": (key(".token_shift_count", 1), "rwkv7.token_shift_count = 1, expected 2"),
    "eps of an RMS norm": (
        keys(without(".attention.layer_norm_epsilon"), key(".attention.layer_norm_rms_epsilon", 1e-5)),
        "rwkv7.attention.layer_norm_epsilon",
    ),
    "another rank": (key(".attention.gate_lora_rank", 8), "blk.0.time_mix_g1.weight has shape [9, 32]"),
    "rank 0": (key(".attention.decay_lora_rank", 0), "rwkv7.attention.decay_lora_rank = 0"),
    "feed_forward_length 49": (key(".feed_forward_length", 49), "blk.0.channel_mix_key.weight has shape [48, 32]"),
    "no bias of a norm": (without_tensor("blk.1.attn_norm_2.bias"), "blk.1.attn_norm_2.bias"),
    "no norm of the embedding": (without_tensor("token_embd_norm.weight"), "token_embd_norm.weight"),
    "shifts of five": (shaped("blk.0.time_mix_lerp_fused.weight", 5, 1, 1, 32), "has shape [5, 1, 1, 32]"),
    "shifts flat": (reshaped("blk.0.time_mix_lerp_fused.weight", 6, 32), "has shape [6, 32]"),
    "NaN in a shift": (poisoned("blk.1.channel_mix_lerp_k.weight"), "channel_mix_lerp_k.weight contains NaN"),
    "NaN in the bias of a norm": (poisoned("output_norm.bias"), "output_norm.bias contains NaN"),
    "NaN in the decay": (whole("blk.1.time_mix_w2.weight", NAN), "the logits hold NaN"),
    "left over": (extra("blk.0.time_mix_gate.weight", 32, 32), "blk.0.time_mix_gate.weight: this architecture"),
    "tokens without a byte": (key("tokenizer.ggml.model", "rwkv"), "no token stands for the byte 0x00"),
}

CASES: dict[str, Case] = {
    f"{family}: {name}": Case(family, change, says)
    for family, table in (("jamba", JAMBA), ("llama", LLAMA), ("mamba", MAMBA), ("rwkv7", RWKV7))
    for name, (change, says) in table.items()
}
