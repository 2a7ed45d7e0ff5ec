"""The tokens of pictures in an encoded text.

The text of a picture (`SeenPicture.text`) has one of the model's image tokens for each stretch of features. The prompt
has the picture's own tokens (memory/picture_tokens.py) in its place.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from hybrid.quant.ggml.errors import PictureError

from ...engine.pictures import Picture
from .ledger import Encoded

if TYPE_CHECKING:
    from .eyes import SeenPicture


UNREAD = ~0  # in place of the tokens of a picture that was not read: of no picture


@dataclass(frozen=True)
class Placed(Encoded):
    """A text with the tokens of its pictures, in `known` as in `rest`.

    short   the rest with one token for each stretch
    counts  the features of each stretch
    """

    short: Sequence[int] = ()
    counts: Sequence[int] = ()
    image_token: int = -1
    pictures: tuple[Picture, ...] = ()

    @property
    def unplaced(self) -> Encoded:
        """The same with one token for each stretch in the rest."""
        return Encoded(self.known, list(self.short), self.at)

    def moved(self, positions: Iterable[int]) -> list[int]:
        """Positions in the tokens of `unplaced` as positions in the tokens."""
        n_known, longer, counts = len(self.known), [0], iter(self.counts)
        for token in self.short:
            longer.append(longer[-1] + (next(counts) - 1 if token == self.image_token else 0))
        return [at + longer[max(0, at - n_known)] for at in positions]


def n_seen(known: Sequence[int], seen: Sequence["SeenPicture"]) -> int | None:
    """How many of the pictures are in known tokens; None: not whole ones."""
    left = sum(token < 0 for token in known)
    for n, picture in enumerate(seen):
        if left == 0:
            return n
        left -= picture.features
    return len(seen) if left == 0 else None


def placed(encoded: Encoded, seen: Sequence["SeenPicture"]) -> Placed | None:
    """The encoded text with the tokens of all its pictures, which are read by the vision tower if they are not at hand.
    None: its known tokens have other pictures.

    Raises PictureError: it has not as many image tokens as its pictures need.
    """
    token = seen[0].image_token
    first = n_seen(encoded.known, seen)
    if first is None:
        return None
    left = list(chain.from_iterable(picture.counts for picture in seen[first:]))
    if (found := encoded.rest.count(token)) != len(left):
        raise PictureError(
            f"the prompt has {found} tokens for pictures, expected {len(left)}. Leave {seen[0].placeholder} out of its "
            "texts."
        )
    pictures = tuple(chain.from_iterable(picture.runs() for picture in seen))
    known = [token for token in encoded.known if token < 0]
    own = list(chain.from_iterable(picture.ids for picture in pictures))
    if own[: len(known)] != known:
        return None
    features, counts, rest = iter(own[len(known) :]), iter(left), list[int]()
    for one in encoded.rest:
        rest += (next(features) for _ in range(next(counts))) if one == token else (one,)
    return Placed(encoded.known, rest, encoded.at, encoded.rest, left, token, pictures)


def peeked(encoded: Encoded, seen: Sequence["SeenPicture"]) -> list[int] | None:
    """The tokens that `placed` gives, without reading a picture. A picture that is not at hand has UNREAD tokens."""
    if (first := n_seen(encoded.known, seen)) is None:
        return None
    held = [picture.eyes.at_hand(picture) for picture in seen]
    own = [
        [UNREAD] * picture.features if runs is None else list(chain.from_iterable(run.ids for run in runs))
        for picture, runs in zip(seen, held, strict=True)
    ]
    known = [token for token in encoded.known if token < 0]
    told = list(chain.from_iterable(own[:first]))
    if any(a not in (b, UNREAD) for a, b in zip(told, known, strict=True)):
        return None
    features = iter(chain.from_iterable(own[first:]))
    counts = iter(chain.from_iterable(picture.counts for picture in seen[first:]))
    ids = list(encoded.known)
    for token in encoded.rest:
        n = next(counts, 0) if token == seen[0].image_token else 0
        ids += (next(features) for _ in range(n)) if n else (token,)
    return ids


def picture_ends(ids: Sequence[int], seen: Sequence["SeenPicture"]) -> list[int]:
    """The position after each picture in a prompt: another question about it goes on from there."""
    places = [at for at, token in enumerate(ids) if token < 0]
    return [places[n - 1] + 1 for n in accumulate(picture.features for picture in seen)]


def n_placed(encoded: Encoded, seen: Sequence["SeenPicture"]) -> int:
    """The number of tokens that `placed` gives, without reading a picture."""
    first = n_seen(encoded.known, seen) or 0
    return len(encoded.ids) + sum(picture.features - len(picture.counts) for picture in seen[first:])
