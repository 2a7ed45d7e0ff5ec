"""Invalid checkpoints and options of `convert`: one line says what is wrong, and no file appears."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import FAMILIES

pytestmark = pytest.mark.exhaustive

Refused = Callable[..., str]
Edit = Callable[[Path], object]


@pytest.fixture
def checkpoint(data_dir: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a reference checkpoint that a test may damage; unchanged files stay links."""

    def copy(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for path in (data_dir / "checkpoints" / name).iterdir():
            if path.is_file():
                (folder / path.name).symlink_to(path)
        return folder

    return copy


def replaced(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


def config(**changes: Any) -> Edit:
    """Change values of config.json; None removes a key."""

    def edit(folder: Path) -> None:
        path = folder / "config.json"
        values = {**json.loads(path.read_bytes()), **changes}
        replaced(path, json.dumps({k: v for k, v in values.items() if v is not None}).encode())

    return edit


def content(name: str, change: Callable[[bytes], bytes]) -> Edit:
    return lambda folder: replaced(folder / name, change((folder / name).read_bytes()))


def header(change: Callable[[dict[str, Any]], object]) -> Edit:
    """Change the header of model.safetensors, with the same data."""

    def edit(folder: Path) -> None:
        raw = (folder / "model.safetensors").read_bytes()
        (n,) = struct.unpack_from("<Q", raw)
        entries = json.loads(raw[8 : 8 + n])
        change(entries)
        text = json.dumps(entries).encode()
        replaced(folder / "model.safetensors", struct.pack("<Q", len(text)) + text + raw[8 + n :])

    return edit


def values(name: str, value: float) -> Edit:
    """Set one f32 value of a tensor of model.safetensors."""

    def edit(folder: Path) -> None:
        raw = bytearray((folder / "model.safetensors").read_bytes())
        (n,) = struct.unpack_from("<Q", raw)
        entry = json.loads(raw[8 : 8 + n])[name]
        at, size = 8 + n + entry["data_offsets"][0] + 64, {"F32": 4, "BF16": 2}[entry["dtype"]]
        raw[at : at + size] = struct.pack("<f", value)[4 - size :]
        replaced(folder / "model.safetensors", bytes(raw))

    return edit


class Malicious:
    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.mkdir, ("executed",)


def archive(data: bytes) -> Edit:
    def edit(folder: Path) -> None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("archive/data.pkl", data)
            archive.writestr("archive/byteorder", "little")
        replaced(folder / "pytorch_model.bin", buffer.getvalue())

    return edit


def renamed(entries: dict[str, Any], old: str, new: str) -> None:
    entries[new] = entries.pop(old)


EMBEDDING, NORM = "model.embed_tokens.weight", "model.final_layernorm.weight"  # bf16 [2000, 256] and [256]
JAMBA: dict[str, tuple[Edit, str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "no config.json"),
    "config empty": (content("config.json", lambda _: b""), "config.json is not JSON"),
    "config cut off": (content("config.json", lambda raw: raw[:100]), "config.json is not JSON"),
    "config binary": (content("config.json", lambda _: b"\x80\xff\xfe\0"), "config.json is not UTF-8"),
    "config a list": (content("config.json", lambda _: b"[1, 2]"), "config.json holds a list"),
    "config nested": (content("config.json", lambda _: b"[" * 100_000), "config.json"),
    "config of digits": (content("config.json", lambda _: b'{"a": ' + b"9" * 5000 + b"}"), "config.json"),
    "architecture unknown": (config(architectures=["NobodyForCausalLM"]), "NobodyForCausalLM is not supported"),
    "architecture a number": (config(architectures=7), "architectures = 7"),
    "architecture missing": (config(architectures=None), "architectures"),
    "hidden_size a string": (config(hidden_size="64"), 'hidden_size = "64"'),
    "hidden_size negative": (config(hidden_size=-64), "hidden_size = -64"),
    "hidden_size 0": (config(hidden_size=0), "hidden_size = 0"),
    "hidden_size 2^40": (config(hidden_size=2**40), "hidden_size = 1099511627776"),
    "hidden_size another": (config(hidden_size=128), "expected"),
    "layers 2^31 - 1": (config(num_hidden_layers=2**31 - 1), "num_hidden_layers = 2147483647"),
    "layers a float": (config(num_hidden_layers=2.5), "num_hidden_layers = 2.5"),
    "one layer more": (config(num_hidden_layers=99), "the checkpoint lacks"),
    "one layer": (config(num_hidden_layers=1), "no place for"),
    "heads 3": (config(num_attention_heads=3), "num_attention_heads"),
    "period 0": (config(attn_layer_period=0), "attn_layer_period = 0"),
    "offset too large": (config(attn_layer_offset=1000), "attn_layer_offset = 1000"),
    "conv a list": (config(mamba_d_conv=[4]), "mamba_d_conv"),
    "conv a bool": (config(mamba_d_conv=True), "mamba_d_conv = true"),
    "rank negative": (config(mamba_dt_rank=-3), "mamba_dt_rank = -3"),
    "eps NaN": (content("config.json", lambda raw: raw.replace(b"1e-06", b"NaN")), "rms_norm_eps"),
    "activation gelu": (config(hidden_act="gelu"), 'hidden_act = "gelu" is not supported'),
    "quantized": (config(quantization_config={"bits": 4}), "is quantized already"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no weights"),
    "weights empty": (content("model.safetensors", lambda _: b""), "is cut off"),
    "weights a git-lfs pointer": (
        content("model.safetensors", lambda _: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n"),
        "model.safetensors",
    ),
    "weights cut in the header": (content("model.safetensors", lambda raw: raw[:500]), "is cut off"),
    "weights cut in the data": (content("model.safetensors", lambda raw: raw[:-1]), "is cut off"),
    "weights too long": (content("model.safetensors", lambda raw: raw + b"\0"), "belong to no tensor"),
    "header 2^63": (content("model.safetensors", lambda raw: struct.pack("<Q", 1 << 63) + raw[8:]), "its header has"),
    "header no JSON": (content("model.safetensors", lambda raw: raw[:9] + b"\xff" + raw[10:]), "is not JSON"),
    "tensor overlapping": (
        header(lambda e: e[NORM].update(data_offsets=[0, 512])),
        "overlaps the one before it",
    ),
    "tensor outside": (
        header(lambda e: e[NORM].update(data_offsets=[1 << 50, (1 << 50) + 512])),
        "belong to none",
    ),
    "tensor without type": (header(lambda e: e[EMBEDDING].pop("dtype")), "dtype, shape and data_offsets"),
    "tensor of an unknown type": (header(lambda e: e[EMBEDDING].update(dtype="Q4")), "the unknown type Q4"),
    "tensor negative": (header(lambda e: e[EMBEDDING].update(shape=[-1, 64])), "has the shape"),
    "tensor absurd": (header(lambda e: e[EMBEDDING].update(shape=[1 << 62, 1 << 62])), EMBEDDING),
    "tensor missing": (header(lambda e: renamed(e, EMBEDDING, "x")), "the checkpoint lacks"),
    "tensor left over": (
        header(lambda e: e.update({"model.more": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})),
        "model.more",
    ),
    "tensor named to hurt": (
        header(lambda e: e.update({"a\x1b[31m\nerror: b": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})),
        "no place for",
    ),
    "NaN in A": (values("model.layers.0.mamba.A_log", float("nan")), "model.layers.0.mamba.A_log"),
    "infinity in the embedding": (values(EMBEDDING, float("inf")), EMBEDDING),
    "no tokenizer": (lambda f: (f / "tokenizer.model").unlink(), "tokenizer"),
    "tokenizer empty": (content("tokenizer.model", lambda _: b""), "tokenizer.model"),
    "tokenizer noise": (content("tokenizer.model", lambda raw: b"\xff" * 300), "tokenizer.model"),
    "tokenizer cut off": (content("tokenizer.model", lambda raw: raw[:1001]), "tokenizer.model"),
    "tokenizer config a list": (content("tokenizer_config.json", lambda _: b"[]"), "tokenizer_config.json"),
    "vocabulary 10": (config(vocab_size=10), "expected [10, 256] by the config"),
    "generation config no JSON": (content("generation_config.json", lambda _: b"{"), "generation_config.json"),
}
MAMBA: dict[str, tuple[Edit, str]] = {
    "tokenizer no JSON": (content("tokenizer.json", lambda raw: raw[:-50]), "tokenizer.json is not JSON"),
    "tokenizer without a model": (content("tokenizer.json", lambda _: b"{}"), "tokenizer.json"),
    "tokenizer of another kind": (
        content("tokenizer.json", lambda _: b'{"model": {"type": "WordPiece", "vocab": {"a": 0}}}'),
        "tokenizer.json",
    ),
    "tokenizer model a string": (content("tokenizer.json", lambda _: b'{"model": "BPE"}'), "tokenizer.json"),
    "vocab a list": (
        content("tokenizer.json", lambda _: b'{"model": {"type": "BPE", "vocab": ["a"], "merges": []}}'),
        "tokenizer.json",
    ),
    "ids absurd": (
        content("tokenizer.json", lambda _: b'{"model": {"type": "BPE", "vocab": {"a": 1000000000}, "merges": []}}'),
        "tokenizer.json",
    ),
    "merges numbers": (
        content("tokenizer.json", lambda _: b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [1, 2]}}'),
        "tokenizer.json",
    ),
}
LLAMA: dict[str, tuple[Edit, str]] = {
    "pickle that runs code": (archive(pickle.dumps({"a": Malicious()}, protocol=2)), "Nothing was executed"),
    "pickle that runs code, protocol 4": (archive(pickle.dumps(Malicious(), protocol=4)), "Nothing was executed"),
    "pickle of no dictionary": (archive(pickle.dumps([1, 2], protocol=2)), "holds no dictionary"),
    "pickle cut off": (archive(pickle.dumps({"a": 1}, protocol=2)[:-1]), "pickle has no end"),
    "pickle bare": (
        lambda f: replaced(f / "pytorch_model.bin", pickle.dumps({"a": Malicious()}, protocol=2)),
        "from before 2020",
    ),
    "archive cut off": (content("pytorch_model.bin", lambda raw: raw[: len(raw) // 2]), "is cut off or damaged"),
    "archive empty": (content("pytorch_model.bin", lambda _: b""), "pytorch_model.bin"),
    "rope scaling dynamic": (config(rope_parameters={"rope_type": "dynamic", "factor": 2.0}), "'dynamic'"),
    "rope scaling a string": (config(rope_parameters={"rope_type": "yarn", "factor": "2"}), 'factor = "2"'),
    "rope factors of nobody": (
        config(rope_parameters={"rope_type": "longrope", "short_factor": 1, "long_factor": []}),
        "short_factor = 1",
    ),
    "rope theta a string": (config(rope_parameters={"rope_theta": "big"}), 'rope_theta = "big"'),
    "kv heads 3": (config(num_key_value_heads=3), "num_key_value_heads = 3"),
}
CHECKPOINTS = {
    f"{name}: {what}": (name, edit, says)
    for name, table in (("jamba-dense", JAMBA), ("mamba-bf16", MAMBA), ("llama-unigram-bin", LLAMA))
    for what, (edit, says) in table.items()
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_convert_refuses(name: str, checkpoint: Callable[[str], Path], refused: Refused, tmp_path: Path) -> None:
    folder_name, edit, says = CHECKPOINTS[name]
    folder = checkpoint(folder_name)
    edit(folder)
    line = refused("convert", folder, "-o", tmp_path / "out.gguf", code=1)
    assert says in line
    assert len(line) < 600


def test_a_damaged_folder_is_refused_by_run(
    checkpoint: Callable[[str], Path], refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` converts the folder first; no partial file stays in the cache."""
    folder = checkpoint("jamba-dense")
    values(EMBEDDING, float("nan"))(folder)
    with monkeypatch.context() as patch:
        patch.setattr("hybrid.cache_paths.cache_dir", lambda: tmp_path / "cache")
        assert EMBEDDING in refused("run", folder, "--raw", "-p", "a", code=1)
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]


CONVERT_OPTIONS: dict[str, tuple[list[str], int, str]] = {
    "outtype": (["--outtype", "q9"], 2, "q9"),
    "metadata missing": (["--metadata", "no.json"], 2, "no.json is not a file"),
    "metadata no JSON": (["--metadata", "text.txt"], 1, "text.txt is not JSON"),
    "tokenizer missing": (["--tokenizer", "no"], 2, "no"),
    "tokenizer damaged": (["--tokenizer", "damaged.gguf"], 1, "damaged.gguf"),
    "output is a source": (["-o", "jamba-dense/model.safetensors"], 2, "is read by this conversion"),
    "output in no folder": (["-o", "no/x.gguf"], 1, "No such file or directory"),
    "output a device": (["-o", "/dev/null"], 2, "is not a regular file"),
}


@pytest.mark.parametrize("name", CONVERT_OPTIONS)
def test_convert_options(name: str, checkpoint: Callable[[str], Path], refused: Refused, tmp_path: Path) -> None:
    options, code, says = CONVERT_OPTIONS[name]
    (tmp_path / "text.txt").write_text("abc")
    (tmp_path / "damaged.gguf").write_bytes(bytes(FAMILIES["jamba"]())[:700])
    assert says in refused("convert", checkpoint("jamba-dense"), *options, code=code)
