"""Random checkpoints of Qwen3-Reranker."""

import json
from pathlib import Path

import random_checkpoints

ANSWERS = (1989, 956)  # tokens of "yes" and "no"


def qwen3_reranker(folder: Path, data_dir: Path, **changes: object) -> Path:
    """A folder named like the model, with a tokenizer that has its tokens."""
    config = {**random_checkpoints.CONFIGS["qwen3"], **changes}
    source = random_checkpoints.write(config, folder / "Qwen3-Reranker-0.6B")
    tokenizer = json.loads((data_dir / "tokenizers" / "bpe_qwen.json").read_text())
    assert tokenizer["model"]["vocab"]["no"] == ANSWERS[1]
    # in place of the last word
    (last,) = (text for text, token in tokenizer["model"]["vocab"].items() if token == ANSWERS[0])
    tokenizer["model"]["vocab"] = {text: i for text, i in tokenizer["model"]["vocab"].items() if text != last}
    tokenizer["model"]["vocab"]["yes"] = ANSWERS[0]
    merged = tokenizer["model"]["merges"].pop()
    assert "".join(merged).replace(" ", "") == last
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    return source
