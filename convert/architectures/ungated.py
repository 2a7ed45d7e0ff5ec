"""Parts that GPT-NeoX and Falcon share: layer norms with biases, GELU without a gate in either formula, and
feed-forward parts of two matrices."""

from collections.abc import Iterator, Mapping

from .family import Row, row

EXACT = "gelu"
GELUS = (EXACT, "gelu_new", "gelu_fast", "gelu_pytorch_tanh")  # names in transformers; all but the first by tanh


def gelu_notes(name: str) -> Iterator[str]:
    """The note that llama.cpp uses another formula."""
    if name == EXACT:
        yield "llama.cpp computes GELU by its tanh formula: its results differ by some thousandths"


def norm_rows(hf: str, blk: str, n: int, norms: Mapping[str, str]) -> Iterator[Row]:
    """Layer norms: the checkpoint's names, and GGUF's."""
    for source, target in norms.items():
        for part in ("weight", "bias"):
            yield row(f"{hf}{source}.{part}", f"{blk}{target}.{part}", n)


def up_and_down(hf: str, blk: str, n: int, n_ff: int, *, bias: bool = False) -> Iterator[Row]:
    """A feed-forward part without a gate."""
    for part, shape in (("up", (n_ff, n)), ("down", (n, n_ff))):
        yield row(f"{hf}{part}_proj.weight", f"{blk}ffn_{part}.weight", *shape)
        if bias:
            yield row(f"{hf}{part}_proj.bias", f"{blk}ffn_{part}.bias", shape[0])
