"""The rows of one family in the tests' tables: see tests/families."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Config = dict[str, Any]
N_VOCAB = 2023  # of random models: of the tokenizer of tests/data/checkpoints/mamba-bf16
# (reference.families.Reference, ids [tok]) -> logits f64 [tok, vocabulary]
Twin = Callable[[Any, list[int]], Any]


@dataclass(frozen=True)
class FamilyRows:
    """The rows of one family. Names of models are keys of `configs` or `encoders`.

    The family:
    configs     random models of odd sizes, by name; one for each setting that changes a layer. Of several with the same
                class some tests take only the last, of several with the same GGUF architecture only the first
    encoders    random models of odd sizes that only make embeddings or scores, by name
    repeated    of `configs`, models that differ from another one only in settings of known layers: tests of layers need
                only one model of each family
    twins       the model in float64, by its class in a config
    defaults    of transformers, for fields that a config lacks and the twin needs, by class
    noise       of shared checkpoints: the largest difference of the reference's own float32 and float64 logits. An
                independent float32 implementation cannot be expected to differ by less than a few times this
    unchecked   of these, checkpoints with which the twin is not compared

    transformers and published configs:
    model_types  transformers' model_type by class: its results for `configs` are golden/transformers/NAME.npz
    published    configs of classes that transformers lacks, with all their fields and typical values, by class
    alike        classes -> a class with the same configs
    examples     further configs, each for a spelling or a field that no other config has

    errors       (model, changes of its config, exception, pattern of its message)
    notes        (model, changes of its config, part of a note that only they cause)

    llama.cpp:
    converted    models that its converter knows -> fields that it needs; NAME-mxfp4: with experts in MXFP4
    as_published shared checkpoints -> fields as published: transformers' names reach it with transformers' keys
    refused      models, and names of shared checkpoints, that its loader refuses
    different    models that it runs otherwise

    mlx          model_type of an MLX folder -> a model
    sizes        billions of weights of shapes in library/pipeline/published_sizes.py
    loaded       models whose layers no other family has: files of random weights are made of their configs and run
    """

    configs: Mapping[str, Config] = field(default_factory=dict)
    encoders: Mapping[str, Config] = field(default_factory=dict)
    twins: Mapping[str, Twin] = field(default_factory=dict)
    defaults: Mapping[str, Config] = field(default_factory=dict)
    repeated: Sequence[str] = ()
    noise: Mapping[str, float] = field(default_factory=dict)
    unchecked: Sequence[str] = ()
    model_types: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, Config] = field(default_factory=dict)
    alike: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, Config] = field(default_factory=dict)
    errors: Sequence[tuple[str, Config, type[Exception], str]] = ()
    notes: Sequence[tuple[str, Config, str]] = ()
    converted: Mapping[str, Config] = field(default_factory=dict)
    as_published: Mapping[str, Config] = field(default_factory=dict)
    refused: Sequence[str] = ()
    different: Sequence[str] = ()
    mlx: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    loaded: Sequence[str] = ()
