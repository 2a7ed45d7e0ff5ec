"""What mlx-lm and mlx-vlm change in a checkpoint (`sanitize` of their models), undone by name of the family.

convolutions    [channels, 1, taps] become [channels, taps, 1]; only then are the norms below changed also
norms           that multiply by 1 + weight hold 1 + weight
experts         E matrices become one [E, rows, columns], under `switch_mlp`
joined matrices are cut into gate and up
names           begin with `language_model.` or `vision_tower.` in folders of models with pictures
patches         of a vision tower, [width, colours, ...], have the colours last
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from hybrid.quant.ggml.errors import UnsupportedError, shown

from .config import Config
from .dequantized import joined
from .tensor import Dtype, StoredTensor

_PATCHES = ("patch_embed.proj.weight", "patch_embedding.weight")
_COLOURS = 3
_NORMS = (".input_layernorm.weight", ".post_attention_layernorm.weight", "model.norm.weight", ".q_norm.weight",
          ".k_norm.weight")  # fmt: skip


@dataclass(frozen=True)
class Changes:
    """The changes in one family. Names are parts of tensors' names."""

    conv: str = ""  # end of the names of convolutions, without .weight
    norms: tuple[str, ...] = ()  # ends of the names of norms
    experts: tuple[str, str] = ("", "")  # of stacked matrices -> of an expert's, before its number
    joined: Mapping[str, str] = field(default_factory=dict)  # of gate_proj and up_proj -> of both as one
    renamed: Mapping[str, str] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=lambda: {"language_model.": ""})  # the first that fits counts

    def name(self, name: str) -> str:
        """The name in the checkpoint, as far as its beginning has changed."""
        old = next((old for old in self.prefixes if name.startswith(old)), None)
        return name if old is None else self.prefixes[old] + name.removeprefix(old)


_SEEN_QWEN = {"language_model.": "", "vision_tower.": "model.visual."}
_QWEN = Changes(".conv1d", _NORMS, ("mlp.switch_mlp.", "mlp.experts."))
_GRANITE = Changes(
    ".conv1d",
    joined={".mlp.": ".shared_mlp.input_linear", ".switch_mlp.": ".input_linear"},
    renamed={".mlp.down_proj.": ".shared_mlp.output_linear.", ".switch_mlp.down_proj.": ".output_linear."},
)
_EXPERTS = Changes(experts=_QWEN.experts)
_JAMBA = Changes(".conv1d", experts=("feed_forward.switch_mlp.", "feed_forward.experts."))
_UNCHANGED = ("llama", "mistral", "ministral3", "qwen2", "qwen3", "smollm3", "granite", "gemma", "gemma2", "gemma3",
              "gemma3_text", "phi3", "olmo2", "starcoder2", "glm4", "seed_oss")  # fmt: skip
FAMILIES: dict[str, Changes] = {
    **dict.fromkeys(_UNCHANGED, Changes()),
    **dict.fromkeys(("qwen3_moe", "olmoe"), _EXPERTS),
    "qwen3_next": _QWEN,
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), replace(_QWEN, prefixes=_SEEN_QWEN)),
    "qwen3_vl": Changes(prefixes=_SEEN_QWEN),
    "qwen2_5_vl": Changes(prefixes={"language_model.": "", "vision_tower.": "visual."}),
    "lfm2_vl": Changes(
        ".conv",
        prefixes={
            "language_model.": "",
            "vision_tower.": "model.vision_tower.",
            "multi_modal_projector.": "model.multi_modal_projector.",
        },
    ),
    **dict.fromkeys(
        ("smolvlm", "idefics3"),
        Changes(
            prefixes={
                "language_model.lm_head.": "lm_head.",
                "language_model.": "model.text_model.",
                "vision_model.": "model.vision_model.",
                "connector.": "model.connector.",
            }
        ),
    ),
    **dict.fromkeys(("granitemoe", "granitemoehybrid"), _GRANITE),
    **dict.fromkeys(("mamba", "mamba2"), Changes(".conv1d")),
    "jamba": _JAMBA,
    "lfm2": Changes(".conv"),
    "nemotron_h": Changes(".conv1d"),
    "recurrent_gemma": Changes(".conv_1d"),
}


_ALIASES = {"qwen3_5_text": "qwen3_5", "qwen3_5_moe_text": "qwen3_5_moe", "lfm2-vl": "lfm2_vl"}


@dataclass(frozen=True)
class ShiftedTensor(StoredTensor):
    """The values of another tensor and a number, in f32."""

    shifted: StoredTensor | None = None
    by: float = 0.0

    def read(self, start: int, stop: int) -> np.ndarray:
        assert self.shifted is not None
        values: np.ndarray = self.shifted.floats(start, stop) + np.float32(self.by)
        return values


def changes_of(config: Config) -> Changes:
    """The changes in a config's family. UnsupportedError: another family."""
    family = config.string("model_type", default="")
    family = _ALIASES.get(family, family)
    if family not in FAMILIES:
        raise UnsupportedError(
            f"{config.where}: model_type = {shown(family)}: an MLX folder of a family that is not supported; "
            f"{', '.join(FAMILIES)} are. Give the checkpoint it was made from."
        )
    return FAMILIES[family]


def restored(tensors: Mapping[str, StoredTensor], config: Config) -> dict[str, StoredTensor]:
    """The tensors by the names of the checkpoint that mlx-lm converted, without its changes. UnsupportedError: another
    family."""
    changes = changes_of(config)
    plain = {changes.name(name): tensor for name, tensor in tensors.items()}
    ends = f"{changes.conv}.weight" if changes.conv else ""
    turned = [t.shape for n, t in plain.items() if ends and n.endswith(ends) and len(t.shape) == 3]
    moved = bool(turned) and all(shape[2] == 1 for shape in turned)
    found: dict[str, StoredTensor] = {}
    for name, tensor in plain.items():
        if moved and name.endswith(ends):
            found[name] = replace(tensor, shape=(tensor.shape[0], 1, tensor.shape[1]))
        elif moved and name.endswith(changes.norms) and len(tensor.shape) == 1:
            found[name] = _less_one(tensor)
        elif name.endswith(_PATCHES):
            found[name] = _colours_first(tensor)
        else:
            found |= _matrices(changes, name, tensor, plain)
    return found


def _less_one(tensor: StoredTensor) -> ShiftedTensor:
    return ShiftedTensor(tensor.name, Dtype.F32, tensor.shape, tensor.file, tensor.offset, shifted=tensor, by=-1.0)


def _colours_first(tensor: StoredTensor) -> StoredTensor:
    """[width, ..., colours] as [width, colours, ...]; others are unchanged."""
    shape = tensor.shape
    if len(shape) < 4 or shape[-1] != _COLOURS or shape[1] == _COLOURS or not isinstance(tensor.dtype, Dtype):
        return tensor
    steps = tensor.strides or tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    turned, strides = ((each[0], each[-1], *each[1:-1]) for each in (shape, steps))
    return replace(tensor, shape=turned, strides=strides)


def _matrices(
    changes: Changes, name: str, tensor: StoredTensor, plain: Mapping[str, StoredTensor]
) -> dict[str, StoredTensor]:
    """The original matrices of one matrix; none for the first of two that were one."""
    if not isinstance(tensor.dtype, Dtype):  # no matrix without its scales: planning says so
        return {name: tensor}
    stacked, single = changes.experts
    if stacked and stacked in name and len(tensor.shape) == 3:
        before, _, after = name.partition(stacked)
        return {
            f"{before}{single}{e}.{after}": tensor.part((e, 0, 0), tensor.shape[1:]) for e in range(tensor.shape[0])
        }
    for half, whole in changes.joined.items():
        before, there, part = name.rpartition(half)
        if there and part == "gate_proj.weight" and f"{before}{half}up_proj.weight" in plain:
            return {}
        if there and part == "up_proj.weight" and f"{before}{half}gate_proj.weight" in plain:
            return {f"{before}{whole}.weight": joined(plain[f"{before}{half}gate_proj.weight"], tensor)}
    for old, new in changes.renamed.items():
        if old in name:
            return {name.replace(old, new): tensor}
    return {name: tensor}
