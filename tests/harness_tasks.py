"""Tasks of lm-evaluation-harness over the bundled prose, in files as its users write them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import hellaswag_tasks
import yaml


def write_tasks(folder: Path, prose: Path, *, relative: bool = False) -> Path:
    """Write task files and their data; return the folder. relative: name data files relative to the folder, which
    `hybrid eval` understands.

    halves   multiple choice as HellaSwag has it, with examples from the last lines
    pages    texts for perplexity
    goes_on  generated answers
    reading  a group of the first two
    """
    folder.mkdir(exist_ok=True)
    docs = [dataclasses.asdict(task) for task in hellaswag_tasks.from_prose(prose, 40)]
    pages = [{"text": page} for page in prose.read_text().split("\n\n")[:6] if page.strip()]
    prompts = [{"question": doc["context"], "answer": doc["endings"][doc["gold"]]} for doc in docs[:6]]
    for name, rows in (("halves", docs[:12]), ("examples", docs[30:]), ("pages", pages), ("prompts", prompts)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def task(name: str, data: dict[str, str], **more: Any) -> None:
        files = {split: f"{file}.jsonl" if relative else str(folder / f"{file}.jsonl") for split, file in data.items()}
        text = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": files}, "test_split": "test"}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({**text, **more, "metadata": {"version": 1.0}}))

    mean = [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")]
    task(
        "halves",
        {"test": "halves", "train": "examples"},
        output_type="multiple_choice",
        fewshot_split="train",
        doc_to_text="{{context}}",
        doc_to_target="{{gold}}",
        doc_to_choice="{{endings}}",
        metric_list=mean,
    )
    task(
        "pages",
        {"test": "pages"},
        output_type="loglikelihood_rolling",
        doc_to_text="",
        doc_to_target="{{text}}",
        metric_list=[{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}],
    )
    task(
        "goes_on",
        {"test": "prompts"},
        output_type="generate_until",
        doc_to_text="{{question}}",
        doc_to_target="{{answer}}",
        metric_list=[{"metric": "exact_match"}],
        generation_kwargs={"until": [".", "\n\n"], "max_gen_toks": 12, "do_sample": False},
    )
    (folder / "reading.yaml").write_text(yaml.safe_dump({"group": "reading", "task": ["halves", "pages"]}))
    return folder
