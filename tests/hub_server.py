"""A hub of Hugging Face on loopback: the part of its API that downloads need, and everything that can go wrong.

    with Hub() as hub:
        hub.add("org/name", {"model-Q8_0.gguf": path_or_bytes, "config.json": b"{}"})
        hub.use(monkeypatch, tmp_path / "hub")          # huggingface_hub of this process asks it, and keeps files there
        subprocess.run(..., env=hub.environment(tmp_path / "hub"))

/api/models/ORG/NAME/revision/REV lists files with sizes and hashes, /ORG/NAME/resolve/COMMIT/PATH serves them: large
files (`LARGE` bytes and more) from /cdn/SHA256 after a redirect, as the real hub does. HEAD and Range work.
"""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import pytest

LARGE = 64 << 10
CHUNK = 16 << 10


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repository:
    """The files of one commit. listed: overrides entries of the file list, by path; gguf: the hub's summary of GGUF
    files."""

    files: dict[str, bytes]
    commit: str
    gated: bool = False
    private: bool = False
    listed: dict[str, dict[str, Any]] = field(default_factory=dict)
    gguf: dict[str, Any] | None = None
    revisions: dict[str, str] = field(default_factory=dict)  # branch or tag -> commit; older files: `commits`
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        commit = {"main": self.commit, **self.revisions}.get(revision, revision)
        files = {**self.commits, self.commit: self.files}.get(commit)
        return None if files is None else (commit, files)


@dataclass
class Faults:
    """Faults of the hub. Each entry of a list is used once. drops: bytes after which a connection breaks."""

    drops: list[int] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)  # statuses sent instead of files
    api_errors: list[int] = field(default_factory=list)  # statuses sent instead of lists
    corrupt: bool = False  # a wrong byte in each large file
    more: bool = False  # one byte too many
    no_ranges: bool = False  # always sends the whole file
    hold_at: int = 0  # stops after this many bytes until `go` is set
    go: threading.Event = field(default_factory=threading.Event)
    nonsense: bytes | None = None  # sent instead of a list


class Hub:
    """`served`: bytes of files sent; `asked`: paths of all requests; `leaked`: whether another host got a token."""

    token = "hf_of_the_owner"

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults = Faults()
        self.served = 0
        self.asked: list[str] = []
        self.leaked = False
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, name: str, files: Mapping[str, bytes | Path], **more: Any) -> Repository:
        """Add a repository, or its next commit."""
        content = {path: data if isinstance(data, bytes) else data.read_bytes() for path, data in files.items()}
        commit = hashlib.sha1(repr(sorted((p, hashlib.sha1(c).digest()) for p, c in content.items())).encode())
        self.repositories[name] = Repository(content, commit.hexdigest(), **more)
        return self.repositories[name]

    def environment(self, cache: Path) -> dict[str, str]:
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(cache), "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "0"}

    def use(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        use(monkeypatch, self.url, cache)

    def blob(self, sha256: str) -> bytes | None:
        for repository in self.repositories.values():
            for files in (repository.files, *repository.commits.values()):
                for content in files.values():
                    if hashlib.sha256(content).hexdigest() == sha256:
                        return content
        return None


def use(monkeypatch: pytest.MonkeyPatch, url: str, cache: Path, *, offline: bool = False) -> None:
    """Make this process's huggingface_hub ask `url`, keep files in `cache`, and have no token."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(cache.parent / "no token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        with self.hub.lock:
            self.hub.asked.append(path)
        try:
            if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
                self._list(match[1], match[2] or "main")
            elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                self._resolve(match[1], match[2], match[3])
            elif match := re.fullmatch(r"/cdn/([0-9a-f]{64})", path):
                content = self.hub.blob(match[1])
                assert content is not None
                self.hub.leaked |= self.headers.get("Authorization") is not None
                self._send(content, {"ETag": f'"{match[1]}"'})
            else:
                self._error(404)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _allowed(self, name: str) -> Repository | None:
        repository = self.hub.repositories.get(name)
        is_owner = self.headers.get("Authorization") == f"Bearer {self.hub.token}"
        if repository is None or (repository.private and not is_owner):
            self._error(401 if self.headers.get("Authorization") is None else 404, "RepoNotFound")
            return None
        if repository.gated and not is_owner:
            self._error(403 if self.headers.get("Authorization") else 401, "GatedRepo")
            return None
        return repository

    def _list(self, name: str, revision: str) -> None:
        if self.hub.faults.api_errors:
            self._error(self.hub.faults.api_errors.pop(0))
            return
        repository = self._allowed(name)
        if repository is None:
            return
        found = repository.at(revision)
        if found is None:
            self._error(404, "RevisionNotFound")
            return
        commit, files = found
        siblings = []
        for path, content in files.items():
            entry: dict[str, Any] = {"rfilename": path, "size": len(content), "blobId": git_hash(content)}
            if len(content) >= LARGE:
                sha256 = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 135}
            siblings.append({**entry, **repository.listed.get(path, {})})
        siblings += [entry for path, entry in repository.listed.items() if path not in files]
        answer = {"id": name, "modelId": name, "sha": commit, "siblings": siblings, "private": repository.private}
        if repository.gguf is not None:
            answer["gguf"] = repository.gguf
        self._reply(200, self.hub.faults.nonsense or json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repository = self._allowed(name)
        if repository is None:
            return
        if self.hub.faults.errors:
            self._error(self.hub.faults.errors.pop(0))
            return
        found = repository.at(revision)
        if found is None or path not in found[1]:
            self._error(404, "EntryNotFound" if found else "RevisionNotFound")
            return
        commit, content = found[0], found[1][path]
        headers = {"X-Repo-Commit": commit}
        if len(content) < LARGE:
            self._send(content, {**headers, "ETag": f'"{git_hash(content)}"'})
            return
        sha256 = hashlib.sha256(content).hexdigest()
        elsewhere = self.hub.url.replace("127.0.0.1", "localhost") + f"/cdn/{sha256}"  # another host, as in reality
        headers |= {"X-Linked-Etag": f'"{sha256}"', "X-Linked-Size": str(len(content)), "Location": elsewhere}
        self._reply(302, b"", headers)

    def _send(self, content: bytes, headers: dict[str, str]) -> None:
        faults = self.hub.faults
        if faults.corrupt and len(content) >= LARGE:
            content = content[:-1] + bytes([content[-1] ^ 1])
        if faults.more and len(content) >= LARGE:
            content += b"x"
        start, status = 0, 200
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if match and not faults.no_ranges:
            start, status = int(match[1]), 206
            if start >= len(content):
                self._error(416)
                return
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        drop = faults.drops.pop(0) if faults.drops and len(content) >= LARGE and self.command == "GET" else None
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content) - start), "Accept-Ranges": "bytes"}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        sent = 0
        for at in range(start, len(content), CHUNK):
            chunk = content[at : at + CHUNK]
            if drop is not None and sent + len(chunk) > drop:
                chunk = chunk[: drop - sent]
            self.wfile.write(chunk)
            self.wfile.flush()
            sent += len(chunk)
            with self.hub.lock:
                self.hub.served += len(chunk)
            if drop is not None and sent >= drop:
                self.close_connection = True
                self.connection.shutdown(2)
                return
            if 0 < faults.hold_at <= sent:
                faults.go.wait()

    def _error(self, status: int, code: str = "") -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": f"error {code or status}"} if code else {}
        self._reply(status, b"{}", headers)

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
