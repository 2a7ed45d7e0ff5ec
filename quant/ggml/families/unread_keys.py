"""Keys of a model file that its family does not read.

llama.cpp ignores every key that it does not know. A key that changes the result must not be ignored in silence: the
file would load and talk noise. `judged` sorts keys without a reader into three kinds:

    refused    changes the result, and is not neutral: the file is refused
    noted      its meaning is unknown: a line names it once
    passed     cannot change the result: sizes that tensors also show, facts about the file, rests of other programs
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from .. import rotation
from ..errors import UnsupportedError, shown
from ..reader import GGUFFile
from ..scales import TENSOR_EXTRA
from ..types import TRAITS

Verdict = Literal["refused", "noted", "passed"]
MOST_NAMED = 3  # keys that a note names


class Unread(NamedTuple):
    """A key without a reader. why: what the key changes if it is refused, else why it can be ignored."""

    key: str
    verdict: Verdict
    why: str


class _Any:
    """Stands for every value."""


ANY = _Any()
_TENSORS = "the tensors show it"

# What families assume of keys that they do not read: the only value, or ANY if no value changes the result.
_ASSUMED: Mapping[str, Mapping[str, Any]] = {
    "bert": {"attention.causal": False},
    "ernie4_5-moe": {"interleave_moe_layer_step": ANY, "leading_dense_block_count": ANY},
    "falcon": {"tensor_data_layout": "jploski"},
    "lfm2": {"attention.causal": ANY},
    "lfm2moe": {"expert_gating_func": 2},
    "llama4": {"interleave_moe_layer_step": ANY},
    "modern-bert": {"attention.causal": False},
    "minimax-01": {"attention.recurrent_layers": ANY},
    "nemotron_h": {"rope.dimension_count": ANY},
    "nemotron_h_moe": {"rope.dimension_count": ANY},
    "qwen35": {"attention.recurrent_layers": ANY, "full_attention_interval": ANY},
    "qwen35moe": {"attention.recurrent_layers": ANY, "full_attention_interval": ANY},
    "qwen3next": {"attention.recurrent_layers": ANY, "full_attention_interval": ANY},
    "qwen4exp": {"attention.recurrent_layers": ANY, "full_attention_interval": ANY},
    "zaya": {"expert_used_count": 1},
}

# Keys that layers read themselves, beside the family's Hparams.
_READ_BY_LAYERS: Mapping[str, Collection[str]] = {
    "gemma3n": ("gemma3n.activation_sparsity_scale",),
    "llama4": ("hybrid.attention.qk_norm", "hybrid.rope.layer_pattern"),
    "qwen4exp": tuple(
        f"qwen4exp.ple.{name}" for name in ("head_offsets", "head_vocab_sizes", "layer_multipliers", "layers")
    ),
}

_ROTATED = re.compile(r"^prism\.|^onebit\.|hadamard|rotation|quarot|spinquant")

# Keys of an architecture, without its prefix.
_PASSED = {
    r"vocab_size|features_length|block_size|context_length": _TENSORS,
    r"attention\.(head_count|head_count_kv|key_length|value_length)(_swa)?": _TENSORS,
    r"(expert_|expert_shared_|expert_chunk_)?feed_forward_length|expert_shared_count": _TENSORS,
    r"embedding_length_out|dense_\w*feat\w*": _TENSORS,
    r"n_deepstack_layers|deepstack_mapping|(vision|audio|mm)\..*": "of parts that are not run",
    r"pooling_type|classifier\..*|decoder_.*|target_.*|nextn_.*": "of other uses of the model",
    r"rope\.scaling\.finetuned": "a fact about the training",
}
_COMPUTES = re.compile(
    r"(rope|attention|ssm|kda|wkv|shortconv|hyper_connection|ple|attn_res|hrm|adapters|activation|altup|laurel|moe"
    r"|mlstm|indexer|compress|residual|per_layer)[._].*"
    r"|(attn_logit|final_logit|router_logit)_softcapping|(logit|residual|embedding)_scale|swiglu_clamp_.*"
    r"|activation_sparsity_scale|hidden_act(ivation)?|use_parallel_residual|expert_.*|interleave_moe_layer_step"
    r"|moe_.*|leading_dense_block_count|hash_layer_count|full_attention_interval|num_loops|norm_before_.*|swin_norm"
    r"|rescale_every_n_layers|time_.*|token_shift_count|tensor_data_layout|output_(scale|multiplier).*|.*_multiplier"
)
# Neutral values besides 0, false, "" and none: a value, or whether a value is neutral in this file.
_NEUTRAL: Mapping[str, Any] = {
    "attention.causal": True,
    "attention.layer_norm_epsilon": lambda value, of: value == of("attention.layer_norm_rms_epsilon"),
    "attention.layer_norm_rms_epsilon": lambda value, of: value == of("attention.layer_norm_epsilon"),
    "attention.output_scale": 1,
    "attention.scale": lambda value, of: _is_near(value, _head_size(of) ** -0.5),
    "attention.sliding_window": lambda value, of: value >= of("context_length"),
    "attention.value_scale": 1,
    "embedding_scale": 1,
    "expert_group_count": 1,
    "expert_group_used_count": lambda value, of: value == max(1, of("expert_group_count") or 1),
    "expert_weights_scale": 1,
    "logit_scale": 1,
    "residual_scale": 1,
    "rope.dimension_count": lambda value, of: value == _head_size(of),
    "rope.dimension_sections": lambda value, of: True,  # of pictures: a text has three equal positions
    "rope.freq_base_swa": lambda value, of: value == of("rope.freq_base"),
    "rope.scale_linear": 1,
    "rope.scaling.attn_factor": 1,
    "rope.scaling.factor": 1,
    "rope.scaling.original_context_length": lambda value, of: _is_unscaled(of),
    "rope.scaling.type": lambda value, of: value == "none" or (value == "linear" and _is_unscaled(of)),
    "rope.scaling.yarn_attn_factor": lambda value, of: _is_unscaled(of),
    "rope.scaling.yarn_beta_fast": lambda value, of: _is_unscaled(of),
    "rope.scaling.yarn_beta_slow": lambda value, of: _is_unscaled(of),
    "rope.scaling.yarn_ext_factor": lambda value, of: value in (-1, 1),  # -1: by the type
    "rope.scaling.yarn_log_multiplier": lambda value, of: _is_unscaled(of),
}
_TOP_LEVEL = re.compile(  # prefixes of facts about a file, and of tools that write some
    r"(general|tokenizer|split|quantize|imatrix|hybrid|adapter|mradermacher|unsloth|gguf|GGUF|comment|converter)\."
)
_NOTED_OF_TOKENIZERS = re.compile(r"tokenizer\.ggml\.(normalizer\.(?!lowercase|strip_accents).*|suppress_tokens)")

_WINDOWS = "hybrid.attention.sliding_window"
_Lookup = Callable[[str], Any]  # the value of a key of the architecture, or None


def check_unread(gguf: GGUFFile, arch: str, read: Collection[str]) -> None:
    """Raises UnsupportedError for the first key that changes the result and has no reader. read: keys with a reader."""
    for key, verdict, why in judged(gguf, arch, read):
        if verdict == "refused":
            value = gguf.get(key)
            value = value.tolist() if hasattr(value, "tolist") else value
            raise UnsupportedError(
                f"{gguf.path.name}: {key} = {shown(repr(value), 60)}, which nothing here reads for {arch}: {why}. "
                "Use another file of this model, or a program that reads the key."
            )


def unread_notes(gguf: GGUFFile, arch: str, read: Collection[str]) -> list[str]:
    """At most one line, which names keys that nobody here understands."""
    keys = [shown(key) for key, verdict, _ in judged(gguf, arch, read) if verdict == "noted"]
    if not keys:
        return []
    more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
    named = ", ".join(keys[:MOST_NAMED])
    return [f"{gguf.path.name} has keys that are not known here and are ignored: {named}{more}."]


def judged(gguf: GGUFFile, arch: str, read: Collection[str]) -> Iterator[Unread]:
    """The verdict on every key of the file that is not in `read`."""
    known = {*read, *_READ_BY_LAYERS.get(arch, ()), *rotation.KEYS}

    def value(name: str) -> Any:
        return gguf.get(f"{arch}.{name}", None)

    for key in gguf.metadata:
        if key not in known:
            yield Unread(key, *_verdict(gguf, arch, key, value, known))


def _verdict(gguf: GGUFFile, arch: str, key: str, of: _Lookup, known: Collection[str]) -> tuple[Verdict, str]:
    prefix, _, name = key.partition(".")
    if prefix == "general":
        return _of_general(gguf, key)
    if prefix == "tokenizer":
        noted = _NOTED_OF_TOKENIZERS.fullmatch(key)
        return ("noted", "tokens of some texts") if noted else ("passed", "read by tokenizers")
    if _ROTATED.search(key):
        return "refused", "weights are rotated, and without the inverse the result would be noise"
    if prefix == arch:
        return _of_architecture(gguf, arch, name, of, known)
    if prefix == "xielu":
        return "refused", "parameters of an activation"
    if prefix == "hybrid" and not name.startswith(("tokenizer.", "quantize.", "prompts.", "embedding.")):
        return ("refused", "it changes the result") if _COMPUTES.fullmatch(name) else ("noted", "unknown")
    if _TOP_LEVEL.match(key) or f"{prefix}.block_count" in gguf.metadata:
        return "passed", "a fact about the file, or of another architecture"
    return "noted", "unknown"


def _of_general(gguf: GGUFFile, key: str) -> tuple[Verdict, str]:
    if (
        key == "general.quantization_version"
        and gguf.get(key) != 2
        and any(TRAITS[tensor.type].block > 1 for tensor in gguf.tensors.values())
    ):
        return "refused", "blocks of weights have another layout"
    if key.startswith(TENSOR_EXTRA) and key.removeprefix(TENSOR_EXTRA) not in ("name", "prec_a4"):
        return "refused", "it changes the values of tensors"
    return "passed", "a fact about the file"


def _of_architecture(gguf: GGUFFile, arch: str, name: str, of: _Lookup, known: Collection[str]) -> tuple[Verdict, str]:
    for pattern, why in _PASSED.items():
        if re.fullmatch(pattern, name):
            return "passed", why
    assumed = _ASSUMED.get(arch, {}).get(name)
    if assumed is ANY or (assumed is not None and of(name) == assumed):
        return "passed", _TENSORS if assumed is ANY else f"{arch} always has this value"
    if not _COMPUTES.fullmatch(name):
        return "noted", "unknown"
    if assumed is None and _is_neutral(_NEUTRAL.get(name), of(name), of):
        return "passed", "it has its neutral value"
    if name == "attention.sliding_window" and _WINDOWS in known:
        # llama.cpp has no windows in these architectures, whatever its converter wrote
        return ("passed", "read in our key") if _WINDOWS in gguf.metadata else ("noted", "no window, as in llama.cpp")
    return "refused", "it changes the result"


def _is_neutral(neutral: Any, value: Any, of: _Lookup) -> bool:
    if neutral is ANY or neutral is True:
        return neutral is ANY or value is True
    values = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(values, list):
        return callable(neutral) or not any(values)
    if callable(neutral):
        return not values or bool(neutral(values, of))
    return values in (0, "", "none") or (neutral is not None and values == neutral)


def _is_unscaled(of: _Lookup) -> bool:
    return (of("rope.scaling.factor") or 1) == 1 and of("rope.scaling.type") in (None, "none", "linear")


def _head_size(of: _Lookup) -> float:
    heads = of("attention.head_count")
    size = of("attention.key_length") or (of("embedding_length") or 0) / (heads if isinstance(heads, int) else 1)
    return float(size) or 1.0


def _is_near(value: float, other: float) -> bool:
    return abs(value - other) <= 1e-6 * other
