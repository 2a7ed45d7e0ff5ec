"""Keys of files with a vision tower (mmproj): its sizes, and how its layers and its projector compute.

One class per `clip.projector_type`, a field per key. Keys of llama.cpp begin with `clip.`, others with `hybrid.vision.`
(docs/gguf-extensions.md). Settings of pictures have classes of their own: `PictureSettings`.
"""

from typing import ClassVar

from ..errors import FormatError, UnsupportedError, shown
from ..families.hparams import FileKeys, key
from ..reader import GGUFFile
from ..vision_names import CLIP


class TowerHparams(FileKeys):
    """Keys of every tower. n_out: width of the text model; stated_eps: which llama.cpp reads for all norms, though its
    converter writes the text model's or a default for some kinds."""

    n_layer: int = key("vision.block_count", minimum=1)
    n_embd: int = key("vision.embedding_length", minimum=1)
    n_ff: int = key("vision.feed_forward_length", minimum=1)
    n_head: int = key("vision.attention.head_count", minimum=1)
    n_out: int = key("vision.projection_dim", minimum=1)
    patch_size: int = key("vision.patch_size", minimum=1)
    stated_eps: float = key("vision.attention.layer_norm_epsilon", 1e-6)
    own_eps: float = key("hybrid.vision.attention.layer_norm_epsilon", 0.0)  # if it is not stated_eps

    FIXED_EPS: ClassVar[float] = 0.0  # of the tower's norms, where no config sets it

    @property
    def eps(self) -> float:
        """The epsilon of the tower's norms."""
        return self.own_eps or self.FIXED_EPS or self.stated_eps


class QwenVlHparams(TowerHparams):
    """Keys of Qwen3-VL and Qwen3.5. deepstack: per layer, whether its output goes to a layer of the text model."""

    n_merge: int = key("vision.spatial_merge_size", 2, minimum=1)
    deepstack: tuple[bool, ...] = key("vision.is_deepstack_layers", (), values=0)
    freq_base: float = key("hybrid.vision.rope.freq_base", 10000.0)

    FIXED_EPS = 1e-6


class Qwen25VlHparams(TowerHparams):
    """Keys of Qwen2.5-VL. period: the last of every `period` layers sees the whole picture; full: these layers, without
    a period; window: pixels of a side, which the other layers see."""

    n_merge: int = key("vision.spatial_merge_size", 2, minimum=1)
    period: int = key("vision.n_wa_pattern", 0)
    full: tuple[int, ...] = key("hybrid.vision.full_attention_layers", (), values=0)
    window: int = key("hybrid.vision.window_size", 112, minimum=1)
    freq_base: float = key("hybrid.vision.rope.freq_base", 10000.0)

    FIXED_EPS = 1e-6

    @property
    def is_full(self) -> tuple[bool, ...]:
        """Per layer, whether it sees the whole picture."""
        if self.full:
            return tuple(i in self.full for i in range(self.n_layer))
        return tuple(self.period > 0 and i % self.period == self.period - 1 for i in range(self.n_layer))


class SiglipHparams(TowerHparams):
    """Keys of SmolVLM, LFM2-VL and Gemma 3. n_merge: patches of a side that become one feature."""

    n_merge: int = key("vision.projector.scale_factor", 0)
    image_size: int = key("vision.image_size", minimum=1)


class Lfm3VlHparams(TowerHparams):
    """Keys of LFM3-VL. n_head_kv: per layer; 0 marks a convolution of `n_taps` a side."""

    n_head_kv: tuple[int, ...] = key("vision.attention.head_count_kv", per_layer=True)
    n_merge: int = key("vision.spatial_merge_size", 2, minimum=1)
    n_taps: int = key("hybrid.vision.shortconv.kernel_size", 3, minimum=1)
    freq_base: float = key("hybrid.vision.rope.freq_base", 1000000.0)


class Gemma4VlHparams(TowerHparams):
    """Keys of Gemma 4. n_head_kv 0: n_head."""

    n_merge: int = key("vision.projector.scale_factor", 3, minimum=1)
    freq_base: float = key("hybrid.vision.rope.freq_base", 100.0)


class Granite4VisionHparams(TowerHparams):
    """Keys of Granite 4 Vision. layers: per projector, the block whose output it reads; offsets: per projector, which
    of 2 x 2 pixels its queries add, -1: the average of a window."""

    layers: tuple[int, ...] = key("vision.feature_layer", values=0)
    offsets: tuple[int, ...] = key("vision.projector.spatial_offsets", values=0, minimum=-1)
    query_side: int = key("vision.projector.query_side", minimum=1)
    window_side: int = key("vision.projector.window_side", minimum=1)
    eps_projector: float = key("hybrid.vision.projector.layer_norm_epsilon", 1e-12)


# By clip.projector_type, as llama.cpp names it; lfm3 is ours.
TOWERS: dict[str, type[TowerHparams]] = {
    "qwen2.5vl_merger": Qwen25VlHparams,
    "qwen3vl_merger": QwenVlHparams,
    "lfm3": Lfm3VlHparams,
    "lfm2": SiglipHparams,
    "gemma3": SiglipHparams,
    "idefics3": SiglipHparams,
    "granite4_vision": Granite4VisionHparams,
    "gemma4v": Gemma4VlHparams,
}


def is_tower(gguf: GGUFFile) -> bool:
    """Whether a file holds a tower instead of a text model."""
    arch = gguf.get("general.architecture", "")
    return isinstance(arch, str) and arch == CLIP


def projector_of(gguf: GGUFFile) -> str:
    """The kind of tower and projector. FormatError: the file has no tower; UnsupportedError: an unknown one."""
    if not is_tower(gguf):
        arch = shown(str(gguf.get("general.architecture", "unknown")), 60)
        raise FormatError(
            f"{gguf.path.name} holds no vision tower but a model of architecture {arch}. Give the model's mmproj file."
        )
    kind = gguf.get("clip.vision.projector_type", gguf.get("clip.projector_type", ""))
    if not isinstance(kind, str) or kind not in TOWERS:
        raise UnsupportedError(
            f"{gguf.path.name}: clip.projector_type is {shown(repr(kind), 60)}, expected one of {', '.join(TOWERS)}. "
            "Give the file with the vision tower of a supported model."
        )
    return kind


def read_tower(gguf: GGUFFile) -> TowerHparams:
    """The tower's sizes. FormatError names a key that is missing or has a wrong value; UnsupportedError."""
    return TOWERS[projector_of(gguf)].read(gguf, CLIP)
