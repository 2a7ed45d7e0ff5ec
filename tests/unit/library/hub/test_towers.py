"""Which file with a vision tower belongs to a model, by their names."""

import hub_listings
import pytest

from hybrid.hub import choice, towers
from hybrid.hub.names import Name
from hybrid.hub.repository import RepoFile


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("mmproj-F16.gguf", True),
        ("sub/mmproj-model-f16.gguf", True),
        ("SmolVLM2-500M-mmproj-f16.GGUF", True),
        ("llava.mmproj.Q8_0.gguf", True),
        ("mm_proj-x.gguf", True),
        ("mmproj-F16.bin", False),
        ("mmproj/model-F16.gguf", False),
        ("Qwen3.5-0.8B-Q4_K_M.gguf", False),
    ],
)
def test_names_of_towers(name: str, is_one: bool) -> None:
    assert towers.is_tower(name) is is_one


@pytest.mark.parametrize(
    ("model", "files", "expected"),
    [
        ("a-Q4_K_M.gguf", ["a-Q4_K_M.gguf", "a-Q8_0.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf"], "mmproj-F16.gguf"),
        ("a-Q4_K_M.gguf", ["a-Q4_K_M.gguf", "mmproj-Q8_0.gguf", "mmproj-BF16.gguf"], "mmproj-BF16.gguf"),
        ("a-Q4_K_M.gguf", ["mmproj-Q8_0.gguf", "mmproj-F32.gguf"], "mmproj-Q8_0.gguf"),
        ("a-Q4_K_M.gguf", ["mmproj-F32.gguf"], "mmproj-F32.gguf"),
        ("a-Q4_K_M.gguf", ["a-Q4_K_M.gguf"], None),
        # of the same name, whatever the types
        ("a-BF16.gguf", ["mmproj-a-BF16.gguf", "mmproj-a-F16.gguf"], "mmproj-a-F16.gguf"),
        ("a-BF16.gguf", ["mmproj-a-Q8_0.gguf", "mmproj-a-F16.gguf", "b.gguf"], "mmproj-a-F16.gguf"),
        ("x.gguf", ["mmproj-x.gguf", "mmproj-y.gguf", "y.gguf"], "mmproj-x.gguf"),
        # several models
        ("a-Q8_0.gguf", ["a-Q8_0.gguf", "b-Q8_0.gguf", "mmproj-F16.gguf"], None),
        ("a-Q8_0.gguf", ["a-Q8_0.gguf", "b-Q8_0.gguf", "a-mmproj-f16.gguf", "mmproj-b-F16.gguf"], "a-mmproj-f16.gguf"),
        ("a-Q8_0.gguf", ["a-Q8_0.gguf", "mmproj-b-F16.gguf"], None),
        # parts, and folders
        (
            "Q8_0/a-Q8_0-00001-of-00002.gguf",
            ["Q8_0/a-Q8_0-00001-of-00002.gguf", "Q8_0/a-Q8_0-00002-of-00002.gguf", "mmproj-model-f16.gguf"],
            "mmproj-model-f16.gguf",
        ),
        ("x/a-Q8_0.gguf", ["x/a-Q8_0.gguf", "mmproj-F16.gguf", "x/mmproj-F16.gguf"], "x/mmproj-F16.gguf"),
    ],
)
def test_the_tower_of_a_model(model: str, files: list[str], expected: str | None) -> None:
    assert towers.chosen(files, model, of_one_model=False) == expected
    assert towers.chosen(files[::-1], model, of_one_model=False) == expected


@pytest.mark.parametrize(
    ("model", "tower"),
    [
        ("google_gemma-3-4b-it-Q4_K_M.gguf", "mmproj-google_gemma-3-4b-it-f16.gguf"),
        ("gemma-3-4b-it-q4_0.gguf", "mmproj-model-f16-4B.gguf"),
        ("LFM2-VL-450M-Q4_0.gguf", "mmproj-LFM2-VL-450M-F16.gguf"),
        ("Qwen3-VL-2B-Thinking.i1-Q4_K_M.gguf", "Qwen3-VL-2B-Thinking.mmproj-f16.gguf"),
        ("moondream2-text-model-f16.gguf", "moondream2-mmproj-f16.gguf"),
        ("Qwen2.5-VL-3B-Instruct-UD-Q4_K_XL.gguf", "mmproj-F16.gguf"),
    ],
)
def test_names_of_several_makers(model: str, tower: str) -> None:
    worse = tower.replace("f16", "Q8_0").replace("F16", "Q8_0")
    files = sorted({model, worse, tower, "README.md", model.replace("Q4", "Q8")})
    assert towers.chosen(files, model, of_one_model=True) == tower
    assert [found.files[0].path for found in ggufs(files)] == sorted({model, model.replace("Q4", "Q8")})


def ggufs(names: list[str]) -> list[choice.GGUFChoice]:
    return choice.ggufs([RepoFile(name, 1, "0" * 64) for name in names])


def test_a_repository_has_one_model() -> None:
    files = ["a-Q8_0.gguf", "mmproj-other-name-F16.gguf"]
    assert towers.chosen(files, files[0], of_one_model=True) == files[1]
    assert towers.chosen(files, files[0], of_one_model=False) is None


@pytest.mark.parametrize(
    ("repository", "expected"),
    [
        ("unsloth/gemma-3-4b-it-GGUF", "mmproj-F16.gguf"),
        ("ggml-org/gemma-3-4b-it-GGUF", "mmproj-model-f16.gguf"),
        ("ggml-org/SmolVLM-500M-Instruct-GGUF", "mmproj-SmolVLM-500M-Instruct-f16.gguf"),
        ("bartowski/Llama-3.2-3B-Instruct-GGUF", None),
    ],
)
def test_published_repositories(repository: str, expected: str | None) -> None:
    names = hub_listings.names(hub_listings.LISTINGS[repository][0])
    model = choice.chosen(ggufs(names), Name(repository))
    assert model is not None
    assert towers.chosen(names, model.files[0].path, of_one_model=True) == expected
