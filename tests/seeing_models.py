"""Models with random weights that see: a text model of Qwen3.5's kind, and its tower in mmproj-NAME beside it."""

import io
import json
from pathlib import Path

import numpy as np
import random_towers
from made_models import made, sources
from PIL import Image

from hybrid.convert import convert

TOKENS = ("<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def checkpoint(folder: Path, data: Path, name: str = "qwen35-vl") -> Path:
    """The checkpoint. data: tests/data."""
    random_towers.write(name, folder, data / "checkpoints" / "mamba-bf16")
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    added = [token for token in tokenizer["added_tokens"] if not token["content"].strip()]
    for token, content in zip(added, TOKENS, strict=False):  # instead of long runs of spaces
        token.update(content=content, special=True, normalized=False)
    file.write_text(json.dumps(tokenizer))
    for other in ("tokenizer_config.json", "special_tokens_map.json"):  # they have the spaces too
        (folder / other).write_text("{}")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def seeing_model(data: Path, name: str = "qwen35-vl") -> Path:
    """The text model. data: tests/data."""

    def make(path: Path) -> None:
        convert(checkpoint(path.parent / "checkpoint", data, name), path, outtype="f32")

    tests = ("tests/random_towers.py", "tests/random_checkpoints.py", "tests/seeing_models.py")
    return made(f"seeing-{name}.gguf", sources("convert", "quant", *tests) + name, make)


def tower_of(model: Path) -> Path:
    return model.with_name(f"mmproj-{model.name}")


def pixels(seed: int, height: int = 40, width: int = 50) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def png(rgb: np.ndarray, kind: str = "PNG") -> bytes:
    """The file of a picture."""
    out = io.BytesIO()
    Image.fromarray(rgb).save(out, kind)
    return out.getvalue()
