"""Every family computes the same with rotated weights."""

import json
from pathlib import Path

import numpy as np
import pytest
from random_checkpoints import CONFIGS, REPEATED, write

from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.quant import GGUFSource, quantize, set_value
from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.rotation import PREFIX
from hybrid.quant.ggml.types import FileType
from hybrid.quant.rotating import RotatedSource

# experts, latent attention, convolutions, delta rule, shared memory, an embedding that is also the output
QUICK = ("qwen35moe", "deepseek-v2", "lfm2moe", "granite-hybrid-biased", "gemma4", "nemotron-h-moe")
# rows of whole blocks are too rare in these: nothing is rotated
WITHOUT = ("deepseek4", "qwen4exp", "mamba-biased", "falcon-mamba-biased", "mamba2-biased", "jamba-biased",
           "glm5-next-streams", "hymba")  # fmt: skip
OTHERS = [name for name in CONFIGS if name not in (*QUICK, *WITHOUT, *REPEATED)]
TOKENIZER = Path(__file__).resolve().parents[1] / "data" / "checkpoints" / "mamba-bf16"
# f32 sums in another order: 1e-5 of the largest logit at most, 0.5 with a product that is not rotated
TOLERANCE = 5e-5


def test_rotated_tensors_that_no_product_reads(tmp_path: Path) -> None:
    path = tmp_path / "rotated.gguf"
    convert(write(CONFIGS["granite-hybrid-biased"], tmp_path / "m"), tmp_path / "m.gguf", tokenizer=TOKENIZER)
    with GGUFSource(tmp_path / "m.gguf") as source:
        quantize(RotatedSource(source), path, FileType.F32)
    with GGUFFile.open(path) as file:
        names = file.metadata[PREFIX + "weight_names"].tolist()
    set_value(path, PREFIX + "weight_names", json.dumps([*names, "blk.0.attn_norm.weight"]))
    with pytest.raises(UnsupportedError, match=r"attn_norm\.weight is rotated, but is no matrix of a product here"):
        LoadedModel.load(path, n_ctx=64)


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(n, marks=[pytest.mark.slow, pytest.mark.matrix]) for n in OTHERS)]
)
def test_logits(name: str, tmp_path: Path) -> None:
    plain, rotated = tmp_path / "plain.gguf", tmp_path / "rotated.gguf"
    convert(write(CONFIGS[name], tmp_path / "model"), plain, outtype="f32", tokenizer=TOKENIZER)
    with GGUFSource(plain) as source:
        quantize(RotatedSource(source), rotated, FileType.F32)
    logits = []
    for path in (plain, rotated):
        with LoadedModel.load(path, n_ctx=64, precision="exact", n_seq_max=2) as model:
            whole = model.sequence()
            logits.append(np.array(whole.prefill(list(range(3, 40)))))
            parts = model.sequence()
            for ids in ([*range(3, 20)], [20], [21, 22], [*range(23, 40)]):
                last = parts.prefill(ids)
            np.testing.assert_array_equal(last, logits[-1])
    np.testing.assert_allclose(logits[1], logits[0], atol=TOLERANCE * np.abs(logits[0]).max())
    assert not np.array_equal(*logits)
