"""What a model sees: its vision tower, and the features of pictures, each made once.

eyes = Eyes.open(mmproj, model)
picture = eyes.read(data, "a.png")     # PNG, JPEG... as bytes, a PIL image, or an array; nothing is computed yet
messages = [{"role": "user", "content": [{"type": "image", "image": picture}, {"type": "text", "text": "What is it?"}]}]
prompt = asker.messages(asker.dialect.prompt(messages, asked))      # the tower reads the picture, in this thread
"""

import hashlib
import io
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hybrid.quant.ggml.errors import PictureError, UsageError, shown

from ...engine.pictures import Picture
from ...loading.options import Precision
from ...pictures.pixels import PictureLayout, PictureProcessor
from ...pictures.processors import processor_of
from ...program.threads import Stop
from ...text.literal_text import named

if TYPE_CHECKING:
    from PIL import Image

    from ...model import LoadedModel
    from ...text.tokenizer import Tokenizer
    from ...towers.tower import VisionTower

FEATURE_BUDGET = 256 << 20  # bytes
PATIENCE = 0.05  # seconds in which a thread that waits for another's picture does not look whether it is stopped
MOST_FILES = 4096  # digests of files whose pixels are known
EncodingProgress = Callable[[int, int], None]  # patches that were read, and all


@dataclass(frozen=True, eq=False)
class SeenPicture:
    """A picture that a model can be asked about.

    title   what people call it: "a.png"
    name    of its pixels, the tower and the tower's settings
    layout  its tiles, and its place in a prompt
    text    stands for it in a prompt, beside which nothing else may have image tokens; other pictures have other texts
    counts  the features of each image token in `text`
    source  bytes of a file, its path, or pixels
    spent   seconds in which the tower has read this one; nothing if it was at hand
    """

    title: str
    name: bytes
    layout: PictureLayout
    text: str
    counts: tuple[int, ...]
    eyes: "Eyes" = field(repr=False)
    source: Any = field(repr=False)
    spent: list[float] = field(default_factory=list, repr=False)

    @property
    def placeholder(self) -> str:
        """What a chat template writes for a picture."""
        return self.eyes.make.placeholder

    @property
    def written(self) -> str:
        """The same with the text around it that some templates write."""
        return self.eyes.make.written

    @property
    def image_token(self) -> int:
        return self.eyes.image_token

    @property
    def features(self) -> int:
        """Tokens of it in a prompt, without marks."""
        return self.layout.features

    @property
    def file(self) -> bytes:
        """Its file; a PNG file of its pixels if it came without one."""
        from ...pictures.decode import file_bytes

        if isinstance(self.source, Path):
            return file_bytes(self.source)
        if isinstance(self.source, bytes):
            return self.source
        from PIL import Image

        out = io.BytesIO()
        Image.fromarray(self.source).save(out, "PNG")
        return out.getvalue()

    def runs(self, progress: EncodingProgress | None = None, stop: Stop | None = None) -> tuple[Picture, ...]:
        """Its runs of tokens, with their rows. The tower reads the picture unless that is at hand. Raises Interrupted
        when stopped."""
        return self.eyes.runs(self, progress, stop)


class PictureReader(Protocol):
    """Reads pictures for one model: its eyes, or what opens them."""

    def read(self, data: "bytes | Image.Image | np.ndarray", name: str = "picture") -> SeenPicture: ...


@dataclass
class _Reading:
    """A picture that a thread's tower reads now; others wait for it."""

    lock: Lock = field(default_factory=Lock)
    waiting: int = 0


class Eyes:
    """The tower of one model, its processor, and the features of the pictures used last. Any thread may use it.

    budget    most bytes of features that are kept
    features  reads pictures, and keeps features in files if there is a folder
    """

    def __init__(
        self,
        make: PictureProcessor[Any],
        tower: "VisionTower",
        tokenizer: "Tokenizer",
        budget: int = FEATURE_BUDGET,
        folder: Path | None = None,
        folder_budget: int = 0,
    ) -> None:
        """folder, folder_budget: see SeenPictures."""
        from ...towers.seen import SeenPictures

        self.make, self.tower, self.budget = make, tower, budget
        self.features = SeenPictures(tower, 0, folder, folder_budget)
        self.image_token = _image_token(tokenizer, make, tower.gguf.path.name)
        self.identity = hashlib.sha256(f"{make.settings}".encode() + tower.name).digest()
        self._lock = Lock()  # of all that follows
        self._tower_lock = Lock()  # the tower reads one picture at a time
        self._kept: OrderedDict[bytes, tuple[Picture, ...]] = OrderedDict()  # least recently used first
        self._files: OrderedDict[bytes, tuple[bytes, int, int]] = OrderedDict()  # digest -> name of pixels, size
        self._reading: dict[bytes, _Reading] = {}

    @classmethod
    def open(
        cls,
        path: Path | str,
        model: "LoadedModel",
        *,
        n_threads: int = 0,
        precision: Precision | None = None,
        cpus: Sequence[int] = (),
        budget: int = FEATURE_BUDGET,
        folder: Path | None = None,
        folder_budget: int = 0,
    ) -> "Eyes":
        """The eyes of a model, by the file of its tower, which is mapped but not read.

        n_threads, precision   0, None: the model's
        folder, folder_budget  where features are kept between runs, and bytes of these files; None: nowhere

        Raises UsageError if the tower is of another model, FormatError, or UnsupportedError.
        """
        from ...towers.loading import load_tower

        tower = load_tower(
            path, n_threads=n_threads or model.n_threads, precision=precision or model.precision, cpus=cpus
        )
        tower.check_model(model.engine)
        return cls(processor_of(tower.gguf), tower, model.tokenizer, budget, folder, folder_budget)

    # --- reading ---
    def read(self, data: "bytes | Image.Image | np.ndarray", name: str = "picture", owner: bytes = b"") -> SeenPicture:
        """A picture to ask about: the bytes of a file, a PIL image or an array u8 [height, width, 3]. name: its title.
        owner: the same pixels of another owner are another picture, so that nobody learns what others have.

        PictureError: it is too large, damaged, of another type, or the model cannot read it.
        """
        from ...pictures.decode import checked_header, picture_name, pixels_of

        file = b""
        if isinstance(data, bytes | bytearray | memoryview):
            data = bytes(data)
            checked_header(data, name)
            file = hashlib.blake2b(data, digest_size=16, key=owner).digest()
        with self._lock:
            known = self._files.get(file) if file else None
        if known is None:
            pixels = pixels_of(data, name)
            known = picture_name(pixels), pixels.shape[1], pixels.shape[0]
            if not file:
                data = pixels.copy() if isinstance(data, np.ndarray) else pixels  # the caller may change its own
        with self._lock:
            if file:
                self._files[file] = known
                self._files.move_to_end(file)
            while len(self._files) > MOST_FILES:
                self._files.popitem(last=False)
        own, width, height = known
        layout = self.make.layout(width, height)
        digest = self._named(own, owner)
        text, counts = self._text(layout, digest)
        return SeenPicture(name, digest, layout, text, counts, self, data)

    def _named(self, pixels: bytes, owner: bytes = b"") -> bytes:
        """The name of an owner's picture, by the name of its pixels."""
        return hashlib.sha256(pixels + self.identity + owner).digest()[:16]

    def _text(self, layout: PictureLayout, name: bytes) -> tuple[str, tuple[int, ...]]:
        """The text of a picture, and the features of its stretches, each of which has one image token in it."""
        token = self.make.settings.image_token
        counts = tuple(len(found.group()) // len(token) for found in self._stretches.finditer(layout.text))
        assert sum(counts) == layout.features
        text = self._stretches.sub(lambda _: token, layout.text)
        return text.replace(token, token + named(name), 1), counts

    @cached_property
    def _stretches(self) -> re.Pattern[str]:
        return re.compile(f"(?:{re.escape(self.make.settings.image_token)})+")

    # --- features ---
    def runs(
        self, picture: SeenPicture, progress: EncodingProgress | None = None, stop: Stop | None = None
    ) -> tuple[Picture, ...]:
        """See `SeenPicture.runs`. What two threads ask for at the same time, one of them makes."""
        with self._lock:
            if (kept := self._found(picture.name)) is not None:
                return kept
            reading = self._reading.setdefault(picture.name, _Reading())
            reading.waiting += 1
        try:
            with _held(reading.lock, stop):
                with self._lock:
                    kept = self._found(picture.name)
                return self._keep(picture.name, self._encoded(picture, progress, stop)) if kept is None else kept
        finally:
            with self._lock:
                reading.waiting -= 1
                if not reading.waiting:
                    self._reading.pop(picture.name, None)

    def at_hand(self, picture: SeenPicture) -> tuple[Picture, ...] | None:
        """The runs of a picture's tokens, if they are kept. It counts as no use."""
        with self._lock:
            return self._kept.get(picture.name)

    def _found(self, name: bytes) -> tuple[Picture, ...] | None:
        kept = self._kept.get(name)
        if kept is not None:
            self._kept.move_to_end(name)
        return kept

    def _encoded(
        self, picture: SeenPicture, progress: EncodingProgress | None, stop: Stop | None
    ) -> tuple[Picture, ...]:
        from ...pictures.decode import file_bytes, picture_name, pixels_of

        source = picture.source
        with _held(self._tower_lock, stop):  # the pixels of one picture are in memory at a time
            rgb = pixels_of(file_bytes(source) if isinstance(source, Path) else source, picture.title)
            if isinstance(source, Path) and self._named(picture_name(rgb)) != picture.name:
                raise PictureError(f"{shown(source)} has changed since it was first read. Ask again.")
            begun = time.perf_counter()
            pixels = self.make.pixels(rgb)
            runs = self.features.see(pixels, picture.name, progress=progress, stop=stop)
            picture.spent.append(time.perf_counter() - begun)
        assert sum(len(run.ids) for run in runs) == picture.features
        return tuple(runs)

    def _keep(self, name: bytes, runs: tuple[Picture, ...]) -> tuple[Picture, ...]:
        with self._lock:
            self._kept[name] = runs
            while self.nbytes > self.budget and len(self._kept) > 1:
                self._kept.popitem(last=False)
        return runs

    @property
    def n_encoded(self) -> int:
        """Pictures that the tower has read."""
        return self.features.n_read

    @property
    def nbytes(self) -> int:
        """Bytes of the features that are kept."""
        return sum(run.nbytes for runs in list(self._kept.values()) for run in runs)

    def close(self) -> None:
        """End the tower's threads. Nothing can be read any more."""
        with self._tower_lock:
            self.tower.close()


@contextmanager
def _held(lock: Lock, stop: Stop | None) -> Iterator[None]:
    """Holds a lock. Raises Interrupted when stopped while another thread holds it."""
    while not lock.acquire(timeout=-1 if stop is None else PATIENCE):
        assert stop is not None
        stop.check()
    try:
        yield
    finally:
        lock.release()


def _image_token(tokenizer: "Tokenizer", make: PictureProcessor[Any], file: str) -> int:
    """The token that stands for a feature. UsageError: the vocabulary lacks one of the processor's tokens."""
    needed = dict.fromkeys((make.settings.image_token, make.placeholder))
    for text in needed:
        if tokenizer.token(text) is None:
            raise UsageError(
                f"{file} is of another model, whose vocabulary has the token {text}. Give the file that belongs to "
                "the model."
            )
    token = tokenizer.token(make.settings.image_token)
    assert token is not None
    return token
