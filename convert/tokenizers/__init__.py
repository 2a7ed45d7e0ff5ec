"""Converts tokenizer files of a checkpoint to the keys `tokenizer.*` of a GGUF file."""

from pathlib import Path

from hybrid.quant.ggml.errors import Remedy, TokenizerError, UsageError, shown
from hybrid.quant.ggml.token_types import TokenType

from ..checkpoint import Config
from .ends import add_ends
from .from_gguf import read_gguf_vocabulary
from .plamo2 import FILE, read_plamo2
from .rwkv import find_world, read_world
from .sentencepiece import read_sentencepiece
from .special import complete
from .tiktoken import find_ranks, is_ranks, read_ranks
from .tokenizer_json import read_tokenizer_json
from .vocab_json import VOCAB, read_vocab_json
from .vocabulary import Vocabulary
from .wordpiece import read_vocab_txt

__all__ = ["TokenType", "Vocabulary", "read_vocabulary"]


def read_vocabulary(
    source: Path,
    model_config: Config,
    n_vocab: int,
    *,
    preferred_pre: tuple[str, ...] = (),
    hint: str = "",
    goes_on: bool = True,
    checkpoint: Path | None = None,
) -> Vocabulary:
    """The vocabulary of a folder (the checkpoint's, or another one) or a GGUF file, padded to `n_vocab` tokens.

    hint: names the usual source of a tokenizer for models of this family that have no tokenizer files. goes_on: the
    model continues texts, so no text may end with EOS. checkpoint: another folder, whose generation_config.json names
    the tokens that end an answer. TokenizerError: the vocabulary is missing, damaged, or has more tokens than the
    model.
    """
    vocabulary = _read(source, model_config, n_vocab, preferred_pre, hint, goes_on)
    vocabulary.pad(n_vocab)
    own = None if _is_gguf(source) else _folder(source)
    add_ends(vocabulary, dict.fromkeys(filter(None, (checkpoint, own))), model_config)
    return vocabulary


def _read(
    source: Path, model_config: Config, n_vocab: int, preferred_pre: tuple[str, ...], hint: str, goes_on: bool
) -> Vocabulary:
    """The vocabulary before padding."""
    if not source.exists():
        raise UsageError(f"{shown(source)} does not exist. Give the folder or the GGUF file of a tokenizer.")
    if _is_gguf(source):
        return read_gguf_vocabulary(source, n_vocab)
    folder = _folder(source)
    if world := find_world(folder):
        return read_world(world, model_config, n_vocab)
    pieces = next((folder / name for name in ("tokenizer.model", "spiece.model") if (folder / name).is_file()), None)
    if pieces and not is_ranks(pieces):
        vocabulary = read_sentencepiece(pieces)
    elif (folder / "tokenizer.json").is_file():
        vocabulary = read_tokenizer_json(folder / "tokenizer.json", n_vocab, preferred_pre)
    elif (folder / FILE).is_file():
        vocabulary = read_plamo2(folder / FILE)
    elif (folder / "vocab.txt").is_file():
        vocabulary = read_vocab_txt(folder / "vocab.txt")
    elif ranks := find_ranks(folder):
        vocabulary = read_ranks(ranks, n_vocab)
    elif (folder / VOCAB).is_file():
        vocabulary = read_vocab_json(folder, model_config, n_vocab, preferred_pre)
    else:
        used = f" These models use {hint}." if hint else ""
        raise TokenizerError(
            f"{shown(folder.name or folder)} has no tokenizer (tokenizer.model, tokenizer.json, vocab.json with "
            f"merges.txt, or vocab.txt).{used}",
            remedy=Remedy.TOKENIZER,
        )
    complete(vocabulary, folder, model_config, n_vocab, goes_on=goes_on)
    return vocabulary


def _is_gguf(source: Path) -> bool:
    return source.is_file() and source.suffix == ".gguf"


def _folder(source: Path) -> Path:
    return source if source.is_dir() else source.parent
