"""Heads that score texts: their labels, from a config, and their keys."""

from hybrid.quant.ggml.errors import shown

from ..checkpoint import Config

RANK = 4  # `pooling_type` of llama.cpp (llama.h, LLAMA_POOLING_TYPE_RANK): the scores of a head, not a vector
LABELS = ("id2label", "num_labels")
LABELS_CONDITION = {"num_labels": "without id2label"}  # for `Family.conditional`
CLASSIFIER_KEYS = ".pooling_type=pooling .classifier.output_labels=labels"  # for `Family.order`


def read_labels(config: Config) -> tuple[str, ...]:
    """The names of the head's outputs, in order. transformers' default is two."""
    names = config.get("id2label")
    if names is None:
        return tuple(f"LABEL_{i}" for i in range(config.integer("num_labels", default=2)))
    if not isinstance(names, dict) or not names or set(names) != {str(i) for i in range(len(names))}:
        raise config.wrong("id2label", 'an object with the keys "0", "1", ...')
    labels = [names[str(i)] for i in range(len(names))]
    for label in labels:
        if not isinstance(label, str):
            raise config.wrong("id2label", f"names, found {shown(label)}")
    return tuple(labels)
