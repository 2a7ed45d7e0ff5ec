"""Options of `hybrid quantize`: the goal, the types of matrices, the importance matrix, the written file."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybrid.quant import Options, SsmType
from hybrid.quant.ggml.byte_sizes import UNITS, parse_size
from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.types import ValueType
from hybrid.quant.planning import target_name
from hybrid.quant.policy import type_named
from hybrid.quant.pruning import parsed_layers

from . import text_options
from .split_size import SplitMaxSize, max_bytes

if TYPE_CHECKING:
    from hybrid.quant import Imatrix

_KINDS = {"int": ValueType.UINT32, "float": ValueType.FLOAT32, "bool": ValueType.BOOL, "str": ValueType.STRING}


@dataclass(frozen=True, eq=False, repr=False)
class Goal:
    """The goal: a type, a size or a divergence."""

    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TYPE",
            help="Q4_K_M, Q5_K_S, Q6_K, Q8_0, IQ4_XS, ... as llama-quantize has them; Q4_K_XL, Q3_K_XL, Q2_K_XL: by "
            "role; COPY: as in IN.",
        ),
    ] = None
    target_bpw: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Instead of TYPE: choose a type for each matrix so that the file has the smallest error at no more "
            "than X bits per weight.",
        ),
    ] = None
    target_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help=f"Like --target-bpw, with a limit on the size of the whole file. {UNITS}."),
    ] = None
    max_kld: Annotated[
        float | None,
        typer.Option(
            metavar="NATS",
            min=0,
            help="Make the smallest file whose predictions on the text of -f have at most this mean KL divergence "
            "from IN's predictions.",
        ),
    ] = None
    file: Annotated[
        Path | None,
        typer.Option(
            "-f", "--file", help="With --target-* or --max-kld: text on which the importance of matrices is measured."
        ),
    ] = None

    @property
    def given(self) -> int:
        """The number of goals that were given."""
        return 4 - (self.target, self.target_bpw, self.target_size, self.max_kld).count(None)

    def check(self, output: Path | None = None) -> None:
        """UsageError: the options contradict each other, or one is missing; or `output` is no name of a GGUF file, and
        so may be a TYPE that was misspelled or stands in the wrong place."""
        if output is not None and not self.given and output.suffix != ".gguf":
            target_name(output.name)
        if output is not None and (self.target or "").endswith(".gguf"):
            raise UsageError(f"OUT comes before TYPE: hybrid quantize IN {shown(self.target)} {shown(output)}")
        if self.given != 1:
            raise UsageError("give one of TYPE (for example Q4_K_M), --target-bpw, --target-size and --max-kld.")
        if self.file is not None and self.target is not None:
            raise UsageError("-f is for --target-bpw, --target-size and --max-kld, which choose by it. Leave it out.")
        if self.max_kld is not None and self.file is None:
            raise UsageError("--max-kld measures on a text. Give one with -f.")

    def text(self) -> str | None:
        """The text of -f, or None. UsageError: it cannot be read."""
        return None if self.file is None else text_options.read_text(self.file)

    def nbytes(self) -> int | None:
        """--target-size in bytes, or None. UsageError: the value is not a size."""
        return None if self.target_size is None else parse_size(self.target_size, "--target-size")


@dataclass(frozen=True, eq=False, repr=False)
class Types:
    """Types of single matrices."""

    ssm_type: Annotated[
        SsmType,
        typer.Option(
            help="Type of the small projections of recurrent layers (ssm_x, ssm_dt, low-rank ssm_f); like-llama: "
            "the type of other weights."
        ),
    ] = Options.ssm_type
    pure: Annotated[bool, typer.Option("--pure", help="Use one type for all matrices instead of a mix.")] = Options.pure
    tensor_type: Annotated[
        list[str] | None,
        typer.Option(metavar="REGEX=TYPE", help="Type of the matrices whose names match. May be repeated."),
    ] = None
    tensor_type_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File of such types, separated by spaces or line feeds; --tensor-type goes first."
        ),
    ] = None
    output_tensor_type: Annotated[str | None, typer.Option(metavar="TYPE", help="Type of the output matrix.")] = None
    token_embedding_type: Annotated[str | None, typer.Option(metavar="TYPE", help="Type of the token embedding.")] = (
        None
    )
    leave_output_tensor: Annotated[
        bool, typer.Option("--leave-output-tensor", help="Leave output.weight unchanged.")
    ] = Options.leave_output

    rotate: Annotated[
        bool,
        typer.Option(
            "--rotate",
            help="Rotate the weights before they are quantized (signs and a Walsh-Hadamard transform), which spreads "
            "outliers. Other programs must know such files.",
        ),
    ] = False

    def options(self) -> Options:
        """The options as the library's `Options`. UsageError: an unknown type."""
        output, embedding = self.output_tensor_type, self.token_embedding_type
        return Options(
            ssm_type=self.ssm_type,
            pure=self.pure,
            tensor_types=tuple(self._tensor_types()),
            output_type=type_named(output, "--output-tensor-type") if output else None,
            embedding_type=type_named(embedding, "--token-embedding-type") if embedding else None,
            leave_output=self.leave_output_tensor,
        )

    def _tensor_types(self) -> Iterator[tuple[str, Any]]:
        for text in self.tensor_type or ():
            yield _tensor_type(text, "--tensor-type")
        if self.tensor_type_file is not None:
            for text in text_options.read_text(self.tensor_type_file).split():
                yield _tensor_type(text, f"{shown(self.tensor_type_file)}:")


@dataclass(frozen=True, eq=False, repr=False)
class Importance:
    """The importance matrix and the tensors it is used for."""

    imatrix: Annotated[
        Path | None,
        typer.Option(help="Importance matrix from `hybrid imatrix` or llama-imatrix; makes errors smaller."),
    ] = None
    include_weights: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="Use the importance matrix only for tensors whose names contain this. May be repeated."
        ),
    ] = None
    exclude_weights: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Do not use the importance matrix for tensors whose names contain this. May be repeated.",
        ),
    ] = None

    def read(self) -> "Imatrix | None":
        """The importance matrix, or None. UsageError: --include-weights or --exclude-weights without --imatrix."""
        include, exclude = self.include_weights or (), self.exclude_weights or ()
        if self.imatrix is None:
            if include or exclude:
                raise UsageError("--include-weights and --exclude-weights choose from an --imatrix. Give one.")
            return None
        from hybrid.quant import Imatrix

        return Imatrix.read(self.imatrix).chosen(include, exclude)


@dataclass(frozen=True, eq=False, repr=False)
class Care:
    """Effort for small errors, and whether quantized input is accepted."""

    effort: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=1,
            help="0: the same bytes as llama-quantize. 1: smaller errors at the same size, slower. Default: 0 with "
            "TYPE, else 1.",
            show_default=False,
        ),
    ] = None
    allow_requantize: Annotated[
        bool, typer.Option("--allow-requantize", help="Accept a file that is already quantized; quality suffers.")
    ] = False


@dataclass(frozen=True, eq=False, repr=False)
class Writing:
    """Metadata and parts of the written file."""

    override_kv: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=TYPE:VALUE", help="Set a metadata key; TYPE is int, float, bool or str. May be repeated."
        ),
    ] = None
    keep_split: Annotated[
        bool, typer.Option("--keep-split", help="Write as many parts as IN has: OUT-00001-of-00003.gguf, ...")
    ] = False
    split_max_size: SplitMaxSize = None
    prune_layers: Annotated[
        str | None,
        typer.Option(
            metavar="N,M-K",
            help="Leave out these layers, for example 3,5-8. Other layers get new numbers, which --tensor-type means; "
            "an importance matrix has the old ones.",
        ),
    ] = None
    vision: Annotated[
        bool,
        typer.Option(
            "--vision/--no-vision",
            help="Convert the vision tower of a checkpoint too, if it has one: into mmproj-OUT beside OUT. Its type is "
            "Q8_0 if TYPE is, else F16.",
        ),
    ] = True

    def layers(self) -> list[int]:
        """The layers to leave out. UsageError: they cannot be read."""
        return [] if self.prune_layers is None else parsed_layers(self.prune_layers)

    def how(self) -> dict[str, Any]:
        """The options as keywords of the library. UsageError: they contradict each other, or one cannot be read."""
        if self.keep_split and self.split_max_size:
            raise UsageError("--keep-split and --split-max-size contradict each other. Give one of them.")
        return {
            "metadata": dict(_pair(text) for text in self.override_kv or ()),
            "keep_split": self.keep_split,
            "split_max_size": max_bytes(self.split_max_size),
        }


def _tensor_type(text: str, where: str) -> tuple[str, Any]:
    pattern, equals, name = text.rpartition("=")
    if not equals or not pattern:
        raise UsageError(f"{where} {shown(text)}: expected REGEX=TYPE, for example ssm_in=Q8_0.")
    return pattern, type_named(name, f"{where} {shown(text)}")


def _pair(text: str) -> tuple[str, tuple[Any, ValueType]]:
    key, _, rest = text.partition("=")
    name, colon, value = rest.partition(":")
    kind = _KINDS.get(name)
    wrong = UsageError(
        f"--override-kv {shown(text)}: expected KEY=TYPE:VALUE, TYPE one of {', '.join(_KINDS)}, "
        "for example tokenizer.ggml.add_bos_token=bool:false."
    )
    if not key or not colon or kind is None:
        raise wrong
    if kind is ValueType.BOOL and value not in ("true", "false"):
        raise wrong
    try:
        parsed: Any = {"int": lambda: int(value), "float": lambda: float(value)}.get(name, lambda: value)()
    except ValueError:
        raise wrong from None
    if name == "int" and parsed < 0:
        kind = ValueType.INT32
    return key, (value == "true" if kind is ValueType.BOOL else parsed, kind)
