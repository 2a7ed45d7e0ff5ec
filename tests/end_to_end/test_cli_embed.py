"""`hybrid embed` as typed: three output formats, encoders, models that generate, refused options."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
from end_to_end.outcomes import Cli

from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.embed import Embedder
from hybrid.quant.ggml.errors import UnsupportedError

pytestmark = pytest.mark.exhaustive

TEXT = "How do I read a file?\nopen the file\r\n\nKeys and values"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    source = random_checkpoints.write(random_checkpoints.ENCODERS["bert"], folder / "model")
    convert(source, folder / "bert.gguf", tokenizer=data_dir / "tokenizers" / "wordpiece")
    return folder / "bert.gguf"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_bytes(TEXT.encode())
    return path


def test_three_ways_to_write_vectors(encoder: Path, lines: Path, tmp_path: Path, cli: Cli) -> None:
    code, out, err = cli("embed", encoder, "-f", lines)
    assert code == 0
    assert "4 texts, " in err
    assert "vectors of 60 values, mean pooling" in err
    rows = np.array([[np.float32(word) for word in line.split(" ")] for line in out.splitlines()], np.float32)
    assert rows.shape == (4, 60)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
    code, out, _ = cli("embed", encoder, "-f", lines, "--json", "-t", 1)
    report = json.loads(out)
    assert {key: report[key] for key in ("pooling", "normalized", "n_embd")} == {
        "pooling": "mean",
        "normalized": True,
        "n_embd": 60,
    }
    assert [item["index"] for item in report["data"]] == [0, 1, 2, 3]
    assert report["data"][2]["n_tokens"] == 2  # [CLS] and [SEP]
    assert (np.array([item["embedding"] for item in report["data"]], np.float32) == rows).all()
    code, out, _ = cli("embed", encoder, "-f", lines, "--npy", "-o", tmp_path / "out.npy")
    assert (code, out) == (0, "")
    vectors = np.load(tmp_path / "out.npy")
    assert vectors.dtype == np.float32
    assert (vectors == rows).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines.txt", "out.npy"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_a_device_that_takes_nothing(encoder: Path, lines: Path, cli: Cli) -> None:
    code, _, err = cli("embed", encoder, "-f", lines, "-o", "/dev/full")
    assert code == 1
    assert "error: /dev/full cannot be written: No space left on device. Make room or write elsewhere." in err


def test_an_encoder_takes_no_adapters(encoder: Path) -> None:
    """They are refused; ignoring them would silently give the plain model's vectors."""
    with pytest.raises(UnsupportedError, match=r"^bert\.gguf: adapters are not applied to encoders\. Leave them out"):
        Embedder(encoder, lora=[("a.gguf", 1.0)])


def test_bytes_on_stdout(encoder: Path, lines: Path) -> None:
    command = [sys.executable, "-m", "hybrid.cli", "embed", str(encoder), "-f", "-", "--npy", "--no-normalize"]
    done = subprocess.run(command, input=lines.read_bytes(), capture_output=True, timeout=240, check=True)
    assert np.load(io.BytesIO(done.stdout)).shape == (4, 60)
    assert b"not normalized" in done.stderr


@pytest.mark.parametrize("pooling", ["last", "mean", "cls"])
def test_a_model_that_generates(pooling: str, files: dict[str, Path], lines: Path, tmp_path: Path, cli: Cli) -> None:
    """The vectors are the rows after the last norm, from which the logits are computed."""
    command = ["embed", files["bf16"], "-f", lines, "--npy", "--no-normalize", "--exact"]
    code, _, err = cli(*command, "-o", tmp_path / "a.npy", *([] if pooling == "last" else ["--pooling", pooling]))
    assert code == 0
    assert f"{pooling} pooling" in err
    vectors = np.load(tmp_path / "a.npy")
    with LoadedModel.load(files["bf16"], precision="exact") as model:
        output = model.gguf.f32("token_embd.weight")
        for text, vector in zip(TEXT.replace("\r", "").split("\n"), vectors, strict=True):
            seq = model.sequence()
            logits = seq.logits_of(model.tokenizer.encode(text)).astype(np.float64)
            seq.close()
            wanted = {"last": logits[-1], "cls": logits[0], "mean": logits.mean(0)}[pooling]
            error = np.abs(output @ vector.astype(np.float64) - wanted).max() / np.abs(wanted).max()
            assert error < 1e-5
    single = tmp_path / "single.txt"
    single.write_text("Keys and values")
    assert cli(*command, "-o", tmp_path / "b.npy", "--pooling", pooling, "-f", single)[0] == 0
    assert (np.load(tmp_path / "b.npy")[0] == vectors[3]).all()
    command[2:4] = ["-p", "Keys and values"]
    assert cli(*command, "-o", tmp_path / "c.npy", "--pooling", pooling)[0] == 0
    assert (tmp_path / "c.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_what_is_refused(encoder: Path, lines: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "long.txt").write_text("short\n" + "word " * 300)
    line = refused("embed", encoder, "-f", tmp_path / "long.txt", code=2)
    assert "text 2 is too large: it has" in line
    assert "the context has 160. Cut it up, or use --truncate." in line
    line = refused("embed", encoder, "-f", tmp_path / "long.txt", "-o", tmp_path / "out", code=2)
    assert "text 2" in line
    assert "Missing option '-f'" in refused("embed", encoder, code=2)
    assert "give one of them" in refused("embed", encoder, "-f", lines, "--json", "--npy", code=2)
    assert "-f and -p: give one of them" in refused("embed", encoder, "-f", lines, "-p", "x", code=2)
    assert "is a folder" in refused("embed", encoder, "-f", lines, "-o", tmp_path, code=2)
    assert "cannot be written" in refused("embed", encoder, "-f", lines, "-o", tmp_path / "no" / "x", code=1)
    assert "it makes embeddings only. Use `hybrid embed`." in refused("run", encoder, "-p", "x", code=1)


def test_lines_are_cut_when_asked(encoder: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "long.txt").write_text("short\n" + "word " * 300)
    code, out, _ = cli("embed", encoder, "-f", tmp_path / "long.txt", "--truncate", "--json")
    assert code == 0
    assert json.loads(out)["data"][1]["n_tokens"] == 160


def test_inspect_says_that_nothing_is_kept(encoder: Path, cli: Cli) -> None:
    code, out, _ = cli("inspect", encoder, "--json")
    assert code == 0
    facts = json.loads(out)
    assert (facts["is_encoder"], facts["kv_nbytes_per_token"]) == (True, 0)
    assert "none: an encoder reads texts as a whole and keeps nothing" in cli("inspect", encoder)[1]
    code, _, err = cli("inspect", encoder, "--fit")
    assert code == 2 and "keeps nothing of a text, so that it runs wherever its " in err


def test_shorter_vectors_and_prompts(
    lines: Path, tmp_path: Path, data_dir: Path, cli: Cli, refused: Callable[..., str]
) -> None:
    config = {**random_checkpoints.ENCODERS["bert"], "matryoshka_dimensions": [16]}
    source = random_checkpoints.write(config, tmp_path / "model")
    prompts = {"prompts": {"query": "Q: ", "document": "D: "}, "default_prompt_name": "document"}
    (source / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    path = tmp_path / "bert.gguf"
    convert(source, path, tokenizer=data_dir / "tokenizers" / "wordpiece")
    texts = TEXT.replace("\r", "").split("\n")
    with Embedder(path) as embedder:
        for more, prompt, n in (
            ((), "D: ", 60),
            (("--prompt-name", "query", "--dimensions", 16), "Q: ", 16),
            (("--prompt-name", "", "--dimensions", 9, "--no-normalize"), "", 9),
        ):
            code, _, err = cli("embed", path, "-f", lines, "--npy", "-o", tmp_path / "out.npy", *more)
            assert code == 0 and ("--dimensions: the model was trained for vectors of 16 values, not of 9" in err) == (
                n == 9
            )
            wanted = embedder.embed(
                [prompt + text for text in texts], prompt_name="", dimensions=n, normalize="--no-normalize" not in more
            )
            assert (np.load(tmp_path / "out.npy") == wanted).all()
    assert "no prompt x: its prompts are query, document" in refused(
        "embed", path, "-f", lines, "--prompt-name", "x", code=2
    )
    assert "61 dimensions: the vectors" in refused("embed", path, "-f", lines, "--dimensions", 61, code=2)
