"""Which file of a published repository a name means."""

import time

import hub_listings
import pytest

from hybrid.hub import choice, type_tags
from hybrid.hub.names import Name
from hybrid.hub.repository import RepoFile
from hybrid.quant.ggml.errors import UsageError


def files(names: list[str]) -> list[RepoFile]:
    return [RepoFile(name, 1000 + i, f"{i:064x}") for i, name in enumerate(names)]


def models(repository: str) -> list[choice.GGUFChoice]:
    return choice.ggufs(files(hub_listings.names(hub_listings.LISTINGS[repository][0])))


@pytest.mark.parametrize("repository", hub_listings.LISTINGS)
def test_without_a_type(repository: str) -> None:
    _, expected, tag = hub_listings.LISTINGS[repository]
    found = models(repository)
    assert choice.nearest(found) == tag
    if not expected:
        with pytest.raises(UsageError, match="Name one"):
            choice.chosen(found, Name(repository))
        return
    chosen = choice.chosen(found, Name(repository))
    assert chosen is not None and [file.path for file in chosen.files] == expected


@pytest.mark.parametrize("repository", hub_listings.LISTINGS)
def test_every_model_has_a_type_and_can_be_chosen(repository: str) -> None:
    """By its tag, if no other model has it, and by each of its files."""
    found = models(repository)
    tags = [model.tag for model in found]
    for model in found:
        assert not any(word in model.files[0].path.lower() for word in ("mmproj", "imatrix"))
        if tags.count(model.tag) == 1 and model.tag:
            assert choice.chosen(found, Name(repository, model.tag.lower())) == model
        for file in model.files:
            assert choice.chosen(found, Name(repository, file=file.path)) == model
        assert model.tag or repository in ("ggml-org/models", "someone/one-file-GGUF")


@pytest.mark.parametrize(
    ("repository", "asked", "file"),
    [
        ("unsloth/Qwen3-30B-A3B-GGUF", "Q4_K_XL", "Qwen3-30B-A3B-UD-Q4_K_XL.gguf"),
        ("unsloth/Qwen3-30B-A3B-GGUF", "bf16", "BF16/Qwen3-30B-A3B-BF16-00001-of-00002.gguf"),
        ("unsloth/Qwen3-30B-A3B-GGUF", "Q4_K", "Qwen3-30B-A3B-Q4_K_M.gguf"),
        ("unsloth/DeepSeek-R1-GGUF", "ud-iq1_s", "DeepSeek-R1-UD-IQ1_S/DeepSeek-R1-UD-IQ1_S-00001-of-00003.gguf"),
        ("unsloth/DeepSeek-R1-GGUF", "BF16", "DeepSeek-R1-BF16/DeepSeek-R1.BF16-00001-of-00003.gguf"),
        ("mradermacher/Falcon-H1-1.5B-Instruct-i1-GGUF", "Q6_K", "Falcon-H1-1.5B-Instruct.i1-Q6_K.gguf"),
        ("microsoft/Phi-3-mini-4k-instruct-gguf", "F16", "Phi-3-mini-4k-instruct-fp16.gguf"),
        ("ggml-org/gpt-oss-20b-GGUF", "mxfp4", "gpt-oss-20b-mxfp4.gguf"),
        ("bartowski/Llama-3.2-3B-Instruct-GGUF", "Q4_0_4_4", "Llama-3.2-3B-Instruct-Q4_0_4_4.gguf"),
        ("bartowski/Llama-3.2-3B-Instruct-GGUF", "Q4_K_L", "Llama-3.2-3B-Instruct-Q4_K_L.gguf"),
    ],
)
def test_a_type_that_is_asked_for(repository: str, asked: str, file: str) -> None:
    chosen = choice.chosen(models(repository), Name(repository, asked))
    assert chosen is not None and chosen.files[0].path == file


@pytest.mark.parametrize("asked", ["Q7_K", "IQ1_S", "", "q4_k_m/../.."])
def test_a_type_that_is_not_there(asked: str) -> None:
    found = models("ibm-granite/granite-4.0-h-tiny-GGUF")
    assert (choice.chosen(found, Name("a/b", asked)) is None) == bool(asked)
    assert choice.chosen(found, Name("a/b", file="mmproj-F16.gguf")) is None
    assert choice.listed(found).startswith("Q2_K, Q3_K_S, Q3_K_M, Q3_K_L, Q4_0") and choice.listed(found).endswith(
        "F16"
    )


def test_a_model_without_one_of_its_parts_is_none() -> None:
    names = [f"m-Q8_0-0000{i}-of-00003.gguf" for i in (1, 3)]
    assert choice.ggufs(files(names)) == []
    assert len(choice.ggufs(files([*names, "m-Q8_0-00002-of-00003.gguf"]))) == 1
    many = [f"{i}-00001-of-99999.gguf" for i in range(20_000)]
    start = time.perf_counter()
    assert choice.ggufs(files(many)) == [] and time.perf_counter() - start < 60, "names that make it slow"


def test_the_nearest_of_two() -> None:
    def nearest(*tags: str) -> str:
        return choice.nearest(choice.ggufs(files([f"m-{tag}.gguf" for tag in tags])))

    assert nearest("Q8_0", "Q5_K_M", "Q3_K_M") == "Q5_K_M"
    assert nearest("Q4_0_4_4", "BF16") == "BF16", "a type that nobody can load is the nearest to none"
    assert nearest("UD-Q4_K_M", "Q4_K_M") == "Q4_K_M"
    assert nearest("Q4_K_S", "Q4_0") == "Q4_K_S"


def test_the_source_of_other_types() -> None:
    def best(*tags: str) -> str:
        return choice.most_bits(choice.ggufs(files([f"m-{tag}.gguf" for tag in tags])))

    assert best("Q8_0", "f16", "bf16", "Q4_0") == "BF16"
    assert best("F32", "Q8_0") == "Q8_0" and best("F32") == "F32" and best("Q4_0", "Q6_K") == "Q6_K"


def test_every_file_type_has_bits() -> None:
    from hybrid.quant.ggml.types import FileType

    assert set(type_tags.BITS) == set(FileType)
    assert all(type_tags.normal(kind.name.lower()) == kind.name for kind in FileType if kind.name != "Q6_K")
