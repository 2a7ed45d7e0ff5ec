"""python make.py LLAMA_CPP_BIN MODEL...: tasks made from the bundled prose, and llama-perplexity's scores for them."""

import json
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
PROSE = HERE.parents[2] / "library" / "bundled" / "prose.txt"
OPTIONS = ("-c", "512", "-t", "1", "-ctk", "f32", "-ctv", "f32", "-fa", "off")
BY_CHUNK = ("--ppl-output-type", "1")
N_DRAWN = 5


def sentences(least: int = 13) -> list[list[str]]:
    """Sentences as lists of words."""
    found = [s.split() for s in re.split(r"(?<=[.?])\s+", PROSE.read_text()) if not set('"_') & set(s)]
    return [words for words in found if len(words) >= least]


def winogrande(n: int = 48) -> str:
    """Tasks: a word of a sentence or one of another sentence. Sentences with commas are quoted, others are not."""
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


def questions(n: int = 40) -> list[tuple[str, list[str], int]]:
    """(beginning of a sentence, its end among others', index of its own): two to seven choices."""
    rng = np.random.default_rng(9)
    words = sentences()
    tasks = []
    for i in rng.permutation(len(words))[:n]:
        others = rng.choice([j for j in range(len(words)) if j != i], int(rng.integers(1, 7)), replace=False)
        answers = [" ".join(words[j][len(words[j]) // 2 :]) for j in others]
        gold = int(rng.integers(len(answers) + 1))
        answers.insert(gold, " ".join(words[i][len(words[i]) // 2 :]))
        tasks.append((" ".join(words[i][: len(words[i]) // 2]), answers, gold))
    return tasks


def text_bytes(text: str) -> bytes:
    """The length of the text in bytes, then the bytes."""
    return struct.pack("<I", len(text.encode())) + text.encode()


def answers_bytes(answers: list[str], labels: list[int]) -> bytes:
    """One of a task's two sets of answers."""
    return (
        struct.pack("<I", len(answers)) + b"".join(map(text_bytes, answers)) + struct.pack(f"<{len(labels)}i", *labels)
    )


def multiple_choice(tasks: list[tuple[str, list[str], int]]) -> bytes:
    """A file for llama-perplexity --multiple-choice; in every third task the set with several right answers is not
    empty."""
    parts = []
    for i, (question, answers, gold) in enumerate(tasks):
        several = answers_bytes(["yes", "no", "perhaps"], [1, 0, 1]) if i % 3 == 0 else answers_bytes([], [])
        single = answers_bytes(answers, [int(j == gold) for j in range(len(answers))])
        parts.append(text_bytes(question) + single + several)
    first = 4 + 4 * len(parts)
    offsets = [first + sum(map(len, parts[:i])) for i in range(len(parts))]
    return struct.pack(f"<{len(parts) + 1}I", len(parts), *offsets) + b"".join(parts)


def printed(command: list[Any]) -> str:
    """All output of llama-perplexity. It sometimes ends before printing its last lines: the longest of several runs."""
    words = list(map(str, command))
    runs = [subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True) for _ in range(8)]
    return max(((run.stdout + run.stderr).decode() for run in runs), key=len)


def table(text: str, columns: int) -> list[list[float]]:
    """The lines of numbers."""
    lines = [re.findall(r"-?\d+\.?\d*", line) for line in text.splitlines() if "\t" in line]
    return [[float(x) for x in line] for line in lines if len(line) == columns]


def main() -> None:
    program, models = Path(sys.argv[1]) / "llama-perplexity", list(map(Path, sys.argv[2:]))
    (HERE / "winogrande.csv").write_text(winogrande())
    (HERE / "multiple_choice.bin").write_bytes(multiple_choice(questions()))
    names = ("winogrande", "winogrande_drawn", "multiple_choice", "multiple_choice_drawn", "multiple_choice_final")
    names += ("stride", "chunks")
    expected: dict[str, Any] = {"options": " ".join(OPTIONS), **{name: {} for name in names}}
    with tempfile.TemporaryDirectory() as folder:
        csv = Path(folder) / "tasks.csv"
        csv.write_text((HERE / "winogrande.csv").read_text() + "\n")  # the last line is lost without an empty one
        for model in models:
            command = [program, "-m", model, "-f", csv, "--winogrande", *OPTIONS]
            expected["winogrande"][model.stem] = table(printed(command), 6)
            expected["winogrande_drawn"][model.stem] = table(printed([*command, "--winogrande-tasks", N_DRAWN]), 6)
            file = HERE / "multiple_choice.bin"
            command = [program, "-m", model, "-bf", file, "--multiple-choice", *OPTIONS, "-np", 8]
            text, drawn = printed(command), printed([*command, "--multiple-choice-tasks", N_DRAWN])
            expected["multiple_choice"][model.stem] = table(text, 2)
            expected["multiple_choice_drawn"][model.stem] = table(drawn, 2)
            expected["multiple_choice_final"][model.stem] = re.findall(r"(?:Final result|Random chance): .*", text)
            command = [program, "-m", model, "-f", PROSE, *OPTIONS, "-b", 512]
            strided = printed([*command, "--ppl-stride", 512])
            expected["stride"][model.stem] = [float(x) for x in re.findall(r"\[\d+\]([\d.]+),", strided)]
            by_chunk = re.findall(r"^ *\d+  ([\d.]+)  ([\d.]+)  ([\d.]+)$", printed([*command, *BY_CHUNK]), re.M)
            expected["chunks"][model.stem] = [list(map(float, row)) for row in by_chunk]
    text = json.dumps(expected, indent=1)
    text = re.sub(r"\[\s+([^\[\]]*?)\s+\]", lambda m: "[" + re.sub(r",\s+", ", ", m[1]) + "]", text)  # one line per row
    (HERE / "expected.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
