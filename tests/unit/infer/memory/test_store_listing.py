"""Files of a store that have not been read yet: their order and names."""

import os
from pathlib import Path

import numpy as np

from hybrid.infer.memory.store_file import TextDigest
from hybrid.infer.memory.store_listing import Unlisted

KEY = b"k" * 16
IDS = np.arange(40, dtype=np.int32)


def files(folder: Path, ends: list[int], owner: bytes = b"") -> list[Path]:
    """A state at each of these ends of IDS, the first one used last."""
    digest, paths = TextDigest(KEY, IDS, owner), []
    for age, end in enumerate(ends):
        paths.append(folder / f"{digest.at(end).hex()}.state")
        paths[-1].touch()
        os.utime(paths[-1], (1e9 - age, 1e9 - age))
    return paths


def test_what_was_used_last_comes_first_and_everything_once(tmp_path: Path) -> None:
    paths, read = files(tmp_path, [3, 7, 19, 40]), []  # type: ignore[var-annotated]
    unlisted = Unlisted([paths[2], paths[0], paths[3], paths[1]], read.append)
    assert not unlisted.read_all(lambda: len(read) == 2) and read == paths[:2]
    assert unlisted.read_all(lambda: False) and read == paths
    unlisted.look_up(KEY, IDS, b"")
    assert read == paths


def test_a_text_is_found_by_names(tmp_path: Path) -> None:
    paths, read = files(tmp_path, [3, 7, 19, 40]), []  # type: ignore[var-annotated]
    unlisted = Unlisted([*paths, *files(tmp_path, [5], b"o")], read.append)
    unlisted.look_up(KEY, np.append(IDS[:30], 0).astype(np.int32), b"")
    assert read == paths[:3], "the beginnings of the text, of its owner alone"
