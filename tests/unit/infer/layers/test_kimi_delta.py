"""The ops that the layer of Kimi's delta rule adds to a program."""

from pathlib import Path

import tiny_models

from hybrid.infer import LoadedModel


def test_products_go_straight_to_the_convolution(tmp_path: Path) -> None:
    """Queries, keys and values are written side by side, without copies."""
    with LoadedModel.load(tiny_models.kimi().write(tmp_path / "kimi.gguf"), n_threads=1, n_ctx=64) as model:
        engine = model.engine
        programs = [engine.program(part, n)[0] for part, n in sorted(engine.usual_shapes())]
    layers = [kernels for p in programs if "conv1d_silu" in (kernels := [op.kernel.name for op in p.ops])]
    assert layers
    for kernels in layers:
        until = kernels[: kernels.index("conv1d_silu")]
        assert "take_parts" not in until and sum("gem" in name for name in until) == 3
