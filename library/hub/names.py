"""Names of models on a Hugging Face hub: ORG/NAME, optionally with a weight type or file, and a revision.

org/name                     the repository: its GGUF file of the default type, or its checkpoint
org/name:Q8_0                its file of this type
org/name:some/file.gguf      this file
org/name@refs/pr/3           at this branch, tag or commit; before or after the type
hf.co/org/name               the same, even if a folder org exists; also with https:// and huggingface.co
https://huggingface.co/org/name/blob/main/file.gguf    as copied from a browser
"""

import re
from dataclasses import dataclass

MAIN = "main"
_HOST = re.compile(r"(?:https?:/{1,2})?(?:www\.)?(?:hf\.co|huggingface\.co)/(.*)")  # a Path has one slash after https:
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
_NAME = re.compile(rf"({_WORD}/{_WORD})((?:[:@][^:@]+)*)")
_PAGE = re.compile(rf"({_WORD}/{_WORD})/(?:tree|blob|resolve)/([^/:@?#]+)(?:/([^:@?#]+\.gguf))?/?(?:\?.*)?")
_MOST = 96  # characters of ORG/NAME that a hub allows
_FILES = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".json", ".jsonl", ".txt", ".dat")


@dataclass(frozen=True)
class Name:
    """A repository, with a type ("": the default), a file ("" or a path) and a revision.

    explicit: the text cannot be a misspelt path, since it has a host, a type or a revision.
    """

    repository: str
    type: str = ""
    file: str = ""
    revision: str = MAIN
    explicit: bool = False

    def __str__(self) -> str:
        return self.with_choice(self.file or self.type)

    def with_choice(self, choice: str) -> str:
        """The text to type for another type or file of the same repository."""
        revision = "" if self.revision == MAIN else f"@{self.revision}"
        return f"{self.repository}{f':{choice}' if choice else ''}{revision}"


def parse(text: str) -> Name | None:
    """The name that `text` is, or None if it can only be a path."""
    host = _HOST.fullmatch(text)
    rest = host[1] if host else text
    if host and (page := _PAGE.fullmatch(rest)):
        return _checked(Name(page[1], file=page[3] or "", revision=page[2], explicit=True))
    match = _NAME.fullmatch(rest.rstrip("/") if host else rest)
    if match is None or (not host and not match[2] and match[1].lower().endswith(_FILES)):
        return None
    chosen, revision = "", ""
    for part in re.findall(r"[:@][^:@]+", match[2]):
        if (part[0] == ":" and chosen) or (part[0] == "@" and revision):
            return None
        chosen, revision = (part[1:], revision) if part[0] == ":" else (chosen, part[1:])
    file = chosen if chosen.lower().endswith(".gguf") else ""
    explicit = bool(host or match[2])
    return _checked(Name(match[1], "" if file else chosen, file, revision or MAIN, explicit))


def _checked(name: Name) -> Name | None:
    """The name, or None if a part of it could escape a folder, or no hub allows it."""
    if len(name.repository) > _MOST or "--" in name.repository or ".." in name.repository:
        return None
    parts = [*name.revision.split("/"), *name.file.split("/")] if name.file else name.revision.split("/")
    if any(part in ("", ".", "..") for part in parts) or not (name.revision + name.file + name.type).isprintable():
        return None
    if "\\" in name.revision + name.file or "/" in name.type:
        return None
    return name
