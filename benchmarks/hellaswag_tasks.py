"""HellaSwag-like tasks made from prose, in two formats: six lines per task for `hybrid perplexity --hellaswag`, and for
lm-evaluation-harness a folder with a task file, its data, and its scoring, which is llama-perplexity's."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hybrid.infer.evaluate.hellaswag import HellaSwagTask
from hybrid.infer.text.tokenizer import Tokenizer

NAME = "hellaswag_prose"
LEAST_WORDS = 12  # of a sentence to be cut
TASK_FILE = f"""\
task: {NAME}
dataset_path: json
dataset_kwargs:
  data_files: {{test: {NAME}.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_target: "{{{{gold}}}}"
doc_to_choice: "{{{{endings}}}}"
target_delimiter: ""
process_results: !function mean_of_tokens.process_results
metric_list:
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
metadata: {{version: 1.0}}
"""
SCORING = '''\
def process_results(doc, results):
    """The ending with the highest mean log-probability of its tokens."""
    means = [ln_p / n for (ln_p, _), n in zip(results, doc["n_tokens"])]
    return {"acc_norm": float(means.index(max(means)) == doc["gold"])}
'''


def from_prose(prose: Path, n: int) -> list[HellaSwagTask]:
    """Sentences cut in the middle, each with its own second half among three others'."""
    rng = np.random.default_rng(8)
    words = [s.split() for s in re.split(r"(?<=[.?])\s+", prose.read_text(encoding="utf-8"))]
    words = [w for w in words if len(w) > LEAST_WORDS]
    tasks = []
    for i in rng.permutation(len(words))[:n]:
        half, others = len(words[i]) // 2, rng.permutation([j for j in range(len(words)) if j != i])[:3]
        endings = [" ".join(words[j][len(words[j]) // 2 :]) for j in others]
        gold = int(rng.integers(4))
        endings.insert(gold, " ".join(words[i][half:]))
        tasks.append(HellaSwagTask("Reading: " + " ".join(words[i][:half]), gold, tuple(endings)))
    return tasks


def as_lines(tasks: Sequence[HellaSwagTask]) -> str:
    """Text for `--hellaswag`."""
    return "".join(f"{task.context}\n{task.gold}\n" + "".join(f"{e}\n" for e in task.endings) for task in tasks)


def write_folder(folder: Path, tasks: Sequence[HellaSwagTask], tokenizer: Tokenizer) -> list[HellaSwagTask]:
    """Write a folder for `--tasks-dir`; return its tasks. An ending begins after the tokens that all four texts share,
    where the harness's contexts end. Tasks in which no text ends there are left out."""
    folder.mkdir(exist_ok=True)
    rows, used = [], []
    for task in tasks:
        texts = [f"{task.context} {ending}" for ending in task.endings]
        four = [tokenizer.encode(text) for text in texts]
        n = next(i for i in range(min(map(len, four)) - 1) if len({ids[i] for ids in four}) > 1)
        context = tokenizer.decode(four[0][:n], skip_special=True)
        if context != context.rstrip() or not all(text.startswith(context) for text in texts):
            continue
        if tokenizer.encode(context) != four[0][:n]:
            continue
        endings = [text[len(context) :] for text in texts]
        rows.append(
            {"context": context, "gold": task.gold, "endings": endings, "n_tokens": [len(ids) - n for ids in four]}
        )
        used.append(task)
    (folder / f"{NAME}.yaml").write_text(TASK_FILE)
    (folder / "mean_of_tokens.py").write_text(SCORING)
    (folder / f"{NAME}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return used
