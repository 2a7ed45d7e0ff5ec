"""Which strings are names on a hub, and which can only be paths."""

from pathlib import Path

import pytest

from hybrid.hub.names import Name, parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAMES = {
    "org/name": Name("org/name"),
    "ibm-granite/granite-4.0-h-tiny": Name("ibm-granite/granite-4.0-h-tiny"),
    "org/name:Q8_0": Name("org/name", "Q8_0", explicit=True),
    "org/name:UD-Q4_K_XL": Name("org/name", "UD-Q4_K_XL", explicit=True),
    "org/name:sub/file-Q8_0.gguf": Name("org/name", file="sub/file-Q8_0.gguf", explicit=True),
    "org/name@refs/pr/3": Name("org/name", revision="refs/pr/3", explicit=True),
    f"org/name:Q8_0@{COMMIT}": Name("org/name", "Q8_0", revision=COMMIT, explicit=True),
    "org/name@v1:Q8_0": Name("org/name", "Q8_0", revision="v1", explicit=True),
    "hf.co/org/name": Name("org/name", explicit=True),
    "huggingface.co/org/name:Q8_0": Name("org/name", "Q8_0", explicit=True),
    "https://huggingface.co/org/name": Name("org/name", explicit=True),
    "https://huggingface.co/org/name/": Name("org/name", explicit=True),
    "https://huggingface.co/org/name/tree/main": Name("org/name", explicit=True),
    "https://huggingface.co/org/name/blob/v1/a/b.gguf": Name("org/name", file="a/b.gguf", revision="v1", explicit=True),
    "https://huggingface.co/org/name/resolve/main/b.gguf?download=true": Name("org/name", file="b.gguf", explicit=True),
    "org/model.v2": Name("org/model.v2"),
}
PATHS = [
    "name", "model.gguf", "dir/model.gguf", "dir/model.safetensors", "/org/name", "a/b/c", "../name", "~/name", "org/",
    "", ".", "org/..", "org/na me", "org/name:", "org/name@", "org/name:a:b", "org/name@a@b", "org/name@../../x",
    "org/name:../x.gguf", "org/name:/x.gguf", "org/name:a//b.gguf", "-org/name", "org/name-", "org/a--b", "org/a..b",
    "org/name:Q8_0/x", "org/name\n", "org/" + "n" * 100, "org/name@a\\b", "Ä/b", "http://example.com/org/name",
]  # fmt: skip


@pytest.mark.parametrize("text", NAMES)
def test_a_name(text: str) -> None:
    assert parse(text) == NAMES[text]
    assert parse(str(Path(text))) == NAMES[text], "as it comes from the command line"


@pytest.mark.parametrize("text", PATHS)
def test_a_path(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize("name", NAMES.values())
def test_what_is_shown_can_be_typed(name: Name) -> None:
    again = parse(str(name))
    assert again is not None and (again.repository, again.type, again.file, again.revision) == (
        name.repository,
        name.type,
        name.file,
        name.revision,
    )
