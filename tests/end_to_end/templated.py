"""The bundled model with another model's chat template."""

import shutil
from pathlib import Path

from end_to_end.outcomes import Cli, ok
from fake_chat import thinking_template

TEMPLATES = Path(__file__).parents[1] / "data" / "chat" / "templates"


OWN = "own"  # thoughts, calls and results; messages end with the model's own EOS


def templated(cli: Cli, model: Path, name: str, folder: Path) -> Path:
    """A copy in `folder` with the template of that model, or the OWN one. Its tags are not tokens of this model."""
    path = folder / f"{name}.gguf"
    shutil.copyfile(model, path)
    source = thinking_template().source if name == OWN else (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    ok(cli("gguf", "set", path, "tokenizer.chat_template", source))
    return path
