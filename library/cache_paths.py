"""Paths and notes of converted models in the cache; the folders of the cache and of kept chats.

converted/NAME-FOLDER-CONTENT.gguf    FOLDER, CONTENT: digests of the folder's path and of its contents
converted/mmproj-...                  the vision tower of the model of that name
converted/NAME-FOLDER-CONTENT.json    {"folder": the path}; its modification time is the conversion's last use
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hybrid.quant.ggml.installed import installed_version
from hybrid.quant.ggml.replacing import replace_file
from hybrid.quant.ggml.user_folders import cache_folder, state_folder
from hybrid.quant.ggml.vision_names import vision_path

# Files that a conversion reads. Other files in the folder (other weights, pictures) do not change the model.
INPUTS = (".json", ".safetensors", ".bin", ".model", ".jinja", ".txt", ".md")
cache_dir, state_dir = cache_folder, state_folder


def cache_path(folder: Path) -> Path:
    """<cache>/converted/<name>-<hash of the path>-<hash of names, sizes, times and our version>.gguf"""
    folder = folder.resolve()
    content = hashlib.sha256(installed_version("hybrid-lm").encode())
    for path in sorted(folder.iterdir()):
        if path.suffix in INPUTS and path.is_file():
            stat = path.stat()
            content.update(f"\0{path.name}\0{stat.st_size}\0{stat.st_mtime_ns}".encode())
    where = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    return cache_dir() / "converted" / f"{folder.name}-{where}-{content.hexdigest()[:12]}.gguf"


def about(model: Path) -> Path:
    """The path of the note that names the folder of a conversion."""
    return model.with_suffix(".json")


def remove(model: Path) -> None:
    """Removes a conversion, its vision tower and its note. Files that cannot be removed stay."""
    for path in (model, vision_path(model), about(model)):
        with suppress(OSError):
            path.unlink()


def note_use(model: Path, made_of: Mapping[str, str]) -> None:
    """Notes the folder that `model` was converted from, and the time of use, unless one within the hour is noted."""
    note = about(model)
    with suppress(OSError):  # a read-only cache works also
        if not note.exists():
            replace_file(note, [json.dumps(made_of).encode()])
        elif time.time() - note.stat().st_mtime > 3600:
            os.utime(note)
