"""Disks that are full, read-only, or without links."""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import Hub

from hybrid.hub import api, download, folders
from hybrid.quant.ggml.errors import HybridError
from hybrid.quant.ggml.progress import Progress

CONTENT = bytes(range(256)) * 1024
SMALL = b"not large"
SILENT: Progress = lambda name, done, total: None


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as hub:
        hub.use(monkeypatch, tmp_path / "hub")
        hub.add("org/m", {"a/m-Q4_K_M.gguf": CONTENT, "config.json": SMALL})
        yield hub


def bring(progress: Progress = SILENT) -> Path:
    listing = api.listing("org/m")
    download.download(listing, listing.files, progress)
    return folders.snapshot("org/m", listing.commit)


def test_both_kinds_of_hash_and_the_layout(hub: Hub, tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    folder = bring(lambda *step: steps.append(step))
    total = len(CONTENT) + len(SMALL)
    assert (folder / "a" / "m-Q4_K_M.gguf").read_bytes() == CONTENT and (folder / "config.json").read_bytes() == SMALL
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps) and steps[-1][1:] == (total, total)
    blob = tmp_path / "hub" / "models--org--m" / "blobs" / hashlib.sha256(CONTENT).hexdigest()
    assert str((folder / "a" / "m-Q4_K_M.gguf").readlink()) == os.path.relpath(blob, folder / "a")
    hub.served = 0
    assert bring() == folder and hub.served == 0


def test_a_small_file_that_is_another(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = api.listing("org/m")
    hub.repositories["org/m"].files["config.json"] = SMALL[::-1]
    with pytest.raises(HybridError, match=r"config\.json arrived damaged"):
        download.download(listing, listing.files, SILENT)


def test_a_full_disk(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(HybridError, match=r"No space left on device\. Make room: the same command goes on"):
            bring()
    assert bring().is_dir() and hub.served == len(CONTENT) + len(SMALL)


def test_a_cache_that_cannot_be(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "hub").write_bytes(b"")
    with pytest.raises(HybridError, match=r"cannot be written: .*\. Set HF_HUB_CACHE to a folder that can be\."):
        bring()


def test_without_links(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(self: Path, target: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "symlink_to", no_links)
    folder = bring()
    assert (folder / "a" / "m-Q4_K_M.gguf").read_bytes() == CONTENT and not (folder / "config.json").is_symlink()
    hub.served = 0
    assert bring() == folder and hub.served == 0


def test_room(tmp_path: Path) -> None:
    download.check_room({tmp_path / "not" / "there" / "yet": 1000, tmp_path: 0}, "org/m")
    with pytest.raises(HybridError, match=rf"org/m needs 1024\.0 TiB, and {tmp_path} has .* free"):
        download.check_room({tmp_path: 1 << 50}, "org/m")
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(HybridError, match=rf"and {tmp_path / 'cache'} has"):  # both are on one disk
        download.check_room({tmp_path / "hub": free * 3 // 5, tmp_path / "cache": free * 3 // 5}, "org/m")


def test_pauses_grow() -> None:
    pauses = [download.pause(i) for i in range(download.ATTEMPTS)]
    assert pauses == sorted(pauses) and 10 < sum(pauses) < 60
