"""The model of a command that measures: loaded here, or by the workers of a cluster."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from .. import console

if TYPE_CHECKING:
    from hybrid.infer.evaluate.parts import Measurable
    from hybrid.infer.loading.options import LoadFields, LoadOptions

    from ..options.cluster_options import ClusterAddress


def opened(
    model: Path | None,
    cluster: "ClusterAddress | None",
    options: "LoadOptions",
    stages: int | None = None,
    **fields: "Unpack[LoadFields]",
) -> "AbstractContextManager[Measurable]":
    """Resolves and loads MODEL with `options`, over which `fields` take precedence. cluster: the workers that load it,
    or None; stages: number of workers among which the layers, not the text, are divided."""
    from hybrid.pipeline import models

    if cluster is None:
        return models.load(model, options, **fields, reporter=console.SCREEN)
    from hybrid.infer.loading.options import merged

    path = models.resolve_for_workers(model, console.SCREEN)
    if stages is not None:
        from ..cluster.stages import staged

        return staged(path, merged(options, fields), cluster, stages, console.note)
    from ..cluster.measuring import spread

    return spread(cluster, path, merged(options, fields))
