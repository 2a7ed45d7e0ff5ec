"""Our files equal llama.cpp's (from its converter and quantizer), except for deliberate differences
(interop/README.md).

interop/NAME.json holds those tools' output for the repository's checkpoints: every key, every tensor's digest.
"""

import hashlib
import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.models import BUNDLED, IN_REPOSITORY, Golden

from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.perplexity import perplexity
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import ArrayOf, GGMLType, ValueType
from hybrid.quant.ggml.writer import GGUFWriter
from hybrid.quant.policy import Options, SsmType

pytestmark = pytest.mark.slow  # takes ten seconds, which the inner loop can do without

INTEROP = Path(__file__).with_name("interop")
OUTTYPES = ("auto", "f32", "f16", "bf16", "q8_0")
ABSENT = object()
LONG = 64


def token_type(at: int, value: int) -> Callable[[list[int]], list[int]]:
    return lambda types: [*types[:at], value, *types[at + 1 :]]


# Deliberate differences: the values of llama.cpp's converter for keys that we write otherwise. A value, a function of
# our value, or ABSENT.
# - unknown_token_id: its loader takes 0 otherwise, which in Jamba is padding. That token has type UNKNOWN (2) in the
#   tokenizer's own file; there it becomes CONTROL (3) because special_tokens_map.json lists it.
# - eot_token_id: the token that ends a turn of the chat template; its loader guesses it from the text.
# - general.name: the weights' type does not belong in a model's name; general.file_type has it.
# - hybrid.*, dt_b_c_rms_epsilon: our keys, which its loader ignores.
# - Falcon-Mamba's 2023 tokens: rounded up to 2024 there, although the checkpoint's embedding has 2023 rows; its loader
#   refuses that file.
# - a unigram tokenizer.model: called "llama" (a BPE) there, which splits text differently; its loader calls it "t5".
# - add_eos_token: its tools abort on the checkpoint's `true`, and prompts continue.
MEANT: dict[str, dict[str, Any]] = {
    "jamba-11m": {
        "tokenizer.ggml.unknown_token_id": ABSENT,
        "tokenizer.ggml.eot_token_id": ABSENT,
        "tokenizer.ggml.token_type": token_type(3, 3),
    },
    "mamba-bf16": {"general.name": "Mamba Bf16", "hybrid.tokenizer.normalizer": ABSENT},
    "falcon-mamba": {
        "hybrid.tokenizer.normalizer": ABSENT,
        "mamba.ssm.dt_b_c_rms_epsilon": ABSENT,
        "tokenizer.ggml.tokens": lambda tokens: [*tokens, "[PAD2023]"],
        "tokenizer.ggml.token_type": lambda types: [*types, 5],
    },
    "llama-unigram-bin": {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.token_type": token_type(2, 3),
        "tokenizer.ggml.add_eos_token": True,
        "tokenizer.ggml.add_space_prefix": ABSENT,
        "tokenizer.ggml.remove_extra_whitespaces": ABSENT,
        "tokenizer.ggml.precompiled_charsmap": ABSENT,
        "tokenizer.ggml.unknown_token_id": ABSENT,
    },
}
MEANT["jamba-dense"] = MEANT["jamba-11m"]


def recorded(name: str) -> dict[str, Any]:
    return json.loads((INTEROP / f"{name}.json").read_text(encoding="utf-8"))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def shortened(value: Any, kind: ValueType) -> Any:
    """Shorten a value as interop/make.py does."""
    if isinstance(value, str):
        return value if len(value) <= LONG else {"n": len(value), "sha256": digest(value.encode())}
    if not isinstance(value, list):
        return value
    if kind is ValueType.STRING:
        return {"n": len(value), "sha256": digest("\0".join(value).encode())}
    runs = [[x, len(list(same))] for x, same in groupby(value)]
    if len(runs) <= LONG:
        return {"runs": runs}
    return {"n": len(value), "sha256": digest(np.array(value, "<f4" if kind is ValueType.FLOAT32 else "<i8").tobytes())}


def plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def as_llama_cpp(name: str, file: GGUFFile) -> dict[str, tuple[Any, ValueType | ArrayOf]]:
    """The file's pairs, with the deliberate differences undone."""
    metadata = {}
    for key, ours in file.metadata.items():
        theirs = MEANT[name].get(key, plain(ours))
        if theirs is ABSENT:
            continue
        value = theirs(plain(ours)) if callable(theirs) else theirs
        assert key not in MEANT[name] or value != plain(ours), f"{key} does not differ any more"
        metadata[key] = value, file.value_types[key]
    return metadata


@pytest.mark.parametrize("name", IN_REPOSITORY)
def test_keys_of_the_converter(name: str, converted: Callable[..., Path]) -> None:
    with GGUFFile.open(converted(name, "auto")) as file:
        keys = []
        for key, (value, kind) in as_llama_cpp(name, file).items():
            element = kind.element if isinstance(kind, ArrayOf) else kind
            shown = f"[{element.name}]" if isinstance(kind, ArrayOf) else element.name
            keys.append([key, shown, shortened(value, element)])
    assert keys == recorded(name)["keys"]


@pytest.mark.parametrize("outtype", OUTTYPES)
@pytest.mark.parametrize("name", IN_REPOSITORY)
def test_tensors_of_the_converter(name: str, outtype: str, converted: Callable[..., Path]) -> None:
    """Names, order, shapes, types and bytes. -exp(A_log) is computed in f64 here and thus rounded correctly; in f32
    there, so some values differ by one unit in the last place (`ulps`)."""
    rows = recorded(name)["tensors"]
    known = "bf16" if outtype == "auto" else outtype  # all checkpoints are bf16
    with GGUFFile.open(converted(name, outtype)) as file:
        assert list(file.tensors) == [row["name"] for row in rows]
        for row in rows:
            tensor = file.tensors[row["name"]]
            assert list(tensor.shape) == row["shape"], row["name"]
            data = file.raw(row["name"]).copy()
            if "ulps" in row:
                assert row["name"].endswith(".ssm_a")
                assert set(row["ulps"].values()) <= {-1, 1}
                bits = data.reshape(-1).view("<i4")
                bits[[int(i) for i in row["ulps"]]] += np.array(list(row["ulps"].values()), np.int32)
            assert f"{tensor.type.name} {digest(data.tobytes())}" == row.get("always", row.get(known)), row["name"]


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("name", IN_REPOSITORY)
def test_tensors_of_the_quantizer(
    name: str, kind: str, converted: Callable[..., Path], quantized: Callable[..., Path]
) -> None:
    """llama-quantize on the same f32 file; Q4_0 with the output matrix (the tied embedding) as Q8_0."""
    options = Options(SsmType.LIKE_LLAMA, output_type=GGMLType.Q8_0 if kind == "Q4_0" else None)
    with GGUFFile.open(quantized(name, kind, options=options)) as file, GGUFFile.open(converted(name)) as source:
        for row in recorded(name)["tensors"]:
            data = file.raw(row["name"]).tobytes()
            if kind.lower() in row:
                assert f"{file.tensors[row['name']].type.name} {digest(data)}" == row[kind.lower()], row["name"]
            else:
                assert data == source.raw(row["name"]).tobytes(), row["name"]


@pytest.mark.parametrize("name", ["jamba-dense", "mamba-bf16"])
def test_a_file_without_our_keys_runs(
    name: str, golden: Callable[[str], Golden], converted: Callable[..., Path], tmp_path: Path
) -> None:
    """The keys of llama.cpp's converter suffice to run the model."""
    path = tmp_path / "theirs.gguf"
    with GGUFFile.open(converted(name)) as file, GGUFWriter(path, None) as writer:
        for key, (value, kind) in as_llama_cpp(name, file).items():
            writer.add(key, value, kind)
        for tensor in file.tensors.values():
            writer.declare(tensor.name, tensor.shape, tensor.type)
        for tensor in file.tensors.values():
            writer.write(tensor.name, file.raw(tensor.name))
    reference = golden(name)
    with LoadedModel.load(path, n_ctx=128) as model:
        seq = model.sequence()
        assert model.tokenizer.encode(reference.prompts["short"]["text"]) == reference.ids("short")
        greedy = [int(seq.prefill(reference.ids("short")).argmax())]
        while len(greedy) < 8:
            greedy.append(int(seq.decode(greedy[-1]).argmax()))
    assert greedy == reference.greedy["short"]["ids"][:8]


def rows_of_perplexity() -> list[Any]:
    rows = json.loads((INTEROP / "perplexity.json").read_text(encoding="utf-8"))["rows"]
    return [pytest.param(row, id=f"{row['type']}-{row['n_ctx']}") for row in rows]


@pytest.mark.parametrize("row", rows_of_perplexity())
def test_perplexity_of_llama_cpp(
    row: dict[str, Any], prose: Path, converted: Callable[..., Path], quantized: Callable[..., Path]
) -> None:
    """Within 0.1 % for f32, 0.3 % quantized: llama.cpp rounds activations to 8 bits in its own blocks; we round in fast
    mode (checked with 256 tokens), and not at all in exact mode (with 512)."""
    text = prose.read_bytes()
    recorded_of = json.loads((INTEROP / "perplexity.json").read_text(encoding="utf-8"))["text_sha256"]
    assert hashlib.sha256(text).hexdigest() == recorded_of, "prose.txt changed: measure again, interop/README.md"
    path = converted(BUNDLED) if row["type"] == "F32" else quantized(BUNDLED, row["type"])
    n_ctx = row["n_ctx"]
    with LoadedModel.load(path, n_ctx=n_ctx, n_seq_max=4, precision="fast" if n_ctx == 256 else "exact") as model:
        result = perplexity(model, text.decode(), n_ctx=n_ctx)
    print(f"{row}: {result.ppl:.4f} +/- {result.stderr:.5f}, {result.ppl / row['ppl'] - 1:+.3%}")
    assert result.ppl == pytest.approx(row["ppl"], rel=1e-3 if row["type"] == "F32" else 3e-3)
    assert result.stderr == pytest.approx(row["stderr"], rel=1e-2)
