"""Parts of messages that are pictures, and messages with them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import GetCoreSchemaHandler
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema, core_schema

from ..errors import RequestError
from ..strict import Ignored, Strict, Unsupported


@dataclass(frozen=True, eq=False)
class GivenPicture:
    """A picture as a client gave it.

    place   of its part in the body: messages.0.content.1
    source  a data URL, another URL, or base64; base64 alone if is_base64
    """

    place: str
    source: str = field(repr=False)
    is_base64: bool = False

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Only an instance is valid, which JSON cannot hold: routes of other APIs make it."""
        return core_schema.is_instance_schema(cls)


class PictureObject(Strict):
    """A picture's URL. `detail` has no effect: a picture has as many tokens as the model's processor says."""

    url: str
    detail: Ignored


class PicturePart(Strict):
    """A part of a message that is a picture: a data URL, base64, or another URL if the server fetches pictures."""

    type: Literal["image_url", "input_image"]
    image_url: str | PictureObject | Annotated[GivenPicture, SkipJsonSchema()] | None = None
    file_id: Unsupported
    detail: Ignored
    cache_control: Ignored
    prompt_cache_breakpoint: Ignored

    def given(self, place: str) -> GivenPicture:
        """The picture. place: of this part. RequestError: the part has no picture."""
        if self.image_url is None:
            raise RequestError(f"{place}.image_url: expected the picture as a data URL", param=f"{place}.image_url")
        if isinstance(self.image_url, GivenPicture):
            return self.image_url
        return GivenPicture(place, self.image_url if isinstance(self.image_url, str) else self.image_url.url)


Said = str | GivenPicture  # a part of a message


def joined(parts: Iterable[Said]) -> str | list[Said]:
    """The text of the parts; with pictures, the pictures and the texts between them."""
    made: list[Said] = []
    for part in parts:
        if isinstance(part, str) and made and isinstance(last := made[-1], str):
            made[-1] = last + part
        else:
            made.append(part)
    if any(isinstance(part, GivenPicture) for part in made):
        return [part for part in made if part]
    return "".join(part for part in made if isinstance(part, str))


def as_content(parts: Iterable[Said]) -> str | list[dict[str, Any]]:
    """The parts as a content of OpenAI's chats."""
    content = joined(parts)
    if isinstance(content, str):
        return content
    return [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "image_url", "image_url": part}
        for part in content
    ]
