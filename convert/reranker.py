"""Qwen3-Reranker: a causal model that is asked whether a document answers a query. The file holds the two rows of its
output matrix for "yes" and "no" as a head that scores texts, and the prompt, as llama.cpp's converter writes them.

Nothing in config.json distinguishes it from Qwen3: the title of its README does, or the name of its folder.
"""

from pathlib import Path

from hybrid.quant.ggml.errors import TokenizerError, shown

from .architectures import Family
from .architectures.qwen2 import ANSWERS, Qwen3, Qwen3Reranker
from .checkpoint import Checkpoint, Config
from .tokenizers.special import read_config

# The prompt of its model card, with the usual instruction.
TEMPLATE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
_NAME = "qwen3-reranker"
_MOST_BYTES = 1 << 20  # of a README


def is_reranker(checkpoint: Checkpoint) -> bool:
    """Whether the folder, its config or its README has the name."""
    names = (checkpoint.folder.resolve().name, str(checkpoint.config.get("_name_or_path") or ""))
    if any(_NAME in name.lower() for name in names):
        return True
    try:
        with (checkpoint.folder / "README.md").open("rb") as file:
            return b"# " + _NAME.encode() in file.read(_MOST_BYTES).lower()
    except OSError:
        return False


def as_reranker(
    checkpoint: Checkpoint, config: Config, family: type[Family], tokenizer: Path
) -> tuple[type[Family], Config]:
    """The family and config of a Qwen3-Reranker, with the tokens of its answers; others are returned unchanged.
    tokenizer: a folder."""
    if family is not Qwen3 or not is_reranker(checkpoint):
        return family, config
    content = read_config(tokenizer, "tokenizer.json").section("model").get("vocab")
    ids = [content.get(answer) if isinstance(content, dict) else None for answer in ANSWERS]
    if not all(type(token) is int for token in ids):
        raise TokenizerError(
            f"{shown(checkpoint.folder.name)}: its tokenizer.json has no tokens {' and '.join(map(repr, ANSWERS))}, "
            "which Qwen3-Reranker answers with. Download it again."
        )
    return Qwen3Reranker, Config({**config.data, "answer_tokens": ids}, config.where)
