"""Damaged, hostile and contradictory GGUF models through the commands: one line, an exit code, nothing left behind.

Kernels do not check their inputs, so everything they use has to be checked before.
"""

import random
from collections.abc import Callable
from pathlib import Path

import gguf_bytes as b
import numpy as np
import pytest
from damaged_models import CASES
from golden.scores import make
from tiny_models import FAMILIES, Tiny

from hybrid.cli.main import run
from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.continuations import Pair, score
from hybrid.quant.ggml.errors import FormatError, HybridError

pytestmark = pytest.mark.exhaustive

Refused = Callable[..., str]


@pytest.mark.parametrize("family", FAMILIES)
def test_undamaged_models_run(family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without this the other tests of this file would prove nothing."""
    model = FAMILIES[family]().write(tmp_path / "m.gguf")
    assert run(["run", str(model), "--raw", "-p", "abc de", "-n", "5", "--temp", "0"]) == 0
    assert len(capsys.readouterr().out.strip()) >= 3


@pytest.mark.parametrize("name", CASES)
def test_run_refuses(name: str, refused: Refused, tmp_path: Path) -> None:
    model = CASES[name]().write(tmp_path / "m.gguf")
    line = refused("run", model, "--raw", "-p", "abc de", "-n", "3", "--temp", "0", code=1)
    assert CASES[name].says in line
    assert len(line) < 500, "a value from the file was shown in full"


PERPLEXITY = [
    "jamba: expert_used_count 4",
    "jamba: NaN in Q8_0 scales",
    "jamba: NaN in the router",
    "llama: rope 16 of 8",
    "jamba: vocabulary longer than the embedding",
    "mamba: A huge",
]


@pytest.mark.parametrize("kl", [False, True])
def test_perplexity_refuses_an_overflow(kl: bool, refused: Refused, tmp_path: Path) -> None:
    """An overflow becomes zero in the next norm: every token has the same probability."""
    model = CASES["jamba: an overflow that a norm makes zero"]().write(tmp_path / "m.gguf")
    text = tmp_path / "text.txt"
    text.write_text("abc de fgh " * 20)
    more = ["--kl-divergence-base", tmp_path / "base"] if kl else []
    line = refused("perplexity", model, "-f", text, "-c", "16", *more, code=1)
    assert "m.gguf: its logits in chunk 1 are all zero" in line
    assert not (tmp_path / "base").exists()


TASKS = {
    "hellaswag": b"abc\n0\nde\nfgh\nabcd\nha\n",
    "winogrande": b"1,abc _ de fgh abc de fgh.,ab,de,1\n",
    "multiple-choice": make.multiple_choice([("abc", ["de", "fgh"], 0)]),
}
NOT_LOGITS = {
    "jamba: an overflow that a norm makes zero": "all zero",
    "jamba: NaN in the embedding": "not finite",
}


@pytest.mark.parametrize("name", NOT_LOGITS)
@pytest.mark.parametrize("kind", TASKS)
def test_tasks_refuse_an_overflow(kind: str, name: str, refused: Refused, tmp_path: Path) -> None:
    """With such weights all answers score equally, and the first would count as the best."""
    model, tasks = CASES[name]().write(tmp_path / "m.gguf"), tmp_path / "tasks"
    tasks.write_bytes(TASKS[kind])
    line = refused("perplexity", model, "-f", tasks, f"--{kind}", code=1)
    assert f"m.gguf: its logits in task 1 are {NOT_LOGITS[name]}" in line


@pytest.mark.parametrize("name", NOT_LOGITS)
def test_continuations_refuse_an_overflow(name: str, tmp_path: Path) -> None:
    """The interface for evaluation harnesses."""
    path = CASES[name]().write(tmp_path / "m.gguf")
    refusal = pytest.raises(FormatError, match=f"its logits in pair 1 are {NOT_LOGITS[name]}")
    with LoadedModel.load(path, n_ctx=16, n_seq_max=4) as model, refusal:
        score(model, [Pair([1, 5, 6], [7, 8])])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("jamba: an overflow that a norm makes zero", "the vector of a text is zero"),
        ("jamba: NaN in the embedding", "the vector of a text holds NaN or infinity"),
    ],
)
def test_embed_refuses(name: str, says: str, refused: Refused, tmp_path: Path) -> None:
    model = CASES[name]().write(tmp_path / "m.gguf")
    text = tmp_path / "text.txt"
    text.write_text("abc de fgh")
    assert says in refused("embed", model, "-f", text, code=1)


@pytest.mark.parametrize("name", PERPLEXITY)
@pytest.mark.parametrize("command", ["perplexity", "bench"])
def test_perplexity_and_bench_refuse(command: str, name: str, refused: Refused, tmp_path: Path) -> None:
    model = CASES[name]().write(tmp_path / "m.gguf")
    text = tmp_path / "text.txt"
    text.write_text("abc de fgh " * 20)
    if command == "perplexity":
        says = "are not finite" if "NaN" in name else CASES[name].says
        assert says in refused(command, model, "-f", text, "-c", "16", code=1)
    elif "NaN" not in name and "vocabulary" not in name:  # the speed does not depend on the weights
        assert CASES[name].says in refused(command, model, "-p", "4", "-n", "2", "-r", "1", code=1)


# --- the file's own structure -------------------------------------------------------------------------------------


def _overlapping(m: Tiny) -> None:
    m.tensors["output_norm.weight"].offset = 0


def _outside(m: Tiny) -> None:
    m.tensors["output_norm.weight"].offset = 1 << 40


def _unaligned(m: Tiny) -> None:
    m.tensors["output_norm.weight"].offset = 7


def _twice(m: Tiny) -> None:
    m.duplicates.append(("output_norm.weight", m.tensors["output_norm.weight"]))


def _too_large(m: Tiny) -> None:
    m.tensors["blk.1.ffn_up.weight"].shape = (1 << 31, 1 << 31)


def _overflowing(m: Tiny) -> None:
    m.tensors["blk.1.ffn_up.weight"].shape = (1 << 16, 1 << 16, 1 << 16, 1 << 16)


def _empty(m: Tiny) -> None:
    m.tensors["blk.1.ffn_up.weight"].shape = (0, 32)


def _type_of_nobody(m: Tiny) -> None:
    m.tensors["blk.1.ffn_up.weight"].number = 4


def _type_of_activations(m: Tiny) -> None:
    m.tensors["blk.1.ffn_up.weight"].number = 15


def _type_too_large(m: Tiny) -> None:
    m.tensors["blk.0.attn_norm.weight"].number = 8  # 32 f32 read as 34 bytes: the following bytes do not matter


STRUCTURE: dict[str, tuple[Callable[[Tiny], None], str]] = {
    "overlapping": (_overlapping, "overlap"),
    "outside": (_outside, "which is outside of the data"),
    "unaligned": (_unaligned, "not a multiple of 32"),
    "twice": (_twice, "output_norm.weight occurs twice"),
    "too large": (_too_large, "blk.1.ffn_up.weight"),
    "overflowing": (_overflowing, "has the impossible shape"),
    "empty": (_empty, "has the impossible shape 0x32"),
    "type of nobody": (_type_of_nobody, "has type 4, which ggml does not have"),
    "type of activations": (_type_of_activations, "is Q8_K, which is not a type for weights"),
}


@pytest.mark.parametrize("command", ["run", "quantize", "inspect"])
@pytest.mark.parametrize("name", STRUCTURE)
def test_structure(name: str, command: str, refused: Refused, tmp_path: Path) -> None:
    change, says = STRUCTURE[name]
    tiny = FAMILIES["jamba"]()
    change(tiny)
    model = tiny.write(tmp_path / "m.gguf")
    args = {"run": ["-p", "a"], "quantize": [tmp_path / "out.gguf", "Q8_0"], "inspect": []}[command]
    assert says in refused(command, model, *args, code=1)


def test_a_vector_of_another_type_is_only_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = FAMILIES["jamba"]()
    _type_too_large(tiny)
    assert run(["run", str(tiny.write(tmp_path / "m.gguf")), "-p", "ab", "-n", "2"]) in (0, 1)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "quantize", "inspect"])
def test_cut_off_anywhere(command: str, refused: Refused, tmp_path: Path) -> None:
    """Twenty offsets in the header, twenty in the data: incomplete files are refused."""
    whole = bytes(FAMILIES["jamba"]())
    header = whole.index(b"blk.1.ffn_down.weight")
    offsets = [*np.linspace(0, header, 20).astype(int), *np.linspace(header + 60, len(whole) - 200, 20).astype(int)]
    for size in offsets:
        model = tmp_path / "m.gguf"
        model.write_bytes(whole[:size])
        args = {"run": ["-p", "a"], "quantize": [tmp_path / "out.gguf", "Q8_0"], "inspect": []}[command]
        line = refused(command, model, *args, code=1)
        says = ("is cut off", "is damaged", "is empty", "is not a GGUF file")
        assert any(text in line for text in says), (size, line)


COUNTS = {
    "magic": (0, b"GGML", "is not a GGUF file"),
    "version 77": (4, (77).to_bytes(4, "little"), "is GGUF version 77"),
    "big endian": (4, (3).to_bytes(4, "big"), "big-endian"),
    "2^63 tensors": (8, (1 << 63).to_bytes(8, "little"), "tensors, which do not fit"),
    "2^62 pairs": (16, (1 << 62).to_bytes(8, "little"), "key-value pairs, which do not fit"),
    "no tensors": (8, bytes(8), "holds no tensors, only metadata"),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str, refused: Refused, tmp_path: Path) -> None:
    at, content, says = COUNTS[name]
    whole = bytearray(bytes(FAMILIES["jamba"]()))
    whole[at : at + len(content)] = content
    model = tmp_path / "m.gguf"
    model.write_bytes(whole)
    assert says in refused("run", model, "--raw", "-p", "a", code=1)


# --- inspect and quantize -----------------------------------------------------------------------------------------

HARMLESS_TO_INSPECT = {
    "tokens an integer": lambda m: m.set("tokenizer.ggml.tokens", 5),
    "tokens a string": lambda m: m.set("tokenizer.ggml.tokens", "abc"),
    "architecture an array": lambda m: m.set("general.architecture", ["a"]),
    "file type an array": lambda m: m.set("general.file_type", [1, 2], b.I32),
    "file type a string": lambda m: m.set("general.file_type", "Q8_0"),
    "block count negative": lambda m: m.set(".block_count", -4, b.I32),
    "block count 2^31": lambda m: m.set(".block_count", 2**31),
    "block count strings": lambda m: m.set(".block_count", ["a", "b"]),
    "block count NaN": lambda m: m.set(".block_count", [float("nan")] * 3, b.F32),
    "state size negative": lambda m: m.set(".ssm.state_size", -(2**62), b.I64),
    "layer of many digits": lambda m: m.tensors.update({"blk." + "9" * 5000 + ".x": m.tensors["output_norm.weight"]}),
    "layer of a billion": lambda m: m.tensors.update({"blk.1000000000.x": m.tensors["output_norm.weight"]}),
    "layer of odd digits": lambda m: m.tensors.update({"blk.\u0662.x": m.tensors["output_norm.weight"]}),
    "keys flat": lambda m: setattr(m.tensors["blk.0.attn_k.weight"], "shape", (512,)),
    "convolution flat": lambda m: setattr(m.tensors["blk.1.ssm_conv1d.weight"], "shape", (256,)),
    "name with escapes": lambda m: m.set("general.name", "a\x1b[31m\nb\u202e"),
    "key with escapes": lambda m: m.set("x\x1b[2J\n", 1),
    "tensor with escapes": lambda m: m.tensors.update({"x\x1b[2J\n": m.tensors["output_norm.weight"]}),
    "empty array": lambda m: m.key_values.update({"x": (b.ARR, b.array(b.STR, []))}),
}


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("name", HARMLESS_TO_INSPECT)
def test_inspect_shows_what_it_can(
    name: str, as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = FAMILIES["jamba"]()
    HARMLESS_TO_INSPECT[name](tiny)
    model = tiny.write(tmp_path / "m.gguf")
    code = run(["inspect", str(model), *(["--json"] if as_json else []), "--tensors"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert "\x1b" not in captured.out and captured.err == ""


def test_inspect_of_text_that_is_not_utf8(refused: Refused, tmp_path: Path) -> None:
    tiny = FAMILIES["jamba"]()
    tiny.key_values["general.name"] = (b.STR, b.string(b"\xff\xfe"))
    assert "general.name is not UTF-8" in refused("inspect", tiny.write(tmp_path / "m.gguf"), code=1)


QUANTIZE = {
    "NaN": (lambda m: m.tensors["blk.1.ffn_up.weight"].values.__setitem__((5, 6), np.nan), "blk.1.ffn_up.weight"),
    "infinity": (lambda m: m.tensors["blk.1.ffn_up.weight"].values.__setitem__((5, 6), -np.inf), "NaN or infinite"),
    "no architecture": (lambda m: m.drop("general.architecture"), "general.architecture"),
    "no tensors": (lambda m: m.tensors.clear(), "holds no tensors"),
    "too large for F16 scales": (lambda m: m.tensors["blk.1.ffn_up.weight"].values.fill(3e38), "too large for"),
    "name too long": (
        lambda m: m.tensors.update({"x" * 200: m.tensors["output_norm.weight"]}),
        "more than the 63 bytes",
    ),
    "layer of many digits": (
        lambda m: m.tensors.update({"blk." + "9" * 5000 + ".x": m.tensors["output_norm.weight"]}),
        "more than the 63 bytes",
    ),
    "split": (lambda m: m.set("split.count", 3, b.U16), "is one of 3 parts"),
}


@pytest.mark.parametrize("name", QUANTIZE)
def test_quantize_refuses(name: str, refused: Refused, tmp_path: Path) -> None:
    change, says = QUANTIZE[name]
    tiny = FAMILIES["jamba"]()
    change(tiny)
    model = tiny.write(tmp_path / "m.gguf")
    code = 2 if name in ("no tensors", "split") else 1
    assert says in refused("quantize", model, tmp_path / "out.gguf", "Q8_0", code=code)


# --- noise --------------------------------------------------------------------------------------------------------


def _noisy(whole: bytes, end: int, noise: random.Random) -> bytes:
    """`whole` with one, two or four changes before `end`: a bit, a byte, or an absurd length."""
    damaged = bytearray(whole)
    for _ in range(noise.choice((1, 1, 2, 4))):
        at = noise.randrange(end)
        kind = noise.randrange(4)
        if kind == 0:
            damaged[at] ^= 1 << noise.randrange(8)
        elif kind == 1:
            damaged[at] = noise.randrange(256)
        elif kind == 2:
            damaged[at] = noise.choice((0, 1, 0x7F, 0x80, 0xFF))
        else:
            damaged[at : at + 4] = noise.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x80"))
    return bytes(damaged)


@pytest.mark.parametrize("family", FAMILIES)
def test_noise_in_the_header(family: str, tmp_path: Path) -> None:
    """Either the model loads and decodes, or a HybridError says why not in one line."""
    noise = random.Random(f"header {family}")
    tiny = FAMILIES[family]()
    tiny.set("tokenizer.ggml.scores", [0.0])  # a full vocabulary would be most of the header; noise shall hit the rest
    tiny.set("tokenizer.ggml.tokens", ["a"])
    tiny.set("tokenizer.ggml.token_type", [1], b.I32)
    whole = bytes(tiny)
    header = whole.index(bytes(next(iter(tiny.tensors.values())).raw[:16]))
    ran = refused = 0
    model = tmp_path / "m.gguf"
    for i in range(150):
        damaged = _noisy(whole, header, noise)
        model.write_bytes(damaged)
        try:
            with LoadedModel.load(model, n_ctx=16, n_ubatch=16, n_threads=1) as loaded:
                seq = loaded.sequence()
                seq.prefill([1, 2, 3, 4, 5])
                logits = seq.decode(6)
                assert logits.shape == (loaded.n_vocab,)
                _ = (loaded.file_type, loaded.description, loaded.fingerprint)
            ran += 1
        except HybridError as error:
            assert str(error) and "\n" not in str(error), (i, error)
            refused += 1
    print(f"{family}: {ran} ran, {refused} refused")
    assert ran >= 3 and refused > 50


def test_noise_in_the_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noise = random.Random("tokenizer")
    whole = bytes(FAMILIES["mamba"]())
    start, end = whole.index(b"tokenizer.ggml.model"), whole.index(b"token_embd.weight")
    model = tmp_path / "m.gguf"
    codes = []
    for _ in range(100):
        model.write_bytes(whole[:start] + _noisy(whole[start:], end - start, noise))
        code = run(["run", str(model), "--raw", "-p", "abc de", "-n", "2", "--temp", "0", "-t", "1"])
        captured = capsys.readouterr()
        assert code in (0, 1), captured
        if code:
            assert captured.err.splitlines()[-1].startswith("error: ") and "Traceback" not in captured.err
        codes.append(code)
    assert 10 < sum(codes) < 90
