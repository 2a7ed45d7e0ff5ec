"""Facts of a model file: names, sizes, a fingerprint, the tokenizer and the chat template."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hybrid.quant.ggml.adapter import Adapter
from hybrid.quant.ggml.errors import TokenizerError
from hybrid.quant.ggml.families.hparams import Hparams
from hybrid.quant.ggml.families.unread_keys import unread_notes
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType

if TYPE_CHECKING:
    from ..text.chat_template import ChatTemplate
    from ..text.tokenizer import Tokenizer


def file_type_of(gguf: GGUFFile) -> str:
    """Display name of general.file_type, or of the type of most weights when the key is absent or unknown; "" without
    weights."""
    number = gguf.get("general.file_type", None)
    try:
        return FileType(number if isinstance(number, int) else -1).name
    except ValueError:
        sizes: dict[str, int] = {}
        for t in gguf.tensors.values():
            sizes[t.type.name] = sizes.get(t.type.name, 0) + t.nbytes
        return max(sizes, key=lambda k: sizes[k], default="")


class ModelFile:
    """A GGUF file with the adapters that are applied to it.

    n_ctx    tokens that a sequence can hold: for some models this selects weights (`Hparams.variant`)
    n_vocab  rows of the embedding
    """

    def __init__(
        self, gguf: GGUFFile, hparams: Hparams, n_ctx: int, n_vocab: int, adapters: Sequence[Adapter] = ()
    ) -> None:
        self.gguf, self.adapters, self.n_vocab = gguf, list(adapters), n_vocab
        self.path = gguf.path
        self.arch: str = gguf.get("general.architecture")
        self.name: str = str(gguf.get("general.name", "") or gguf.path.stem)
        self.n_layer = hparams.n_run
        self.n_bytes = sum(t.nbytes for t in gguf.tensors.values())
        self.n_params = sum(int(np.prod(t.shape)) for t in gguf.tensors.values())
        self._hparams = type(hparams)
        self._variant = hparams.variant(gguf.tensors, n_ctx)

    @property
    def file_type(self) -> str:
        """See `file_type_of`."""
        return file_type_of(self.gguf)

    @property
    def description(self) -> str:
        """Name and file type, with the weights that n_ctx selects."""
        return self.description_with(())

    def description_with(self, scales: Sequence[tuple[int, float]]) -> str:
        """The same with these adapters, by number, each with its scale."""
        named = f"{self.name} {self.file_type}" + (f" ({self._variant})" if self._variant else "")
        return " + ".join([named, *(self.adapters[number].labelled(scale) for number, scale in scales)])

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the weights: a hash of names, types, shapes and samples of bytes of all tensors, and of the choice
        of weights by n_ctx."""
        digest = hashlib.sha256(self.arch.encode())
        update_by_samples(digest, self.gguf)
        digest.update(self._variant.encode())
        return digest.hexdigest()[:32]

    def fingerprint_with(self, scales: Sequence[tuple[int, float]], start: int = 0) -> str:
        """The same of the weights with adapters: their numbers, each with its scale. start: the first token that is
        read with them."""
        if not scales:
            return self.fingerprint
        digest = hashlib.sha256(f"{self.fingerprint} {start};".encode())
        for number, scale in scales:
            self.adapters[number].update_at(digest, scale)
        return digest.hexdigest()[:32]

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """The file's tokenizer. Raises TokenizerError if it does not fit the embedding."""
        return fitting_tokenizer(self.gguf, self.n_vocab)

    @property
    def notes(self) -> list[str]:
        """Lines about the file: facts of the vocabulary that it lacks, keys that are not known here; mostly empty."""
        return notes_on(self.gguf, self._hparams)

    @cached_property
    def chat_template(self) -> "ChatTemplate | None":
        """The file's chat template, or None."""
        from ..text.chat_template import ChatTemplate

        return ChatTemplate.from_gguf(self.gguf, self.tokenizer)


def update_by_samples(digest: "hashlib._Hash", gguf: GGUFFile) -> None:
    """Update a digest by names, types, shapes and samples of bytes of all tensors."""
    for t in gguf.tensors.values():
        digest.update(f"{t.name} {t.type} {t.shape};".encode())
        flat = gguf.raw(t.name).reshape(-1)
        digest.update(flat[: 4096 if flat.size < 1 << 20 else 512].tobytes())
        digest.update(flat[-512:].tobytes())


def notes_on(gguf: GGUFFile, hparams: type[Hparams]) -> list[str]:
    """See `ModelFile.notes`."""
    from ..text.tokenizer import assumptions

    arch = str(gguf.get("general.architecture"))
    return [*assumptions(gguf), *unread_notes(gguf, arch, hparams.keys(arch))]


def fitting_tokenizer(gguf: GGUFFile, n_vocab: int) -> "Tokenizer":
    """The tokenizer of a file whose embedding has n_vocab rows. Raises TokenizerError unless it has as many tokens."""
    from ..text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(gguf)
    if tokenizer.n_vocab != n_vocab:
        raise TokenizerError(
            f"{gguf.path.name}: the tokenizer has {tokenizer.n_vocab} tokens, token_embd.weight {n_vocab} rows. "
            "Convert the model again."
        )
    return tokenizer
