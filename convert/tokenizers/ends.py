"""The tokens that end an answer: all that generation_config.json and config.json list, whatever their names."""

from collections.abc import Iterable
from pathlib import Path

from hybrid.quant.ggml.errors import CheckpointError, shown
from hybrid.quant.ggml.token_types import TokenType

from ..checkpoint import Config
from .special import read_config
from .vocabulary import Vocabulary

_NO_TEXT = (TokenType.UNKNOWN, TokenType.CONTROL, TokenType.USER_DEFINED)


def add_ends(vocabulary: Vocabulary, folders: Iterable[Path], model_config: Config) -> None:
    """Adds the ends in the generation_config.json of `folders` and in config.json to a padded vocabulary.

    All tokens of a list count. A single id counts unless its token is ordinary text: many configs have their class's
    default (2) there, whatever the tokenizer. A single id in config.json counts only if no generation_config.json
    states one, as in transformers. CheckpointError: an entry is not an id, or config.json names a token beyond the
    vocabulary.
    """
    n = len(vocabulary.tokens)
    generation = [read_config(folder, "generation_config.json") for folder in folders]
    stated = [config for config in generation if config.get("eos_token_id") is not None]
    for config in stated:
        if beyond := [token for token in _ids(config) if token >= n]:
            ids = shown(", ".join(map(str, beyond)))
            vocabulary.notes.append(f"{config.where}: eos_token_id {ids} left out: the model has {n} tokens")
    if not stated or isinstance(model_config.get("eos_token_id"), list):
        if beyond := [token for token in _ids(model_config) if token >= n]:
            raise CheckpointError(
                f"{model_config.where}: eos_token_id has {shown(beyond[0])}, but the model has {n} tokens."
            )
        stated.append(model_config)
    for config in stated:
        several = isinstance(config.get("eos_token_id"), list)
        vocabulary.ends += [
            token for token in _ids(config) if token < n and (several or vocabulary.types[token] in _NO_TEXT)
        ]


def _ids(config: Config) -> list[int]:
    """The ids of an entry; negative ones mean "no token" and are left out."""
    value = config.get("eos_token_id")
    entries = value if isinstance(value, list) else [] if value is None else [value]
    for entry in entries:
        if type(entry) is not int:
            raise CheckpointError(
                f"{config.where}: eos_token_id has {shown(entry)}, expected the id of a token. Correct it."
            )
    return [entry for entry in entries if entry >= 0]
