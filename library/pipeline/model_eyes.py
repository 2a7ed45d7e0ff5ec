"""The eyes of a loaded model: their file is found beside the model's, and opened at the first picture."""

from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from hybrid.quant.ggml.errors import UsageError, shown

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    from hybrid.infer import LoadedModel
    from hybrid.infer.answers.asking.eyes import Eyes, SeenPicture


class ModelEyes:
    """See the module. `read` makes pictures for the messages of a chat; any thread may call it.

    path  of the file with the vision tower; None: the model reads no pictures
    """

    def __init__(
        self,
        model: "LoadedModel",
        mmproj: Path | None = None,
        *,
        off: bool = False,
        folder: Path | None = None,
        folder_budget: int = 0,
    ) -> None:
        """mmproj: the file, if it is not to be looked for. off: the model reads no pictures. folder, folder_budget: see
        `Eyes.open`.

        Raises UsageError if there is no such file, or it is of another model.
        """
        self._model, self._given, self._off = model, mmproj, off
        self._folder, self._folder_budget = folder, folder_budget
        self._eyes: Eyes | None = None
        self._lock = Lock()
        if mmproj is not None:
            if not mmproj.is_file():
                raise UsageError(f"{shown(mmproj)}: no such file. Give the file with the model's vision tower.")
            self.open()

    @cached_property
    def path(self) -> Path | None:
        from . import vision_files

        if self._off:
            return None
        return self._given or vision_files.vision_of(self._model.path)

    def open(self) -> "Eyes":
        """The eyes. UsageError: the model has none, or the tower is of another model."""
        from hybrid.infer.answers.asking.eyes import Eyes

        with self._lock:
            if self._eyes is None:
                if self.path is None:
                    raise UsageError(self.trouble)
                self._eyes = Eyes.open(self.path, self._model, folder=self._folder, folder_budget=self._folder_budget)
            return self._eyes

    @property
    def trouble(self) -> str:
        """Why the model reads no pictures; "" if it does."""
        name = shown(self._model.path.name)
        if self._off:
            return f"{name} reads no pictures here: its vision tower is switched off."
        if self.path is None:
            return (
                f"{name} reads no pictures: no file with a vision tower (mmproj-*.gguf) belongs to it. Put the model's "
                "mmproj file beside it, if there is one."
            )
        return ""

    def read(self, data: "bytes | Image.Image | np.ndarray", name: str = "picture") -> "SeenPicture":
        """A picture to ask about: see `Eyes.read`. Raises also what `open` raises."""
        return self.open().read(data, name)

    def close(self) -> None:
        """End the tower's threads."""
        with self._lock:
            if self._eyes is not None:
                self._eyes.close()
