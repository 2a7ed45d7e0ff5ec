"""Whole checkpoints through the converter: real ones, read back by gguf-py and our tokenizers; and damaged ones."""

import json
import os
import pickle
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from golden.models import EMBEDDING_SCALE, NOISE, SHARED_NAMES

from hybrid.convert import ARCHITECTURES, convert, plan, verify
from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.quant.ggml.errors import HybridError
from hybrid.quant.ggml.reader import GGUFFile

pytestmark = pytest.mark.exhaustive

KINDS = {"jamba-dense": "jamba", "mamba-bf16": "neox", "falcon-mamba": "neox", "llama-unigram-bin": "unigram"}


@pytest.fixture
def checkpoint(data_dir: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy that a test may change."""

    def copy(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for file in (data_dir / "checkpoints" / name).iterdir():
            if file.is_file():
                shutil.copyfile(file, folder / file.name)
        return folder

    return copy


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("outtype", ["auto", pytest.param("q8_0", marks=pytest.mark.exhaustive)])
def test_checkpoints_of_the_reference(data_dir, tmp_path, name, outtype):
    source = data_dir / "checkpoints" / name
    report = convert(source, tmp_path / "o.gguf", outtype=outtype)
    assert report.file_type.name == ("BF16" if outtype == "auto" else "Q8_0")
    assert report.architecture in ARCHITECTURES
    checked = verify(source, report.output)
    assert checked.n_exact == checked.n_tensors or outtype == "q8_0"
    if name == "llama-unigram-bin":
        return  # gguf-py needs 9 s for its table of characters
    reader = gguf.GGUFReader(report.output)
    assert [t.name for t in reader.tensors] == [t.name for t in plan(source, outtype=outtype).tensors]
    kinds = {t.name: t.tensor_type.name for t in reader.tensors}
    for tensor, kind in kinds.items():
        exact = tensor.endswith(("norm.weight", ".bias", "ssm_a", "ssm_d", "ssm_conv1d.weight"))
        assert (kind == "F32") == exact, tensor


@pytest.mark.parametrize("name", KINDS)
def test_tokenizers_of_the_reference(data_dir, tmp_path, name):
    """Every golden text has the same ids as from the checkpoint's own tokenizer."""
    out = convert(data_dir / "checkpoints" / name, tmp_path / "o.gguf", vocab_only=True).output
    golden = json.loads((data_dir / "tokenizers" / f"golden_{KINDS[name]}.json").read_text())["items"]
    with GGUFFile.open(out) as file:
        tokenizer = load_tokenizer(file)
        plain = [item for item in golden if not item["has_special_text"]]
        assert len(plain) > 150
        for item in plain:
            assert tokenizer.encode(item["text"], add_special=False) == item["ids"], item["text"]
        prompts = json.loads((data_dir / "checkpoints" / name / "golden" / "prompts.json").read_text())
        for prompt in prompts.values():
            assert tokenizer.encode(prompt["text"]) == prompt["ids"]


def test_tokenizer_json_of_a_sentencepiece_model(data_dir, checkpoint, tmp_path):
    """A repository with only tokenizer.json: scores derived from its merges give the ids of `tokenizers`."""
    import sentencepiece
    from tokenizers import Tokenizer, models, normalizers

    folder = checkpoint("jamba-dense")
    library = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    (folder / "tokenizer.model").unlink()
    pieces = [library.id_to_piece(i) for i in range(len(library))]
    text = [i for i in range(len(pieces)) if not (library.is_control(i) or library.is_unknown(i) or library.is_byte(i))]
    ids = {pieces[i]: i for i in text}
    merges = []
    for i in sorted(text, key=library.get_score, reverse=True):
        halves = [(pieces[i][:k], pieces[i][k:]) for k in range(1, len(pieces[i]))]
        merges += sorted((h for h in halves if h[0] in ids and h[1] in ids), key=lambda h: (ids[h[0]], ids[h[1]]))
    vocab = {piece: i for i, piece in enumerate(pieces)}
    reference = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, fuse_unk=True, unk_token="<|unk|>"))
    reference.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    reference.add_special_tokens([pieces[i] for i in range(len(pieces)) if library.is_control(i)])
    reference.save(str(folder / "tokenizer.json"))
    out = convert(folder, tmp_path / "o.gguf", vocab_only=True).output
    golden = json.loads((data_dir / "tokenizers" / "golden_jamba.json").read_text())["items"]
    with GGUFFile.open(out) as file:
        tokenizer = load_tokenizer(file)
        assert (tokenizer.bos, tokenizer.eos, tokenizer.add_bos) == (1, 2, True)
        assert set(file.metadata["tokenizer.ggml.token_type"].tolist()) == {1, 2, 3, 6}
        for item in golden:
            if not item["has_special_text"]:
                ids_there = reference.encode(item["text"], add_special_tokens=False).ids
                assert tokenizer.encode(item["text"], add_special=False) == ids_there, item["text"]


@pytest.mark.parametrize("name", [SHARED_NAMES.get(name, name) for name in NOISE])
def test_full_reference_set(shared_dir, tmp_path, name):
    """Old and new config keys, if there are both, give the same bytes. All values equal the checkpoint's, or are near
    them where the converter multiplies."""
    converted = []
    for config in sorted(path.name for path in (shared_dir / "checkpoints" / name).glob("config*.json")):
        folder = tmp_path / config / name
        folder.mkdir(parents=True)
        for file in (shared_dir / "checkpoints" / name).iterdir():
            if file.is_file() and not file.name.startswith("config"):
                (folder / file.name).symlink_to(file)
        shutil.copyfile(shared_dir / "checkpoints" / name / config, folder / "config.json")
        converted.append(convert(folder, tmp_path / f"{config}.gguf").output)
        checked = verify(folder, converted[-1])
        assert checked.n_exact == checked.n_tensors or name in EMBEDDING_SCALE
    assert converted[0].read_bytes() == converted[-1].read_bytes()


@pytest.mark.parametrize("name", ["ggml-vocab-gpt-neox.gguf", "ggml-vocab-llama-spm.gguf"])
def test_vocabulary_of_a_gguf_file(shared_dir, checkpoint, tmp_path, name):
    """`--tokenizer` with llama.cpp's own vocabularies: their padding is replaced by padding for this model."""
    folder = checkpoint("mamba-bf16")
    (folder / "tokenizer.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] = 50280
    (folder / "config.json").write_text(json.dumps(config))
    source = shared_dir / "vocabs" / name
    out = convert(folder, tmp_path / "o.gguf", vocab_only=True, tokenizer=source).output
    with GGUFFile.open(out) as copy, GGUFFile.open(source) as given:
        tokens = copy.metadata["tokenizer.ggml.tokens"].tolist()
        assert len(tokens) == 50280
        n = min(50277, len(given.metadata["tokenizer.ggml.tokens"]))
        assert tokens[:n] == given.metadata["tokenizer.ggml.tokens"].tolist()[:n]
        for token in ("bos", "eos", "unknown"):
            key = f"tokenizer.ggml.{token}_token_id"
            assert copy.metadata[key] == given.metadata[key]
        load_tokenizer(copy)


def test_memory_does_not_grow_with_the_model(tmp_path):
    """A 64 MB matrix and a stack of experts of the same size need a few megabytes."""
    n, vocab = 4096, 8192
    layers = {"model.norm.weight": (n,), "model.embed_tokens.weight": (vocab, n), "lm_head.weight": (vocab, n)}
    header, offset = {}, 0
    for name, shape in layers.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    folder = tmp_path / "big"
    folder.mkdir()
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)  # zeros that take no disk space
    config = {"architectures": ["MadeUp"], "vocab_size": vocab}
    (folder / "config.json").write_text(json.dumps(config))
    from hybrid.convert import stream
    from hybrid.convert.architectures.family import row
    from hybrid.convert.checkpoint import Checkpoint
    from hybrid.convert.plan import TensorJob, _job
    from hybrid.quant.ggml.types import FileType

    stored = Checkpoint(folder).tensors
    jobs: list[TensorJob] = [
        _job(row(name, f"x{i}.weight", *shape), (stored[name],), FileType.Q8_0)
        for i, (name, shape) in enumerate(layers.items())
    ]
    tracemalloc.start()
    total = sum(part.nbytes for _, parts in stream.in_order(jobs, 2) for part in parts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == sum(job.planned.nbytes for job in jobs)
    print(f"peak {peak / 1e6:.1f} MB for {offset / 1e6:.1f} MB")
    assert peak < 48e6 < offset


# --- damage ---


def change_json(file: str, **values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        for key, value in values.items():
            if value is REMOVED:
                content.pop(key)
            else:
                content[key] = value
        (folder / file).write_text(json.dumps(content))

    return change


REMOVED = object()


def write(file: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_bytes(content) and None


def cut(file: str, keep: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        raw = (folder / file).read_bytes()
        (folder / file).write_bytes(raw[: int(len(raw) * keep)])

    return change


def remove(file: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).unlink()


def header(edit: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Edit the header of model.safetensors; the data stays."""

    def change(folder: Path) -> None:
        raw = (folder / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        content = json.loads(raw[8 : 8 + length])
        edit(content)
        text = json.dumps(content).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])

    return change


def poison(value: int) -> Callable[[Path], None]:
    """Replace the last bf16 value of the last tensor."""

    def change(folder: Path) -> None:
        raw = bytearray((folder / "model.safetensors").read_bytes())
        raw[-2:] = struct.pack("<H", value)
        (folder / "model.safetensors").write_bytes(raw)

    return change


def rename(old: str, new: str) -> Callable[[Path], None]:
    def edit(content: dict[str, Any]) -> None:
        content[new] = content.pop(old)

    return header(edit)


def index(weight_map: Any) -> Callable[[Path], None]:
    return write("model.safetensors.index.json", json.dumps({"weight_map": weight_map}).encode())


class Malicious:
    def __reduce__(self) -> Any:
        return os.system, ("touch owned",)


EMBED = "model.embed_tokens.weight"
Q = "model.layers.1.self_attn.q_proj.weight"
JAMBA = [
    (remove("config.json"), "has no config.json"),
    (write("config.json", b""), "config.json is not JSON"),
    (write("config.json", b'{"architectures": ['), "config.json is not JSON"),
    (write("config.json", b"[]"), "holds a list, expected an object"),
    (write("config.json", b"\xff\xfe\x00"), "not UTF-8"),
    (write("config.json", b'{"a":' * 3000), "config.json is"),
    (change_json("config.json", architectures=REMOVED), "has no architectures"),
    (change_json("config.json", architectures="JambaForCausalLM"), "expected a list of names"),
    (change_json("config.json", architectures=["XLNetModel"]), "XLNetModel is not supported"),
    (change_json("config.json", num_hidden_layers="5"), 'num_hidden_layers = "5" \\(a string\\), expected an integer'),
    (change_json("config.json", num_hidden_layers=-5), "num_hidden_layers = -5"),
    (change_json("config.json", num_hidden_layers=5.5), "num_hidden_layers = 5.5"),
    (change_json("config.json", num_hidden_layers=10**9), "from 1 to 4096"),
    (change_json("config.json", num_hidden_layers=True), "num_hidden_layers = true"),
    (change_json("config.json", num_hidden_layers=6), "lacks tensors .*layers.5"),
    (change_json("config.json", num_hidden_layers=4), "has tensors .*layers.4.* no place for"),
    (change_json("config.json", hidden_size=REMOVED), "has no hidden_size"),
    (change_json("config.json", hidden_size=[256]), "hidden_size = \\[256\\] \\(a list\\)"),
    (change_json("config.json", hidden_size=128), "has shape \\[2000, 256\\], expected \\[2000, 128\\]"),
    (change_json("config.json", vocab_size=1999), "has shape \\[2000, 256\\], expected \\[1999, 256\\]"),
    (change_json("config.json", vocab_size=10**9), "from 1 to 16777216"),
    (change_json("config.json", num_experts=10**9), "from 1 to 4096"),
    (change_json("config.json", num_attention_heads=3), "divisor of the hidden size"),
    (change_json("config.json", num_key_value_heads=3), "divisor of the 4 attention heads"),
    (change_json("config.json", attn_layer_period=0), "attn_layer_period = 0"),
    (change_json("config.json", attn_layer_offset=4), "less than attn_layer_period = 4"),
    (change_json("config.json", mamba_dt_rank="many"), 'mamba_dt_rank = "many"'),
    (change_json("config.json", rms_norm_eps="small"), 'rms_norm_eps = "small"'),
    (change_json("config.json", rms_norm_eps=-1e-6), "positive number"),
    (change_json("config.json", hidden_act="gelu"), 'hidden_act = "gelu" is not supported'),
    (change_json("config.json", tie_word_embeddings="yes"), "true or false"),
    (change_json("config.json", tie_word_embeddings=False), "lacks tensor lm_head.weight"),
    (change_json("config.json", quantization_config={}), "quantized already"),
    (change_json("config.json", eos_token_id=5000), "eos_token_id = 5000"),
    (remove("model.safetensors"), "has no weights"),
    (write("model.safetensors", b""), "cut off"),
    (cut("model.safetensors", 0.0000014), "cut off"),
    (cut("model.safetensors", 0.001), "cut off"),
    (cut("model.safetensors", 0.5), "cut off"),
    (cut("model.safetensors", 0.9999), "cut off"),
    (write("model.safetensors", b"\xff" * 100), "header has"),
    (write("model.safetensors", b"<!DOCTYPE html><html></html>" * 9), "header has"),
    (rename(EMBED, "model.embed.weight"), "lacks tensor model.embed_tokens.weight.* model.embed.weight"),
    (rename(Q, "model.layers.1.self_attn.q_proj.bias"), "lacks tensor .*q_proj.weight"),
    (rename(Q, "model.layers.1.self_attn.q_proj.weight\n\x1b[2J"), "lacks tensor"),
    (header(lambda h: h[EMBED].update(shape=[256, 2000])), "has shape \\[256, 2000\\]"),
    (header(lambda h: h[EMBED].update(shape=[2000, 255])), "is damaged"),
    (header(lambda h: h[EMBED].update(dtype="F32")), "is damaged"),
    (header(lambda h: h[EMBED].update(dtype="I16")), "of type I16"),
    (header(lambda h: h[EMBED].update(dtype="Q4_0")), "unknown type Q4_0"),
    (header(lambda h: h[EMBED].update(data_offsets=h[Q]["data_offsets"])), "is damaged"),
    (poison(0x7FC0), "NaN or infinite"),
    (poison(0xFF80), "NaN or infinite"),
    (index({EMBED: "model-00001-of-00002.safetensors"}), "is missing"),
    (index({EMBED: "../model.safetensors"}), "is not the name of a weight file"),
    (index({EMBED: 3}), "is in an integer"),
    (index({"model.extra.weight": "model.safetensors"}), "has no tensor model.extra.weight"),
    (index([]), "weight_map"),
    (index({}), "has no weight_map"),
    (remove("tokenizer.model"), "has no tokenizer"),
    (write("tokenizer.model", b"garbage"), "not a sentencepiece model"),
    (cut("tokenizer.model", 0.7), "not a sentencepiece model"),
    (write("tokenizer_config.json", b"{"), "tokenizer_config.json is not JSON"),
    (write("generation_config.json", b"3"), "expected an object"),
]
MAMBA = [
    (write("tokenizer.json", b"{}"), "has no model"),
    (cut("tokenizer.json", 0.5), "tokenizer.json is not JSON"),
    (change_json("tokenizer.json", model={"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}), "merge 0"),
    (remove("tokenizer.json"), "has no tokenizer .*GPT-NeoX"),
    (change_json("config.json", state_size=17), "has shape"),
    (change_json("config.json", hidden_act="gelu"), "hidden_act = .gelu. is not supported"),
    (change_json("config.json", use_bias=True), "lacks tensors .*in_proj.bias"),
    (change_json("config.json", use_conv_bias=False), "conv1d.bias.* that the config has no place for"),
    (change_json("config.json", ssm_cfg=3), "ssm_cfg = 3"),
]
TORCH = [
    (write("pytorch_model.bin", b""), "cut off or damaged"),
    (cut("pytorch_model.bin", 0.1), "cut off or damaged"),
    (cut("pytorch_model.bin", 0.99), "cut off or damaged"),
    (write("pytorch_model.bin", pickle.dumps({"a": 1}, 2)), "format from before 2020"),
    (write("pytorch_model.bin", pickle.dumps(Malicious(), 4)), "format from before 2020"),
    (remove("pytorch_model.bin"), "has no weights"),
    (write("pytorch_model.bin.index.json", b'{"weight_map": {"a": "pytorch_model-00001-of-00009.bin"}}'), "is missing"),
]
CASES = [
    pytest.param(name, change, message, id=f"{name}-{i}")
    for name, cases in (("jamba-dense", JAMBA), ("mamba-bf16", MAMBA), ("llama-unigram-bin", TORCH))
    for i, (change, message) in enumerate(cases)
]


@pytest.mark.parametrize(("name", "change", "message"), CASES)
def test_damage_is_one_line_and_no_file(checkpoint, tmp_path, monkeypatch, name, change, message):
    folder = checkpoint(name)
    change(folder)
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.chdir(out)
    with pytest.raises(HybridError, match=message) as caught:
        convert(folder, out / "model.gguf")
    text = str(caught.value)
    assert "\n" not in text and "\x1b" not in text and len(text) < 600
    assert not list(out.iterdir())
