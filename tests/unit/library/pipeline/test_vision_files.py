"""The tower of a model's file: beside the user's file, in the hub's cache, of a conversion."""

import json
from pathlib import Path

import pytest
import random_towers

from hybrid.pipeline import cached_models, models
from hybrid.pipeline.vision_files import vision_of
from hybrid.quant.ggml.progress import silent
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.reporting import Reporter


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_beside_the_user_s_file(tmp_path: Path) -> None:
    model = tmp_path / "m-Q4_K_M.gguf"
    assert vision_of(model) is None
    for name in ("m-Q4_K_M.gguf", "mmproj-m-Q8_0.gguf", "mmproj-m-F16.gguf", "mmproj-n-F16.gguf", "n-F16.gguf"):
        (tmp_path / name).touch()
    assert vision_of(model) == tmp_path / "mmproj-m-F16.gguf"
    assert vision_of(tmp_path / "n-F16.gguf") == tmp_path / "mmproj-n-F16.gguf"


def test_in_the_hub_s_cache(tmp_path: Path) -> None:
    """Within one commit, in any folder."""
    top = tmp_path / "hub" / "models--org--m" / "snapshots"
    for path in ("one/Q4/m-Q4_K_M.gguf", "one/mmproj-other-F16.gguf", "two/mmproj-F16.gguf"):
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).touch()
    assert vision_of(top / "one" / "Q4" / "m-Q4_K_M.gguf") == top / "one" / "mmproj-other-F16.gguf"


def test_a_folder_of_gguf_files(tmp_path: Path) -> None:
    for name in ("m-Q4_K_M.gguf", "mmproj-F16.gguf"):
        (tmp_path / name).touch()
    assert models.resolve(tmp_path) == tmp_path / "m-Q4_K_M.gguf"
    assert vision_of(models.resolve(tmp_path)) == tmp_path / "mmproj-F16.gguf"


def test_a_conversion_in_the_cache(tmp_path: Path, data_dir: Path) -> None:
    checkpoint = random_towers.write("smolvlm", tmp_path / "eyes", data_dir / "checkpoints" / "mamba-bf16")
    said: list[str] = []
    path = models.resolve(checkpoint, Reporter(said.append, silent))
    tower = vision_of(path)
    assert tower == path.with_name(f"mmproj-{path.name}")
    with GGUFFile.open(tower) as file:
        assert file.get("clip.projector_type") == "idefics3"
    assert len(said) == 1 and said[0].startswith(f"converting {checkpoint} once")
    (model,) = cached_models.every()
    assert model.nbytes == path.stat().st_size + tower.stat().st_size and model.made_of == str(checkpoint)
    config = checkpoint / "config.json"
    config.write_text(config.read_text() + " ")
    again = models.resolve(checkpoint)
    assert again != path and not path.exists() and not tower.exists(), "files of the old content stay"
    assert [model.path for model in cached_models.remove(lambda model: True)] == [again]
    assert not list(again.parent.iterdir())


def test_an_unsupported_tower_is_noted(tmp_path: Path, data_dir: Path) -> None:
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    checkpoint = random_towers.write("smolvlm", tmp_path / "eyes", tokenizer, vision={"hidden_act": "relu"})
    said: list[str] = []
    path = models.resolve(checkpoint, Reporter(said.append, silent))
    assert vision_of(path) is None and path.exists()
    assert said[1:2] == [
        'note: pictures cannot be read: config.json: vision_config: hidden_act = "relu" is not supported, only '
        '"gelu_pytorch_tanh" is.'
    ]


def test_a_changed_processor_makes_another_conversion(tmp_path: Path, data_dir: Path) -> None:
    checkpoint = random_towers.write("smolvlm", tmp_path / "eyes", data_dir / "checkpoints" / "mamba-bf16")
    first = models.resolve(checkpoint)
    settings = json.loads((checkpoint / "preprocessor_config.json").read_text())
    (checkpoint / "preprocessor_config.json").write_text(json.dumps({**settings, "size": {"longest_edge": 48}}))
    second = models.resolve(checkpoint)
    assert second != first
    tower = vision_of(second)
    assert tower is not None
    with GGUFFile.open(tower) as file:
        assert file.get("clip.vision.preproc_image_size") == 48
