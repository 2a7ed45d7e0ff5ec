"""Invalid inputs of a command line except GGUF files: states, texts, outputs, options.

Checkpoints are in test_damaged_checkpoints.py.
"""

import io
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from seeing_models import pixels, png
from tiny_models import FAMILIES

from hybrid.cli.main import run

pytestmark = pytest.mark.exhaustive

Refused = Callable[..., str]


@pytest.fixture
def models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with m.gguf, l.gguf, ok.state of m.gguf, and texts."""
    FAMILIES["jamba"]().write(tmp_path / "m.gguf")
    FAMILIES["llama"]().write(tmp_path / "l.gguf")
    (tmp_path / "text.txt").write_text("abc de fgh " * 50)
    (tmp_path / "short.txt").write_text("ab")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin1.txt").write_bytes("caf\xe9".encode("latin-1"))
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    state = str(tmp_path / "ok.state")
    assert run(["run", str(tmp_path / "m.gguf"), "-p", "abc", "-n", "2", "--temp", "0", "--state", state]) == 0
    capsys.readouterr()
    return tmp_path


def flipped(at: int) -> Callable[[bytes], bytes]:
    def change(raw: bytes) -> bytes:
        damaged = bytearray(raw)
        damaged[at] ^= 0x10
        return bytes(damaged)

    return change


def restated(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """Change the state's header, with a correct checksum: only a deliberate writer produces it."""

    def edit(raw: bytes) -> bytes:
        prologue = struct.Struct("<8sIIQ")
        magic, version, _, n = prologue.unpack_from(raw)
        values = json.loads(raw[prologue.size : prologue.size + n])
        change(values)
        text = json.dumps(values, separators=(",", ":")).encode()
        head = prologue.pack(magic, version, zlib.crc32(text), len(text)) + text
        data = raw[-(-(prologue.size + n) // 64) * 64 :]
        return head + bytes(-len(head) % 64) + data

    return edit


def extra(**changes: Any) -> Callable[[bytes], bytes]:
    return restated(lambda h: h["extra"].update(changes))


def sampler(**changes: Any) -> Callable[[bytes], bytes]:
    return restated(lambda h: h["extra"]["sampler"].update(changes))


STATES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda raw: b"", "fewer than the 24"),
    "no state": (lambda raw: b"x" * 500, "is not a state file"),
    "cut off": (lambda raw: raw[:-10], "is cut off"),
    "cut in the header": (lambda raw: raw[:100], "is damaged"),
    "too long": (lambda raw: raw + bytes(64), "extra bytes"),
    "header flipped": (flipped(40), "checksum of its header"),
    "data flipped": (flipped(-300), "checksum differs"),
    "another version": (flipped(8), "state format 17"),
    "no arrays": (restated(lambda h: h.update(arrays=[])), "extra bytes"),
    "array misnamed": (restated(lambda h: h["arrays"][2].update(name="blk.9.k")), "is missing"),
    "array of another type": (restated(lambda h: h["arrays"][2].update(dtype="i16")), "array 'blk.0.k' is i16"),
    "array of another shape": (
        restated(lambda h: h["arrays"][2]["shape"].reverse()),
        "array 'blk.0.k' is f16 [8, 2, 5], this model needs f16 [5, 2, 8]",
    ),
    "tokens 10^9": (restated(lambda h: h.update(n_tokens=10**9)), "the context is 64"),
    "tokens -1": (restated(lambda h: h.update(n_tokens=-1)), "n_tokens of its header is -1"),
    "tokens a string": (restated(lambda h: h.update(n_tokens="4")), "n_tokens of its header"),
    "pending a string": (extra(pending="ab"), "sampled tokens"),
    "pending strings": (extra(pending=["1"]), "sampled tokens"),
    "pending infinite": (extra(pending=[float("inf")]), "sampled tokens"),
    "pending 99999": (extra(pending=[99999]), "sampled tokens"),
    "sampler a number": (extra(sampler=5), "sampler state"),
    "sampler infinite": (sampler(state=float("inf")), "sampler state"),
    "sampler of many digits": (sampler(state="9" * 5000), "sampler state"),
    "recent infinite": (sampler(recent=[float("inf")]), "sampler state"),
    "recent 10^6": (sampler(recent=[10**6]), "sampler state"),
}


@pytest.mark.parametrize("name", STATES)
def test_damaged_states(name: str, models: Path, refused: Refused) -> None:
    change, says = STATES[name]
    state = models / "bad.state"
    state.write_bytes(change((models / "ok.state").read_bytes()))
    kept = state.read_bytes()
    assert says in refused("run", "m.gguf", "-p", "a", "-n", "1", "--state", state, code=1)
    assert state.read_bytes() == kept


def test_state_of_another_model(models: Path, refused: Refused) -> None:
    line = refused("run", "l.gguf", "-p", "a", "-n", "1", "--state", "ok.state", code=1)
    assert "was saved by 'tiny jamba F32', not by this model ('tiny llama F32')" in line


HUGE = str(10**18)
COMMANDS: dict[str, tuple[int, str]] = {
    # texts
    "run m.gguf -f latin1.txt": (2, "latin1.txt is not UTF-8: byte 0xe9 at offset 3"),
    "run m.gguf -f empty.txt": (2, "empty.txt is empty"),
    "run m.gguf -f folder": (2, "folder is a folder"),
    "run m.gguf -f no.txt": (2, "no.txt cannot be read"),
    "run m.gguf -f text.txt -c 16": (2, "tokens do not fit the context of 16"),
    "perplexity m.gguf -f latin1.txt": (2, "latin1.txt is not UTF-8"),
    "perplexity m.gguf -f empty.txt": (2, "empty.txt is empty"),
    "perplexity m.gguf -f short.txt -c 16": (2, "the text has 3 tokens, a context of 16 needs at least 32"),
    "perplexity m.gguf -f folder": (2, "folder is a folder"),
    "perplexity m.gguf": (2, "-f"),
    # models
    "run folder -p a": (2, "no config.json and no .gguf file"),
    "run pipe -p a": (2, "pipe is not a regular file"),
    "run /dev/zero -p a": (2, "is not a regular file"),
    "run text.txt -p a": (1, "is not a GGUF file"),
    "run no.gguf -p a": (2, "no such file"),
    "inspect folder": (2, "Is a directory"),
    "inspect pipe": (2, "pipe is not a regular file"),
    "quantize pipe x.gguf Q8_0": (2, "pipe is not a regular file"),
    "convert m.gguf": (2, "is a GGUF file already"),
    "convert text.txt": (2, "is not a checkpoint"),
    "convert folder": (1, "no config.json"),
    "bench m.gguf no.gguf -p 4 -n 0": (2, "no such file"),
    "pull m.gguf": (2, "m.gguf: expected ORG/NAME"),
    "pull org/model": (2, "HF_HUB_OFFLINE"),
    "models rm": (2, "needs a name"),
    "models rm m.gguf -y": (2, "m.gguf is your own"),
    "models rm no.gguf -y": (2, "no.gguf is not in a cache"),
    "models list m.gguf": (2, "takes no names"),
    # states
    "run m.gguf -p a -n 1 --state folder": (1, "is a folder"),
    "run m.gguf -p a -n 1 --state pipe": (1, "is not a regular file"),
    "run m.gguf -p a -n 1 --state no/x.state": (2, "no is not a folder"),
    "run m.gguf -p abc -c 4 --state ok.state": (1, "ok.state holds 5 tokens, the context is 4"),
    # outputs
    "quantize m.gguf m.gguf Q8_0": (2, "is the source itself"),
    "quantize m.gguf folder/../m.gguf Q8_0": (2, "is the source itself"),
    "quantize m.gguf folder Q8_0": (2, "is not a regular file"),
    "quantize m.gguf pipe Q8_0": (2, "is not a regular file"),
    "quantize m.gguf /dev/full Q8_0": (2, "is not a regular file"),
    "quantize m.gguf no/x.gguf Q8_0": (1, "No such file or directory"),
    "quantize m.gguf text.txt/x.gguf Q8_0": (1, "Not a directory"),
    "quantize m.gguf /proc/x.gguf Q8_0": (1, "cannot be written"),
    f"quantize m.gguf {'x' * 300} Q8_0": (1, "File name too long"),
    # options
    "quantize m.gguf x.gguf Q9_9": (2, "Q9_9 is not a file type"),
    "quantize m.gguf x.gguf Q8_0 -t -1": (2, "-t"),
    "quantize m.gguf x.gguf Q8_0 -t 100000": (2, "n_threads = 100000"),
    "quantize m.gguf x.gguf Q8_0 --ssm-type q2": (2, "--ssm-type"),
    "inspect m.gguf -c -1": (2, "-c"),
    "inspect m.gguf -c 3000000000": (2, "n_ctx = 3000000000"),
    "inspect m.gguf --ram 8G": (2, "only --fit asks"),
    "inspect m.gguf --fit --ram lots": (2, "--ram lots: expected a size"),
    "inspect m.gguf --memory --parallel 0": (2, "--parallel"),
    "inspect text.txt --memory": (1, "is not a GGUF file"),
    "inspect no.gguf --fit": (2, "no.gguf"),
    "run m.gguf -p a --temp nan": (2, "temp = nan"),
    "run m.gguf -p a --temp hot": (2, "--temp"),
    "run m.gguf -p a --top-p 7": (2, "top_p = 7.0"),
    "run m.gguf -p a --min-p -1": (2, "min_p = -1.0"),
    "run m.gguf -p a --repeat-penalty 0": (2, "repeat_penalty = 0.0"),
    "run m.gguf -p a --seed -1": (2, "seed = -1"),
    f"run m.gguf -p a --seed {2**64}": (2, "seed = 18446744073709551616"),
    "run m.gguf -p a -n 1.5": (2, "-n"),
    "run m.gguf -p a -n -2": (2, "-n"),
    "run m.gguf -p a -c -1": (2, "-c"),
    f"run m.gguf -p a -c {HUGE}": (2, "n_ctx = 1000000000000000000"),
    "run l.gguf -p a -c 2000000000": (2, "iB, this machine has"),
    "run m.gguf -p a -t 100000": (2, "n_threads = 100000"),
    "run m.gguf -p a -c 1": (2, "do not fit the context of 1"),
    f"perplexity m.gguf -f text.txt -c {HUGE}": (2, "n_ctx = 1000000000000000000"),
    f"perplexity m.gguf -f text.txt -c 16 -b {HUGE}": (2, "iB, this machine has"),
    "perplexity m.gguf -f text.txt -c 16 --stride 100": (2, "stride = 100"),
    f"perplexity m.gguf -f text.txt -c 16 --stride {HUGE}": (2, "n_ctx"),
    "perplexity m.gguf -f text.txt -c 16 --chunks 0": (2, "--chunks"),
    "bench m.gguf -p x": (2, "'x' is not a number"),
    "bench m.gguf -p 999999999 -n 0": (2, "iB, this machine has"),
    "bench m.gguf -p 4 -n 0 -b 999999999": (2, "n_ubatch = 999999999"),
    "bench m.gguf -p 4 -n 0 -t 100000": (2, "n_threads = 100000"),
    "bench m.gguf -r 0": (2, "repetitions = 0"),
    "bench m.gguf -o xml": (2, "xml"),
}


@pytest.mark.parametrize("line", COMMANDS)
def test_commands(line: str, models: Path, refused: Refused) -> None:
    code, says = COMMANDS[line]
    assert says in refused(*line.split(), code=code)


PNG, HEADER = png(pixels(1)), 8 + 4 + 4  # of a PNG: its signature, and length and name of the first chunk


def changed(raw: bytes, at: int, new: bytes) -> bytes:
    return raw[:at] + new + raw[at + len(new) :]


PICTURES: dict[str, tuple[bytes | None, str]] = {
    "empty.png": (b"", "empty.png is empty"),
    "text.png": (b"no picture", "text.png is text, expected PNG"),
    "tiff.png": (png(pixels(1), "TIFF"), "expected PNG, JPEG, WebP, GIF or BMP"),
    "cut.png": (PNG[:-500], "cut.png is"),
    "head.jpg": (png(pixels(1), "JPEG")[:100], "head.jpg is cut off after 100 bytes"),
    "flipped.png": (flipped(-300)(PNG), "flipped.png is"),
    "huge.png": (changed(PNG, HEADER, struct.pack(">II", 30000, 30000)), "in all. Give a smaller picture"),
    "wide.png": (changed(PNG, HEADER, struct.pack(">II", 40000, 1)), "on a side. Give a smaller picture"),
    "no.png": (None, "no.png: No such file"),
    "folder.png": (None, "folder.png: Is a directory"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures(name: str, files_of_eyes: tuple[Path, Path], tmp_path: Path, refused: Refused) -> None:
    data, says = PICTURES[name]
    if data is not None:
        (tmp_path / name).write_bytes(data)
    elif name == "folder.png":
        (tmp_path / name).mkdir()
    assert says in refused("run", files_of_eyes[0], "--image", name, "-p", "What?", code=1)


TOWERS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda raw: b"", "is empty, not a GGUF file"),
    "cut": (lambda raw: raw[:-100], "is cut off"),
    "another kind": (lambda raw: raw.replace(b"qwen3vl_merger", b"qwen9vl_merger"), "qwen9vl_merger"),
    "without a key": (lambda raw: raw.replace(b"clip.vision.patch_size", b"clip.vision.patch_sizf"), "patch_size"),
    "without a tensor": (lambda raw: raw.replace(b"v.blk.1.ffn_up.weight", b"v.blk.1.ffn_uq.weight"), "v.blk.1.ffn_up"),
}


@pytest.mark.parametrize("name", TOWERS)
def test_towers(name: str, files_of_eyes: tuple[Path, Path], tmp_path: Path, refused: Refused) -> None:
    change, says = TOWERS[name]
    whole = files_of_eyes[1].read_bytes()
    damaged = change(whole)
    assert damaged != whole
    (tmp_path / "mmproj.gguf").write_bytes(damaged)
    (tmp_path / "a.png").write_bytes(PNG)
    line = refused("run", files_of_eyes[0], "--mmproj", "mmproj.gguf", "--image", "a.png", "-p", "What?", code=1)
    assert "mmproj.gguf" in line and says in line


def test_empty_stdin(models: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    for raw, says in ((b"", "stdin is empty"), (b"a\xff", "stdin is not UTF-8")):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(raw), isatty=lambda: False))
        assert says in refused("run", "m.gguf", code=2)


def test_a_failed_quantization_keeps_what_was_there(models: Path, refused: Refused) -> None:
    (models / "old.gguf").write_bytes(b"precious")
    model = FAMILIES["jamba"]()
    model.tensors["blk.1.ffn_up.weight"].values[3, 4] = np.nan
    model.write(models / "nan.gguf")
    assert "NaN" in refused("quantize", "nan.gguf", "old.gguf", "Q8_0", code=1)
    assert (models / "old.gguf").read_bytes() == b"precious"


def test_what_is_not_permitted(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without write permission, files without read permission."""
    # import everything before dropping root: other users may not read the modules
    assert run(["quantize", str(models / "m.gguf"), str(models / "imports.gguf"), "Q8_0"]) == 0
    assert run(["inspect", str(models / "imports.gguf")]) == 0
    assert run(["run", str(models / "m.gguf"), "-f", str(models / "short.txt"), "-n", "1"]) == 0
    capsys.readouterr()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        for name, mode in (("m.gguf", 0o444), ("secret.gguf", 0o000), ("secret.txt", 0o000)):
            shutil.copy(models / ("text.txt" if name.endswith("txt") else "m.gguf"), folder / name)
            (folder / name).chmod(mode)
        folder.chmod(0o555)
        before = os.geteuid()
        if before == 0:  # root may do anything
            os.seteuid(65534)
        try:
            codes = [
                run(["quantize", str(folder / "m.gguf"), str(folder / "x.gguf"), "Q8_0"]),
                run(["inspect", str(folder / "secret.gguf")]),
                run(["run", str(folder / "m.gguf"), "-f", str(folder / "secret.txt")]),
            ]
            left = sorted(path.name for path in folder.iterdir())
        finally:
            os.seteuid(before)
            folder.chmod(0o755)
    lines = capsys.readouterr().err.splitlines()
    assert codes == [1, 2, 2] and len(lines) == 3
    assert all(line.startswith("error: ") and "Permission denied" in line for line in lines), lines
    assert left == ["m.gguf", "secret.gguf", "secret.txt"]


@contextmanager
def small_disk(nbytes: int) -> Iterator[None]:
    """Limit the size of files that this process writes; writing beyond it fails as on a full disk.

    Not a fixture: pytest's own output, written before fixtures end, may also be a file.
    """
    import signal

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then write fails with EFBIG
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_disk_full(models: Path, data_dir: Path, refused: Refused) -> None:
    kept = (models / "ok.state").read_bytes()
    folder = data_dir / "checkpoints" / "jamba-dense"
    with small_disk(3000):
        quantized = refused("quantize", "m.gguf", "x.gguf", "Q8_0", code=1)
        converted = refused("convert", folder, "-o", "x.gguf", code=1)
        line = refused("run", "m.gguf", "-p", "abc", "-n", "2", "--state", "ok.state", code=1)
    assert "x.gguf cannot be written" in quantized
    assert "x.gguf cannot be written" in converted
    assert "ok.state: cannot be written" in line
    assert (models / "ok.state").read_bytes() == kept


def test_disk_said_to_be_full_beforehand(models: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000, total=1 << 30))
    assert "B free. Make room" in refused("quantize", "m.gguf", "x.gguf", "Q8_0", code=1)


def test_a_process_ends_the_same_way(models: Path) -> None:
    """Exit code, one line, nothing on stdout: also outside of pytest."""
    (models / "cut.gguf").write_bytes((models / "m.gguf").read_bytes()[:-100])
    command = [sys.executable, "-m", "hybrid.cli", "run", str(models / "cut.gguf"), "-p", "a"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
