"""Commands on files with vision towers."""

import json
from pathlib import Path

import pytest
import random_towers
from end_to_end.outcomes import Cli

from hybrid.quant.ggml.reader import GGUFFile


@pytest.fixture
def folder(tmp_path: Path, data_dir: Path) -> Path:
    return random_towers.write("smolvlm", tmp_path / "eyes", data_dir / "checkpoints" / "mamba-bf16")


@pytest.fixture
def tower(cli: Cli, folder: Path, tmp_path: Path) -> Path:
    assert cli("convert", folder, "-o", tmp_path / "m.gguf", "--vision")[0] == 0
    return tmp_path / "mmproj-m.gguf"


def test_convert(cli: Cli, folder: Path, tmp_path: Path) -> None:
    code, out, _ = cli("convert", folder, "-o", tmp_path / "m.gguf", "--verify")
    assert code == 0
    assert f"{tmp_path / 'mmproj-m.gguf'}: SmolVLMForConditionalGeneration, F16, 38 tensors" in out
    assert f"{tmp_path / 'mmproj-m.gguf'} is what {folder} makes: 38 tensors compared" in out
    report = json.loads(cli("convert", folder, "-o", tmp_path / "n.gguf", "--json", "--outtype", "q8_0")[1])
    assert report["vision"]["output"] == str(tmp_path / "mmproj-n.gguf") and report["vision"]["file_type"] == "Q8_0"
    code, out, _ = cli("convert", folder, "-o", tmp_path / "k.gguf", "--dry-run")
    assert f"38 tensors, 28.7 KiB; would be written to {tmp_path / 'mmproj-k.gguf'}" in out
    assert code == 0 and not (tmp_path / "k.gguf").exists()
    assert cli("convert", folder, "-o", tmp_path / "k.gguf", "--no-vision")[0] == 0
    assert (tmp_path / "k.gguf").exists() and not (tmp_path / "mmproj-k.gguf").exists()


def test_a_tower_that_is_not_supported(cli: Cli, folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["hidden_act"] = "relu"
    (folder / "config.json").write_text(json.dumps(config))
    code, _, err = cli("convert", folder, "-o", tmp_path / "m.gguf")
    assert code == 1 and not list(tmp_path.glob("*.gguf"))
    assert 'hidden_act = "relu" is not supported, only "gelu_pytorch_tanh" is. --no-vision converts the text' in err
    assert cli("convert", folder, "-o", tmp_path / "m.gguf", "--no-vision")[0] == 0


def test_inspect(cli: Cli, tower: Path) -> None:
    code, out, _ = cli("inspect", tower)
    assert code == 0 and "projector idefics3 to width 18" in out and "memory per sequence" not in out
    assert "2000 x 1500      40" in out
    found = json.loads(cli("inspect", tower, "--json")[1])
    assert found["tower"]["n_layer"] == 2 and found["tower"]["pictures"][0]["tokens"] == 40
    code, _, err = cli("inspect", tower, "--memory")
    assert code == 2 and "mmproj-m.gguf is a vision tower: the memory of a conversation is its text model's" in err


def test_inspect_of_the_text_model(cli: Cli, tower: Path) -> None:
    model = tower.with_name("m.gguf")
    code, out, _ = cli("inspect", model)
    assert code == 0 and out.endswith(f"vision tower\n  {tower}\n")
    assert json.loads(cli("inspect", model, "--json")[1])["vision"] == str(tower)
    out = cli("inspect", model, "--memory", "--fit")[1]
    assert "\npictures take " in out and out.endswith(" are left for pictures.\n")
    found = json.loads(cli("inspect", model, "--memory", "--fit", "--json")[1])
    pictures = found["memory"]["pictures"]
    assert found["fit"]["pictures"] == pictures["total"] > pictures["tower"] > tower.stat().st_size // 2
    tower.write_bytes(tower.read_bytes().replace(b"clip.vision.patch_size", b"clip.vision.patch_sizf"))
    _, out, err = cli("inspect", model, "--memory")
    assert "in all" in out and "pictures take" not in out
    assert f"note: pictures are not counted: {tower} has no key clip.vision.patch_size" in err
    tower.unlink()
    assert "vision tower" not in cli("inspect", model)[1]


def test_inspect_of_a_damaged_tower(cli: Cli, tower: Path, tmp_path: Path) -> None:
    raw = tower.read_bytes()
    (tmp_path / "bad.gguf").write_bytes(raw.replace(b"clip.vision.patch_size", b"clip.vision.patch_sizf"))
    code, out, _ = cli("inspect", tmp_path / "bad.gguf")
    assert code == 0 and "bad.gguf has no key clip.vision.patch_size, which it needs" in out


def test_quantize(cli: Cli, tower: Path, tmp_path: Path) -> None:
    assert cli("quantize", tower, tmp_path / "q.gguf", "Q8_0")[0] == 0
    with GGUFFile.open(tmp_path / "q.gguf") as file:
        assert file.get("general.file_type") == 7
    code, _, err = cli("quantize", tower, tmp_path / "r.gguf", "Q4_K_M")
    assert code == 2 and "is a vision tower, whose matrices are F16 or Q8_0, not Q4_K_M" in err


def test_quantize_a_checkpoint(cli: Cli, folder: Path, tower: Path, tmp_path: Path) -> None:
    out, beside = tmp_path / "q.gguf", tmp_path / "mmproj-q.gguf"
    code, said, err = cli("quantize", folder, out, "Q4_0")
    assert code == 0 and "left out" not in err, "the tower is elsewhere"
    assert f"{beside}: SmolVLMForConditionalGeneration, F16, 38 tensors" in said
    assert beside.read_bytes() == tower.read_bytes(), "as convert writes it"
    report = json.loads(cli("quantize", folder, out, "Q8_0", "--json")[1])
    assert report["vision"]["output"] == str(beside) and report["vision"]["file_type"] == "Q8_0"
    with GGUFFile.open(beside) as file:
        assert file.get("general.file_type") == 7
    code, said, _ = cli("quantize", folder, "Q8_0", "--dry-run")
    assert code == 0 and said.endswith("vision tower: Q8_0, 38 tensors, 28.7 KiB\n")
    beside.unlink()
    code, said, err = cli("quantize", folder, out, "Q4_0", "--no-vision")
    assert code == 0 and not beside.exists() and "mmproj" not in said and "left out: no part of the language" in err


def test_a_checkpoint_that_cannot_be_quantized(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """Both files appear, or none."""
    code, _, err = cli("quantize", folder, tmp_path / "q.gguf", "Q8_0", "--tensor-type", "ffn_nothing=Q4_0")
    assert code == 2 and "ffn_nothing" in err and not list(tmp_path.glob("*.gguf*"))
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["hidden_act"] = "relu"
    (folder / "config.json").write_text(json.dumps(config))
    code, _, err = cli("quantize", folder, tmp_path / "q.gguf", "Q8_0")
    assert code == 1 and "--no-vision converts the text model alone" in err and not list(tmp_path.glob("*.gguf*"))
    assert cli("quantize", folder, tmp_path / "q.gguf", "Q8_0", "--no-vision")[0] == 0


@pytest.mark.parametrize(
    "command",
    [
        ["run", "{}", "-p", "x"], ["perplexity", "{}", "{text}"], ["bench", "{}"], ["embed", "{}", "-p", "x"],
        ["imatrix", "{}", "{text}", "-o", "{out}"],
    ],
)  # fmt: skip
def test_a_tower_is_no_text_model(command: list[str], cli: Cli, tower: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some words " * 500)
    names = {"{}": str(tower), "{text}": str(text), "{out}": str(tmp_path / "i.gguf")}
    code, _, err = cli(*(names.get(word, word) for word in command))
    assert code == 1
    assert err.strip().endswith("mmproj-m.gguf is a vision tower, not a model. Give the file of its text model.")
