"""Pictures in the tokens of a prompt."""

from collections.abc import Sequence
from itertools import chain

from ..engine.pictures import Picture
from ..pictures.pixels import PictureLayout
from ..pictures.placeholders import places


def with_pictures(
    ids: Sequence[int], image_token: int, layouts: Sequence[PictureLayout], seen: Sequence[Sequence[Picture]]
) -> list[int]:
    """The tokens of a prompt, with the pictures' own in place of image tokens.

    seen: the runs of each picture, as `VisionTower.see` returns them. Raises PictureError if there are other image
    tokens in the prompt.
    """
    out = list(ids)
    for place, runs in zip(places(ids, image_token, layouts), seen, strict=True):
        for at, token in zip(place.at.tolist(), chain(*(picture.ids for picture in runs)), strict=True):
            out[at] = token
    return out
