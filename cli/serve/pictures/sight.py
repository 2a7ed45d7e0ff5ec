"""Decodes the pictures of a request: from what a client gave to what the model can be asked about."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hybrid.infer.pictures.decode import LIMITS
from hybrid.infer.text.stops import look
from hybrid.quant.ggml.errors import PictureError

from ..errors import RequestError
from .encoded import from_base64, from_data_url
from .fetching import PORTS, Fetcher
from .parts import GivenPicture

if TYPE_CHECKING:
    from hybrid.infer.answers.asking.eyes import Eyes, SeenPicture

MOST_PICTURES = 256  # of a request
MOST_BYTES = 2 * LIMITS.nbytes  # of all its pictures
MOST_FETCHED = 8  # pictures that are fetched at a time, for all requests
LONGEST_SCHEME = 16  # characters


@dataclass(frozen=True)
class Sight:
    """How a server reads pictures.

    eyes     of the model; None: it takes no pictures
    fetcher  of URLs; None: pictures come as bytes only
    """

    eyes: "Eyes | None" = None
    fetcher: Fetcher | None = None
    _decoding: threading.Lock = field(default_factory=threading.Lock, repr=False)  # pixels of one picture at a time
    _fetching: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(MOST_FETCHED), repr=False
    )

    def seen(self, pictures: Sequence[GivenPicture], owner: bytes = b"") -> "list[SeenPicture]":
        """The pictures, decoded; the vision tower has not read them yet. owner: other owners' pictures are others.

        RequestError: one of them cannot be had or decoded, the model takes none, or there are too many.
        """
        if self.eyes is None:
            self.refuse(pictures[0].place)
        assert self.eyes is not None
        if len(pictures) > MOST_PICTURES:
            place = pictures[MOST_PICTURES].place
            raise RequestError(f"{len(pictures)} pictures, this server takes {MOST_PICTURES} at a time", param=place)
        made, left = [], MOST_BYTES
        for picture in pictures:
            look()
            title = f"the picture at {picture.place}"
            try:
                data = self._bytes(picture, min(left, LIMITS.nbytes))
            except PictureError as error:
                raise RequestError(f"{title}: {error}", param=picture.place) from None
            left -= len(data)
            try:
                with self._decoding:
                    made.append(self.eyes.read(data, title, owner))
            except PictureError as error:
                raise RequestError(str(error), param=picture.place) from None
        return made

    def refuse(self, place: str) -> None:
        """RequestError if the model takes no pictures."""
        if self.eyes is None:
            raise RequestError(f"{place}: this model takes no pictures: it reads text only", param=place)

    def _bytes(self, picture: GivenPicture, most: int) -> bytes:
        """The bytes of a picture's file. PictureError: they cannot be had."""
        source = picture.source
        scheme = source[:LONGEST_SCHEME].partition(":")[0].lower() if ":" in source[:LONGEST_SCHEME] else ""
        if picture.is_base64 or not scheme:
            return from_base64(source, most)
        if scheme == "data":
            return from_data_url(source, most)
        if scheme not in PORTS:
            raise PictureError("its URL is neither data: nor http: nor https:. Send its bytes as a data URL.")
        if self.fetcher is None:
            raise PictureError(
                "this server fetches no pictures from URLs. Send its bytes as a data URL, or start the server with "
                "--allow-image-urls."
            )
        if not self._fetching.acquire(blocking=False):
            raise RequestError("too many pictures are being fetched. Try again later.", param=picture.place, status=429)
        try:
            return self.fetcher.fetch(source, most)
        finally:
            self._fetching.release()
