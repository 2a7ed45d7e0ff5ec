"""Gemma 3: both bases of RoPE are in the file, whatever they are."""

from pathlib import Path

import pytest
import random_checkpoints

from hybrid.convert.plan import prepare


@pytest.mark.parametrize("near", [1e4, 5e5])
def test_the_base_of_layers_with_a_window(near: float, tmp_path: Path) -> None:
    """Readers take 10000 if the file does not say it."""
    config = {**random_checkpoints.CONFIGS["gemma3"], "rope_theta": 5e5, "rope_local_base_freq": near}
    config.pop("rope_parameters", None)
    metadata = prepare(random_checkpoints.write(config, tmp_path), with_vocabulary=False).plan.metadata
    assert metadata["gemma3.rope.freq_base_swa"] == near and metadata["gemma3.rope.freq_base"] == 5e5
