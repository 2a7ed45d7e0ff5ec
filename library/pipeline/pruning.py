"""A model without some of its layers, as a source for `quantize`."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from hybrid.infer.architectures import ENCODERS, FAMILIES
from hybrid.infer.engine.same_layers import check_same_layers
from hybrid.quant.ggml.errors import UnsupportedError, shown
from hybrid.quant.pruning import PrunedSource
from hybrid.quant.source import GGUFSource, Source


@contextmanager
def pruned(source: Path | Source, layers: Collection[int]) -> Iterator[PrunedSource]:
    """The model of a file or another source without these layers. UsageError: there are no such layers;
    UnsupportedError: another layer would compute something else."""
    if isinstance(source, Path):
        with GGUFSource(source) as opened, pruned(opened, layers) as made:
            yield made
        return
    arch = str(source.metadata.get("general.architecture"))
    if arch not in FAMILIES and arch not in ENCODERS:
        raise UnsupportedError(
            f"{shown(source.path)}: architecture {shown(repr(arch), 60)} is not supported, so no layer can be left "
            "out. docs/models.md lists the supported ones."
        )
    family = FAMILIES[arch] if arch in FAMILIES else ENCODERS[arch]
    made = PrunedSource(source, layers, family.hparams)
    check_same_layers(made.before, made.after, made.kept, made.hparams.halve_every)
    yield made
