"""/image: pictures for the next message."""

from pathlib import Path

from hybrid.quant.ggml.errors import UsageError

from .. import console
from ..options.vision_options import picture_file
from ..terminal.dragged_paths import SUFFIXES, picture_paths
from ..terminal.line_editing import Words
from .session import ChatSession

OFF = "off"


def image(chat: ChatSession, argument: str) -> None:
    """Adds a picture to the next message, lists the pictures that come with it, or leaves them out."""
    if argument == OFF:
        chat.pictures.clear()
    elif argument:
        for path in picture_paths(argument) or [Path(argument).expanduser()]:
            take(chat, path)
        return
    titles = ", ".join(picture.title for picture in chat.pictures)
    console.note(f"with your next message: {titles}" if titles else "no picture comes with your next message")


def take(chat: ChatSession, path: Path) -> None:
    """Reads a picture for the next message. Raises UsageError, or PictureError, if it cannot be read."""
    eyes = chat.conversation.eyes
    if eyes is None:
        raise UsageError(f"{chat.conversation.model.path.name} reads no pictures.")
    if chat.conversation.template is None:
        raise UsageError("the model continues texts here: a picture belongs to a message of a chat.")
    name, data = picture_file(path)
    picture = eyes.read(data, name)
    chat.pictures.append(picture)
    layout = picture.layout
    console.note(
        f"{name}: {layout.width} x {layout.height} pixels, {picture.features} tokens; it comes with your next message "
        f"(/image {OFF}: without)"
    )


def picture_files(chat: ChatSession, typed: str) -> Words:
    return Words(typed, (OFF,) if chat.pictures else (), files=(*SUFFIXES, *map(str.upper, SUFFIXES)))
