"""Checkpoints in a repository: the files that a conversion reads."""

import json
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from hybrid.quant.ggml.errors import HybridError, Remedy, UnsupportedError, UsageError, shown
from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, FileType

from . import type_tags
from .names import Name
from .repository import Listing, RepoFile

CONFIG = "config.json"
# Files that `hybrid convert` reads besides weights; a test converts folders that contain only these.
READ = (
    CONFIG, "generation_config.json", "quantize_config.json", "hf_quant_config.json", "hadamard_packing.json",
    "hadamard.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model", "vocab.txt",
    "rwkv_vocab_v*.txt",
    "tokenizer.jsonl", "vocab.json", "merges.txt", "tiktoken.model", "*.tiktoken",
    "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json",
    "additional_chat_templates/*.jinja", "modules.json", "*_Pooling/config.json", "*_Dense/config.json",
    "*_Dense/model.safetensors", "README.md", "config_sentence_transformers.json",
    "model.safetensors.index.json", "pytorch_model.bin.index.json", "preprocessor_config.json", "processor_config.json",
)  # fmt: skip
# (index, single file, files without an index), in the order of precedence
WEIGHTS = (
    ("model.safetensors.index.json", "model.safetensors", "model*.safetensors"),
    ("pytorch_model.bin.index.json", "pytorch_model.bin", "pytorch_model*.bin"),
)
MOST_SMALL = 512 << 20  # limit in bytes for files other than weights


def has_checkpoint(listing: Listing) -> bool:
    """Whether the names of the files look like a checkpoint that can be converted."""
    return listing.file(CONFIG) is not None and bool(weights(listing, None))


def weights(listing: Listing, folder: Path | None) -> list[RepoFile]:
    """The weight files; folder: where the small files are, for reading the index."""
    in_root = {file.path: file for file in listing.files if "/" not in file.path}
    for index, whole, pattern in WEIGHTS:
        matching = [in_root[path] for path in sorted(in_root) if fnmatchcase(path, pattern)]
        if index in in_root and matching:
            named = _named(folder / index) if folder is not None else set()
            return [file for file in matching if file.path in named] or matching
        if whole in in_root:
            return [in_root[whole]]
        if matching:
            return matching
    return []


def is_weights(path: str) -> bool:
    """Whether a file of this name may contain weights."""
    return any(path == whole or fnmatchcase(path, pattern) for _, whole, pattern in WEIGHTS)


def indexed(folder: Path) -> set[str]:
    """The weight files that the folder's index names; empty without a readable index."""
    return next((_named(folder / index) for index, _, _ in WEIGHTS if (folder / index).is_file()), set())


def _named(index: Path) -> set[str]:
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        return {str(name) for name in json.loads(index.read_bytes())["weight_map"].values()}
    return set()  # the conversion reports the error


def small_files(listing: Listing) -> list[RepoFile]:
    """The files that a conversion reads besides weights, config.json first. HybridError: one is too large."""
    files = [file for file in listing.files if any(_matches(file.path, pattern) for pattern in READ)]
    for file in files:
        if file.nbytes > MOST_SMALL:
            raise HybridError(
                f"{listing.repository}: {shown(file.path)} has {file.nbytes} bytes, too many for such a file. "
                "Nothing was downloaded."
            )
    return sorted(files, key=lambda file: (file.path != CONFIG, file.path))


def _matches(path: str, pattern: str) -> bool:
    parts = PurePosixPath(path).parts, PurePosixPath(pattern).parts
    return len(parts[0]) == len(parts[1]) and all(map(fnmatchcase, *parts))


def check_supported(repository: str, config: Path) -> None:
    """UnsupportedError, before weights are downloaded, if this architecture, or its quantization,
    cannot be converted."""
    from hybrid.convert.checkpoint import Config
    from hybrid.convert.checkpoint.folded import plain_config
    from hybrid.convert.checkpoint.quantized import check_supported as check_quantization
    from hybrid.convert.plan import family_of

    try:
        stated = plain_config(Config.read(config))
        family_of(stated)
        check_quantization(stated)
    except UnsupportedError as err:
        raise UnsupportedError(
            f"{repository}: {str(err).removeprefix(f'{CONFIG}: ')} Its weights were not downloaded.",
            remedy=err.remedy,
            value=err.value,
        ) from None


def is_supported(config: Path) -> bool:
    """Whether the architecture in this config.json can be converted."""
    try:
        check_supported("", config)
    except (HybridError, OSError):
        return False
    return True


def file_type(name: Name) -> FileType | None:
    """The type that a checkpoint shall be converted to; None: its own. UsageError: an unknown type, or one that needs
    more than weights."""
    if not name.type:
        return None
    from hybrid.quant.ggml.mixes import NEED_IMPORTANCE
    from hybrid.quant.planning import file_type as named

    tag = type_tags.normal(name.type)
    if tag == FileType.NVFP4.name:  # written from a checkpoint that has it, not by quantization
        return FileType.NVFP4
    kind = named(tag)
    if FILE_TYPE_WEIGHT[kind] in NEED_IMPORTANCE or kind is FileType.Q2_K_S:
        raise UsageError(
            f"{name}: {kind.name} needs an importance matrix, which a checkpoint does not have. Choose a type of "
            f"3 bits or more, for example {name.with_choice('Q3_K_S')}",
            remedy=Remedy.IMATRIX_OF_FILE,
        )
    return kind


def estimated(files: Sequence[RepoFile], kind: FileType | None) -> int:
    """Approximate bytes of the conversion."""
    total = sum(file.nbytes for file in files)
    return total if kind is None else int(total * type_tags.BITS[kind] / 16)
