"""Granite with windows: names of tensors in checkpoints of other Granites."""

import random_checkpoints
from random_checkpoints import CONFIGS


def test_names_of_other_granites() -> None:
    sizes = {"vocab_size": 8, "max_position_embeddings": 512}
    model = random_checkpoints.family_for({**sizes, **CONFIGS["granitemoe-swa"]})
    there = {name for one in model.rows() for name in one.sources}
    for name in ("router.layer.weight", "input_linear.weight", "output_linear.weight"):
        assert model.canonical(f"model.layers.1.block_sparse_moe.{name}") in there
    shared = "model.layers.1.shared_mlp.input_linear.weight"
    assert model.canonical(shared) == shared and shared in there
