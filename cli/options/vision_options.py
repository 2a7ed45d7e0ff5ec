"""Options for pictures: the file of the vision tower, and pictures to ask about."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.errors import PictureError, UsageError, shown

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.pipeline.model_eyes import ModelEyes

STDIN = "-"


@dataclass(frozen=True, eq=False, repr=False)
class VisionFile:
    """The file of the vision tower."""

    mmproj: Annotated[
        Path | None,
        typer.Option(
            "--mmproj",
            metavar="FILE",
            help="File with the model's vision tower. Default: the mmproj file beside the model, if there is one.",
        ),
    ] = None
    no_mmproj: Annotated[bool, typer.Option("--no-mmproj", help="Read no pictures.")] = False

    def check(self) -> None:
        """UsageError: both options are given, or there is no such file."""
        if self.mmproj is not None and self.no_mmproj:
            raise UsageError("--mmproj and --no-mmproj are both given. Use one of them.")
        if self.mmproj is not None and not self.mmproj.is_file():
            raise UsageError(f"--mmproj {shown(self.mmproj)}: no such file.")

    def eyes(self, model: "LoadedModel") -> "ModelEyes":
        """The eyes of a loaded model. UsageError: the file is of another model."""
        from hybrid.pipeline.model_eyes import ModelEyes

        return ModelEyes(model, self.mmproj, off=self.no_mmproj)


@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """Pictures that the message is about."""

    image: Annotated[
        list[str] | None,
        typer.Option(
            "--image",
            metavar="FILE",
            help="Picture that the message is about: PNG, JPEG, WebP, GIF or BMP; - is stdin. May be repeated. In a "
            "chat: of the first message.",
        ),
    ] = None
    vision: VisionFile = field(default_factory=VisionFile)

    @property
    def from_stdin(self) -> bool:
        return STDIN in (self.image or ())

    def files(self) -> list[tuple[str, bytes]]:
        """The names and contents of the pictures' files. UsageError, PictureError: one cannot be read."""
        self.vision.check()
        names = self.image or []
        if names.count(STDIN) > 1:
            raise UsageError("--image - is given twice: stdin is one picture.")
        if names and self.vision.no_mmproj:
            raise UsageError("--image and --no-mmproj are both given. Use one of them.")
        return [piped_picture() if name == STDIN else picture_file(Path(name)) for name in names]


def picture_file(path: Path) -> tuple[str, bytes]:
    """The name and the content of a picture's file. PictureError: it cannot be read, or is too large."""
    from hybrid.infer.pictures.decode import file_bytes

    return path.name, file_bytes(path)


def piped_picture() -> tuple[str, bytes]:
    """The same for stdin."""
    from hybrid.infer.pictures.decode import LIMITS

    data = sys.stdin.buffer.read(LIMITS.nbytes + 1)
    if not data:
        raise UsageError("--image -: stdin is empty.")
    if len(data) > LIMITS.nbytes:
        raise PictureError(f"the picture on stdin has more than {LIMITS.nbytes} bytes. Give a smaller file.")
    return "stdin", data
