"""A text file that begins with U+FEFF, as some editors write it, gives the same answers as one without."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from end_to_end.outcomes import Cli, ok
from reference.plamo2_vocabulary import write as write_plamo2
from reference.tokenizer_files import world_file, world_vocabulary

from hybrid.cli.options.server_options import read_keys
from hybrid.convert.checkpoint import Config
from hybrid.convert.model_card import read_model_card
from hybrid.convert.tokenizers.plamo2 import FILE, read_plamo2
from hybrid.convert.tokenizers.rwkv import read_world
from hybrid.convert.tokenizers.special import chat_templates
from hybrid.convert.tokenizers.wordpiece import read_vocab_txt
from hybrid.quant.hashing import read_manifest

pytestmark = pytest.mark.exhaustive

MARK = b"\xef\xbb\xbf"
NONE = Config({}, "config.json")


def marked(path: Path) -> Path:
    """A copy that begins with the byte order mark, in a folder of its own."""
    other = path.parent / "marked" / path.name
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(MARK + path.read_bytes())
    return other


@pytest.mark.parametrize(
    ("name", "content", "args"),
    [
        ("prompt.txt", "State-space models", ["run", "-n", 8, "--temp", 0]),
        ("prompts.jsonl", '{"prompt": "State-space"}\n"models"\n', ["run", "-n", 4, "--temp", 0]),
        ("text.txt", "State-space models carry a state. " * 20, ["perplexity", "-c", 64, "--json"]),
        ("lines.txt", "one line\nanother\n", ["embed", "--json"]),
    ],
)
def test_commands(cli: Cli, files: dict[str, Path], tmp_path: Path, name: str, content: str, args: list[Any]) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    plain, same = (_answer(ok(cli(args[0], files["q8_0"], "-f", file, *args[1:]))) for file in (path, marked(path)))
    assert plain == same and plain


def _answer(out: str) -> str:
    """The output without the line of times."""
    return "\n".join(line for line in out.splitlines() if '"seconds":' not in line)


def test_a_file_of_nothing_but_the_mark(refused: Callable[..., str], files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.write_bytes(MARK)
    assert "empty.txt is empty" in refused("perplexity", files["q8_0"], "-f", path, code=2)


def _template(path: Path) -> object:
    return chat_templates(path.parent, NONE)


def _card(path: Path) -> object:
    return read_model_card(path.parent, [])


READERS: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "keys": ("keys", "secret\n", read_keys),
    "hashes": ("list", "sha1 12 m.gguf:a\n", read_manifest),
    "chat template": ("chat_template.jinja", "{{ messages }}", _template),
    "README": ("README.md", "---\nlicense: mit\n---\n", _card),
    "vocab.txt": ("vocab.txt", "[UNK]\nword\n", lambda path: read_vocab_txt(path).tokens),
    "RWKV": ("rwkv_vocab_v1.txt", world_file(world_vocabulary()), lambda path: read_world(path, NONE, 600).tokens),
    "config.json": ("config.json", '{"a": 1}', lambda path: Config.read(path).data),
}


@pytest.mark.parametrize("name", READERS)
def test_readers(tmp_path: Path, name: str) -> None:
    file, content, read = READERS[name]
    path = tmp_path / file
    path.write_text(content, encoding="utf-8")
    path.chmod(0o600)
    assert read(path) and read(marked(path)) == read(path)


def test_plamo2(tmp_path: Path) -> None:
    path = write_plamo2(tmp_path) / FILE
    assert read_plamo2(marked(path)).tokens == read_plamo2(path).tokens
