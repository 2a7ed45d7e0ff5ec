"""The declaration of a model family: keys from its config, and the source of each GGUF tensor."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from hybrid.quant.ggml.types import FileType, GGMLType

from ..checkpoint import Config, StoredTensor
from ..transforms import Transform

UNLIMITED = 1 << 20  # context of a model without positions; llama.cpp needs the key
Shapes = Mapping[str, tuple[int, ...]]  # of the checkpoint's tensors; empty when only the vocabulary is converted


@dataclass(frozen=True)
class TensorBlock:
    """A block of a checkpoint's tensor that is a separate tensor in GGUF: it begins at index `start` and has the last
    dimensions `shape` (and one index of each dimension before them)."""

    name: str
    start: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Row:
    """One tensor of the GGUF file. Shapes in numpy order."""

    target: str
    shape: tuple[int, ...]
    sources: tuple[str, ...]  # Hugging Face names; several are stacked along a new first dimension
    transform: Transform | None = None
    source_shape: tuple[int, ...] | None = None  # of each source, if reshaping gives the target another one
    otherwise: str | None = None  # the tensor that a tied model reads if the source is missing
    tied_to: str | None = None  # left out when it holds the same as this tensor, or is absent from a tied model
    group: str | None = None  # rows of one group are written together, where the last of their sources is read
    constant: np.ndarray | None = None  # f32 values computed from the config; such a row has no sources
    copies: tuple[str, ...] = ()  # other names under which the checkpoint may hold the source, with equal values
    integers: bool = False  # a table of integers: any type in the checkpoint, I32 in the file
    unread: tuple[str, ...] = ()  # names that the checkpoint may have and that its model does not use
    padding: int = 0  # rows of zeros after the source's rows, counted in `shape`
    product: bool = False  # the sources are two vectors, multiplied value by value
    beside: bool = False  # the sources are two matrices, joined row by row: a row of both makes one of the target
    settled: tuple[str, ...] = ()  # names that the checkpoint may have, whose values `Family.settled` has read
    lengths: tuple[int, ...] = ()  # rows of each source, if the sources are joined along the first dimension
    type: GGMLType | None = None  # whatever the type of the file

    @property
    def expected(self) -> tuple[int, ...]:
        """The shape that each source must have."""
        if self.source_shape is not None:
            return self.source_shape
        return self.shape[1:] if self.group else self.shape

    def expected_of(self, i: int) -> tuple[int, ...]:
        """The shape that source i must have."""
        return (self.lengths[i], *self.shape[1:]) if self.lengths else self.expected


def row(source: str, target: str, *shape: int, **more: Any) -> Row:
    """A tensor that is made from one tensor of the checkpoint."""
    return Row(target, shape, (source,), **more)


def experts(sources: Sequence[str], target: str, *shape: int, group: str) -> Row:
    """A tensor [n_expert, *shape] stacked from one tensor per expert."""
    return Row(target, (len(sources), *shape), tuple(sources), group=group)


class Keyed:
    """A part of a family, such as its attention, whose attributes `Family.order` finds also."""

    def values(self) -> dict[str, Any]:
        """Values of keys, by the words of `order`."""
        return dict(vars(self))


class Family(ABC):
    """A family, read from one config. An instance holds the family's hyper-parameters."""

    arch: ClassVar[str]  # general.architecture, and the prefix of the keys
    architectures: ClassVar[tuple[str, ...]]  # what config.json calls it
    pre: ClassVar[tuple[str, ...]] = ()  # names of tokenizer.ggml.pre to prefer where several mean the same rule
    dropped: ClassVar[tuple[str, ...]] = ()  # prefixes of names of tensors that the file leaves out
    hparams: ClassVar[type[Any]]  # the keys that readers ask for
    order: ClassVar[str]  # order of the keys: words of Hparams.written; "heads/n_kv" is self.heads.n_kv
    understood: ClassVar[tuple[str, ...]] = ()  # fields that are refused in the configs of other families
    in_llama_cpp: ClassVar[bool] = True  # otherwise docs/gguf-extensions.md says how it is stored
    tokenizer_hint: ClassVar[str] = ""  # the tokenizer of models that ship none, for messages
    ends_by_config: ClassVar[bool] = False  # EOS comes from config.json, not from the tokenizer's files
    prompts_by_code: ClassVar[bool] = False  # the repository formats prompts by code and ships no chat template
    generates: ClassVar[bool] = True  # False: an encoder, which only makes embeddings
    general_type: ClassVar[str] = "model"  # general.type
    pooling: ClassVar[int] = 0  # pooling_type, if `order` writes it; 0: the folder's settings decide (pooling.py)
    usual_type: ClassVar[FileType | None] = None  # by default; None: the checkpoint's own
    own_objects: ClassVar[tuple[str, ...]] = ("text_config.", "ssm_cfg.")  # objects of a config that hold its fields
    without_effect: ClassVar[Mapping[str, str]] = {}  # fields of its configs that change nothing, and why
    counts: ClassVar[tuple[str, ...]] = ()  # fields with an effect that they do not have in other families
    conditional: ClassVar[Mapping[str, str]] = {}  # fields that count only in certain cases -> these cases

    n_layer: int
    n_vocab: int  # rows of the embedding: tokens of the vocabulary, with padding
    n_embd: int
    tied: bool  # the output matrix is the embedding, unless the checkpoint has both

    @classmethod
    @abstractmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        """Reads a config. CheckpointError: missing or impossible values; UnsupportedError: values that are not
        supported."""

    @property
    def blocks_in_file(self) -> int:
        """Number of blocks in the file: layers, and heads after them."""
        return self.n_layer + self.n_heads_ahead

    def values(self) -> dict[str, Any]:
        """Values of keys without an attribute of the same name, by the words of `order`. None: the key is left out."""
        return {}

    def keys(self, file_type: FileType) -> Iterator[tuple[str, Any]]:
        """Metadata in the order of llama.cpp's converter, without the architecture's prefix."""
        own = {
            "general.file_type": int(file_type),
            "vocab_size": self.n_vocab,
            "n_layer": self.blocks_in_file,
            "n_ahead": self.n_heads_ahead,
            "n_ctx_train": getattr(self, "n_ctx", UNLIMITED),
            **self.values(),
        }
        of_parts: dict[str, Any] = {}
        for part in vars(self).values():
            of_parts |= part.values() if isinstance(part, Keyed) else {}

        def value(source: str) -> Any:
            name, *inner = source.split("/")
            found: Any = own[name] if name in own else getattr(self, name, of_parts.get(name))
            for step in inner:
                found = found[int(step)] if step.isdecimal() else getattr(found, step)
            return found

        yield from self.hparams.written(value, self.order)

    @abstractmethod
    def rows(self) -> Iterator[Row]:
        """Every tensor of the file."""

    def outer_rows(
        self, embedding: str, norm: str, transform: Transform | None = None, target: str = "output_norm.weight"
    ) -> Iterator[Row]:
        """The tensors before and after the layers; `transform` and `target`: of the norm."""
        yield row(embedding, "token_embd.weight", self.n_vocab, self.n_embd)
        yield row(norm, target, self.n_embd, transform=transform)
        yield row("lm_head.weight", "output.weight", self.n_vocab, self.n_embd, tied_to=embedding)

    def dense_keys(self, sizes: Sequence[tuple[int, int]]) -> list[tuple[str, Any]] | None:
        """Keys of dense layers after the pooling, from their numbers of inputs and outputs; None: readers have none."""
        return None

    @property
    def n_heads_ahead(self) -> int:
        """Number of heads in the file that guess tokens (heads.py)."""
        return len(getattr(self, "heads_ahead", ()))

    def with_grouped_columns(self) -> Self:
        """The family, if it is of delta rules, with the columns of ssm_out in the checkpoint's order: they are rotated
        (checkpoint/folded.py)."""
        return self

    def with_heads(self, most: int) -> Self:
        """The family for a file with the first `most` guessing heads."""
        if most >= self.n_heads_ahead:
            return self
        return replace(self, heads_ahead=self.heads_ahead[:most])  # type: ignore[type-var, attr-defined]

    def left_out(self) -> tuple[str, ...]:
        """Prefixes of names of tensors that this model's file leaves out."""
        return self.dropped

    def leaves_out(self, name: str) -> bool:
        """Whether this model's file leaves out the tensor of this name."""
        return name.startswith(self.left_out())

    def in_keys(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of tensors, by the names that `rows` uses, whose values `settled` moves into keys."""
        return {}

    def settled(self, stored: Mapping[str, StoredTensor]) -> Self:
        """The family for these tensors (by the names that `rows` uses), if more than their shapes matters."""
        return self

    def notes(self) -> Iterator[str]:
        """Notes on this model's file for the user."""
        if not self.in_llama_cpp:
            yield "llama.cpp cannot load this file: it has no such architecture"

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """The blocks that a checkpoint's tensor is split into; empty: it stays whole."""
        yield from ()

    def canonical(self, name: str) -> str:
        """The name that `rows` uses for a checkpoint's tensor; older checkpoints spell some differently."""
        return name


def text_part(config: Config) -> Config:
    """The text part of a config that may also be of pictures. UnsupportedError: the parts contradict each other."""
    text = config.section("text_config")
    if "tie_word_embeddings" in text and "tie_word_embeddings" in config:  # transformers asks the outer config
        config.expects("tie_word_embeddings", text.get("tie_word_embeddings"))
    return text.over(config) if text.data else config


def vocabulary_rows(config: Config, shapes: Shapes, embedding: str, multiple: int = 1) -> int:
    """Rows of the embedding: the config's vocab_size, or the checkpoint's number if that is padded up to `multiple`.

    llama.cpp's converter pads by the config alone, and writes a file that cannot be loaded if the weights are not
    padded.
    """
    n = config.integer("vocab_size", maximum=1 << 24)
    padded = -(-n // multiple) * multiple
    if not shapes:
        return padded if "pad_vocab_size_multiple" in config else n
    shape = shapes.get(embedding)
    return shape[0] if shape and n <= shape[0] <= padded else n
