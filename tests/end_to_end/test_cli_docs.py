"""The documentation agrees with the code."""

import importlib
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import generated_docs
import pytest

import hybrid
from hybrid.cli.commands.gguf import SUBCOMMANDS
from hybrid.cli.main import COMMANDS

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[2]
ALL_PAGES = [
    str(path.relative_to(ROOT))
    for folder in (ROOT, ROOT / "docs", ROOT / "benchmarks")
    for path in sorted(folder.glob("*.md"))
]
# the changelog is true of older commits; only its links are checked
PAGES = [page for page in ALL_PAGES if page != "CHANGELOG.md"]
# files of checkpoints, users and other programs, and a name that the tree forbids
NOT_OURS = {
    "config.json",
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "prompts.jsonl",
    "answers.jsonl",
    "text.txt",
    "utils.py",
}
_FILE = re.compile(r"[\w./-]*\w\.(?:py|md|toml|json|jsonl|svg|txt|npz)")
_FENCE = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(text: str) -> str:
    """`text` without its code blocks."""
    return _FENCE.sub("", text)


@pytest.mark.parametrize("name", generated_docs.FILES)
def test_generated_parts_are_current(name: str) -> None:
    assert generated_docs.renewed(read(name)) == read(name), f"{name} is behind the code: make docs"


def test_every_page_with_a_generated_part_is_renewed() -> None:
    assert {page for page in ALL_PAGES if "<!-- generated:" in read(page)} == set(generated_docs.FILES)


def test_generated_parts_may_be_indented() -> None:
    text = "- a claim:\n  <!-- generated: shapes -->\n  <!-- end -->\n"
    renewed = generated_docs.renewed(text)
    assert renewed == text.replace("  <!-- end", generated_docs.shapes() + "  <!-- end")
    assert generated_docs.renewed(renewed) == renewed


def headings(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    lines = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Every link leads to a file or folder of the repository, and to an existing heading."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(read(page))):
        if target.startswith(("https:", "http:")):
            continue
        name, _, heading = target.partition("#")
        place = ((ROOT / page).parent / name if name else ROOT / page).resolve()
        assert place.exists() and place.is_relative_to(ROOT), f"{page} links to {target}"
        assert not heading or heading in headings(place.read_text(encoding="utf-8")), f"{page}: no heading for {target}"


def paths_named(text: str) -> Iterator[str]:
    """Paths of this repository in backticks: they begin with one of its folders, or have one of its file types."""
    folders = "|".join(re.escape(path.name) for path in ROOT.iterdir() if path.is_dir() and path.name[:1] != ".")
    for word in re.findall(r"`([\w./-]+)`", prose(text)):
        if re.match(rf"(?:{folders})/", word) or (_FILE.fullmatch(word) and word not in NOT_OURS):
            yield word


def is_there(word: str, folder: Path) -> bool:
    """Whether the path exists. NAME stands for any name, as in `convert/architectures/NAME.py`."""
    if word.endswith("__pycache__"):
        word = word.rpartition("/")[0]
    pattern = word.rstrip("/").replace("NAME", "*")
    return any(True for base in (ROOT, folder) for _ in base.glob(pattern))


@pytest.mark.parametrize("page", PAGES)
def test_paths_that_are_named_exist(page: str) -> None:
    wrong = [word for word in paths_named(read(page)) if not is_there(word, (ROOT / page).parent)]
    assert wrong == [], f"{page} names files that are not there, or not by their whole path"


def test_paths_are_told_from_other_words() -> None:
    text = (
        "`infer/model.py`, `model.py`, `quant/ggml/formats/NAME.py`, `q8_0`, `a.save`, `infer/`, `config.json`, `a/b`"
    )
    assert list(paths_named(text)) == ["infer/model.py", "model.py", "quant/ggml/formats/NAME.py", "infer/"]
    assert is_there("quant/ggml/formats/NAME.py", ROOT) and is_there("tests/golden/", ROOT)
    assert not is_there("quant/ggml/formats/NAME.txt", ROOT) and not is_there("quant/nothing.py", ROOT)


def exists(name: str) -> bool:
    """Whether a dotted name is a module or an attribute of one."""
    package, _, last = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(package), last) or bool(importlib.import_module(name))
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_library_exist(page: str) -> None:
    """Other names that begin with `hybrid.` are keys of GGUF files."""
    surface = "|".join(hybrid.__all__)
    for name in re.findall(rf"`(hybrid\.(?:cli|convert|infer|quant|{surface})\b[\w.]*)", read(page)):
        assert exists(name), f"{page}: there is no {name}"


def test_names_are_looked_up() -> None:
    assert (
        exists("hybrid.load")
        and exists("hybrid.infer.LoadedModel")
        and exists("hybrid.quant.ggml")
        and exists("hybrid.infer")
    )
    assert not exists("hybrid.infer.Nothing") and not exists("hybrid.nothing.at.all")


def test_pages_that_the_code_names_exist() -> None:
    for stage in ("cli", "convert", "infer", "library", "quant"):
        for path in (ROOT / stage).rglob("*.py"):
            for page in re.findall(r"(?<!ggml )(?:docs/[\w-]+|\b[A-Z]{4,})\.md", path.read_text(encoding="utf-8")):
                assert (ROOT / page).exists(), f"{path.relative_to(ROOT)} names {page}"


def snippets(text: str) -> Iterator[str]:
    """The lines of code blocks, and texts in backticks."""
    text = re.sub(r"<!-- generated: (?:commands|usage) -->.*?<!-- end -->", "", text, flags=re.DOTALL)
    for block in _FENCE.finditer(text):
        lines = block[2].replace("\\\n", " ").splitlines()
        # only the typed lines of a transcript
        yield from (line for line in lines if block[1] != "shell-session" or line.startswith("$ "))
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(text)))


def commands_named(text: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Every `hybrid COMMAND ARGUMENTS` of a page, up to the end of the shell command."""
    for line in snippets(text):
        for rest in re.findall(rf"\bhybrid ((?:{'|'.join(COMMANDS)})\b.*?)(?=$|\bhybrid )", line):
            lexer = shlex.shlex(rest, posix=True, punctuation_chars="|&>;")
            lexer.whitespace_split = True
            try:
                words = list(itertools.takewhile(lambda word: word not in {"|", "&&", ">", ";"}, lexer))
            except ValueError:  # an apostrophe in a text
                words = rest.split()
            n = 2 if words[0] == "gguf" and len(words) > 1 and words[1] in SUBCOMMANDS else 1
            yield tuple(words[:n]), words[n:]


def options_of(arguments: list[str]) -> list[str]:
    return [word.partition("=")[0] for word in arguments if re.match(r"--?[a-zA-Z]", word)]


@pytest.mark.parametrize("page", PAGES)
def test_options_that_are_named_exist(page: str) -> None:
    """The command of every `hybrid COMMAND --option` has that option."""
    for command, arguments in commands_named(read(page)):
        known = set(re.findall(r"(?<![\w-])--?[\w-]+", generated_docs.help_text(*command)))
        for option in options_of(arguments):
            assert option in known, f"{page}: hybrid {' '.join(command)} has no {option}"


def test_options_are_found() -> None:
    """The test above finds options, also of subcommands and after quoted arguments."""
    named = {(command, o) for page in PAGES for command, rest in commands_named(read(page)) for o in options_of(rest)}
    assert len(named) > 60
    block = "hybrid run -n 3 --a=b 'c | --d' # --e\nhybrid cache|x -y && hybrid state -z\n"
    text = f"`hybrid gguf hash\nf --check x`\n```sh\n{block}```\n"
    assert [(" ".join(command), options_of(rest)) for command, rest in commands_named(text)] == [
        ("run", ["-n", "--a"]),
        ("cache", []),
        ("state", ["-z"]),
        ("gguf hash", ["--check"]),
    ]


@pytest.mark.parametrize("page", PAGES)
def test_targets_of_make_exist(page: str) -> None:
    known = re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE)
    for line in snippets(read(page)):
        if line.startswith("make "):
            for word in shlex.split(line, comments=True)[1:]:
                assert "=" in word or word in known, f"{page}: the Makefile has no {word}"


def test_the_readme_is_short() -> None:
    assert len(read("README.md").splitlines()) < 150


def test_every_page_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", read("docs/README.md")))
    assert linked == {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}


def test_claims_of_the_readme_are_figures_of_the_tables() -> None:
    """Figures that are not generated: the chat of twelve turns, and the quantizer's speed."""
    text = " ".join(read("README.md").split())
    cells = next(line for line in read("benchmarks/MEMORY.md").splitlines() if line.startswith("| **sum**")).split("|")
    prompt, least, processed, _, peer = (int(cell) for cell in cells[2:-1])
    assert f"{processed} of {prompt} prompt tokens are processed, {least} of which are new" in text
    assert f"llama-server processes {peer} (" in text
    rows = [line.split("|") for line in read("benchmarks/QUANTIZE_SPEED.md").splitlines() if line.startswith("| ")]
    rates = [float(row[4].strip(" *")) for row in rows if row[1].strip() != "type"]
    assert f"at {min(rates):.1f} to {max(rates):.1f} times its speed" in text


def test_every_family_has_a_name() -> None:
    """A docstring in convert/architectures begins with the family's name, for a generated table and sentence."""
    from hybrid.convert.architectures import FAMILIES

    files = generated_docs.family_files()
    assert {family for file in files for family in file.classes} == set(FAMILIES)
    assert [file.name.lower() for file in files] == sorted(file.name.lower() for file in files)
    jamba = next(file for file in files if file.name == "Jamba")
    assert jamba.papers == ("2403.19887",) and jamba.about.startswith("attention every few layers")
    mistral = next(file for file in files if "Mistral" in file.name)
    assert mistral.papers == ("2302.13971", "2310.06825", "2401.04088"), "classes may have papers of their own"
