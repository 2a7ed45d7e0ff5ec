"""Facts about a file with a vision tower: its sizes, and what pictures cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.vision.tower import projector_of, read_tower

if TYPE_CHECKING:
    from hybrid.infer.engine.estimate import Estimate

SIZES = ((224, 224), (512, 512), (1024, 768), (2000, 1500))  # of pictures, width and height


@dataclass(frozen=True)
class PictureSize:
    """What a picture costs. tokens: in the prompt, without the tokens of marks; nbytes: most memory at once, from the
    file to the patches. trouble: why the model cannot read it; "": it can."""

    width: int
    height: int
    tokens: int = 0
    patches: int = 0
    nbytes: int = 0
    trouble: str = ""


@dataclass(frozen=True)
class TowerFacts:
    """A vision tower. n_out: width of the text model. pictures: of several sizes."""

    projector: str
    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_out: int
    patch_size: int
    nbytes: int
    pictures: tuple[PictureSize, ...]


@dataclass(frozen=True)
class PictureNeeds:
    """Bytes that pictures take in addition to the bytes of texts.

    tower    the mapped file, and copies of weights
    reading  the largest of SIZES, from its file to its features
    passes   of the text model, with pictures
    """

    tower: int
    reading: int
    passes: int

    @property
    def total(self) -> int:
        return self.tower + self.reading + self.passes


def picture_needs(path: Path, estimate: "Estimate", n_ctx: int, *, exact: bool = False) -> PictureNeeds:
    """What pictures take, with the tower at `path`. FormatError: it is damaged; UnsupportedError: an unknown tower."""
    from hybrid.infer.pictures.cost import cost_of_size
    from hybrid.infer.pictures.processors import processor_of
    from hybrid.infer.towers.loading import load_tower

    tower = load_tower(path, n_threads=estimate.n_threads, precision="exact" if exact else "fast")
    try:
        processor = processor_of(tower.gguf)
        tiles = {(tile.rows, tile.columns) for tile in processor.layout(*SIZES[-1]).tiles}
        reading = cost_of_size(processor, *SIZES[-1]).nbytes + sum(tower.working_bytes(*size) for size in tiles)
        weights = tower.gguf.nbytes + tower.weights.nbytes_copied
    finally:
        tower.close()
        tower.gguf.close()
    return PictureNeeds(weights, reading, estimate.picture_bytes(n_ctx))


def tower_facts(gguf: GGUFFile, sizes: Sequence[tuple[int, int]] = SIZES) -> TowerFacts:
    """The facts of an open file. FormatError: it has no tower, or is damaged; UnsupportedError: an unknown tower."""
    from hybrid.infer.pictures.processors import processor_of

    h, processor = read_tower(gguf), processor_of(gguf)
    nbytes = sum(tensor.nbytes for tensor in gguf.tensors.values())
    pictures = tuple(_cost(processor, *size) for size in sizes)
    return TowerFacts(
        projector_of(gguf), h.n_layer, h.n_embd, h.n_ff, h.n_head, h.n_out, h.patch_size, nbytes, pictures
    )


def _cost(processor: object, width: int, height: int) -> PictureSize:
    from hybrid.infer.pictures.cost import cost_of_size
    from hybrid.infer.pictures.pixels import PictureProcessor
    from hybrid.quant.ggml.errors import HybridError

    assert isinstance(processor, PictureProcessor)
    try:
        cost = cost_of_size(processor, width, height)
    except HybridError as error:
        return PictureSize(width, height, trouble=str(error))
    return PictureSize(width, height, cost.features, cost.n_patches, cost.nbytes)
