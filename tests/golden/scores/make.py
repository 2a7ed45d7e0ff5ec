"""python make.py LLAMA_CPP_BIN MODEL...: tasks of the bundled prose, and what llama-perplexity scores for them."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
PROSE = HERE.parents[2] / "cli" / "bundled" / "prose.txt"
OPTIONS = ("-c", "512", "-t", "1", "-ctk", "f32", "-ctv", "f32", "-fa", "off")
N_DRAWN = 5


def sentences(least: int = 13) -> list[list[str]]:
    """Their words."""
    found = [s.split() for s in re.split(r"(?<=[.?])\s+", PROSE.read_text()) if not set('"_') & set(s)]
    return [words for words in found if len(words) >= least]


def winogrande(n: int = 48) -> str:
    """A word of a sentence or one of another sentence. Sentences with commas stand in quotes, others do not."""
    rng = np.random.default_rng(5)
    words = sentences()
    lines = []
    while len(lines) < n:
        sentence, other = (words[j] for j in rng.choice(len(words), 2, replace=False))
        at = len(sentence) - 1 if len(lines) % 6 == 5 else int(rng.integers(2, len(sentence) - 5))
        right, wrong = (word.strip(",.;:?()") for word in (sentence[at], other[int(rng.integers(len(other)))]))
        if right == wrong or not wrong.isalpha() or not right.isalpha():
            continue
        gold = int(rng.integers(2))
        text = " ".join([*sentence[:at], sentence[at].replace(right, "_", 1), *sentence[at + 1 :]])
        choices = (wrong, right) if gold else (right, wrong)
        quoted = f'"{text}"' if "," in text else text
        lines.append(f"{len(lines)},{quoted},{choices[0]},{choices[1]},{gold + 1}")
    return "\n".join(lines) + "\n"


def table(command: list[Any], columns: int) -> list[list[float]]:
    """The lines of numbers that llama-perplexity prints."""
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    lines = [re.findall(r"-?\d+\.?\d*", line) for line in (done.stdout + done.stderr).splitlines() if "\t" in line]
    return [[float(x) for x in line] for line in lines if len(line) == columns]


def main() -> None:
    program, models = Path(sys.argv[1]) / "llama-perplexity", list(map(Path, sys.argv[2:]))
    (HERE / "winogrande.csv").write_text(winogrande())
    expected: dict[str, Any] = {"options": " ".join(OPTIONS), "winogrande": {}, "winogrande_drawn": {}}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tasks.csv"
        file.write_text((HERE / "winogrande.csv").read_text() + "\n")  # the last line is lost without an empty one
        for model in models:
            command = [program, "-m", model, "-f", file, "--winogrande", *OPTIONS]
            expected["winogrande"][model.stem] = table(command, 6)
            expected["winogrande_drawn"][model.stem] = table([*command, "--winogrande-tasks", N_DRAWN], 6)
    text = json.dumps(expected, indent=1)
    text = re.sub(r"\[\s+([^\[\]]*?)\s+\]", lambda m: "[" + re.sub(r",\s+", ", ", m[1]) + "]", text)  # a line a row
    (HERE / "expected.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
