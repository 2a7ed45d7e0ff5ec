"""Golden results of transformers for encoders with random weights, whose checkpoints tests/random_checkpoints.py makes.

    pip install torch==2.14.1 transformers==5.24.0      (in an environment with this package)
    python tests/golden/encoders/make.py [NAME...]

writes NAME.npz, computed in float64: `ids` and `lengths` of some texts, `seconds` (where the second text of a pair
begins), and `scores` f32 [text, label], or `rows` f32 [tok, every 4th value] after the last layer.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1]))
EVERY = 4
LENGTHS, SECONDS = (1, 24, 40), (1, 9, 22)
MODEL_TYPES = {
    "Bert": "bert",
    "Roberta": "roberta",
    "XLMRoberta": "xlm-roberta",
    "ModernBert": "modernbert",
    "Gemma3Text": "gemma3_text",
    "Lfm2Bidirectional": "lfm2",
}
PREFIXES = {"bert": "bert.", "roberta": "roberta.", "xlm-roberta": "roberta.", "modernbert": "model."}
HEADS = ("classifier.", "head.")


def named(tensors: dict[str, np.ndarray], config: dict[str, Any], kind: str) -> dict[str, np.ndarray]:
    """Tensors with transformers' names and shapes."""
    places = "embeddings.position_embeddings.weight"
    if kind.endswith("roberta"):  # rows that no token has
        tensors = {**tensors, places: np.pad(tensors[places], ((config["pad_token_id"] + 1, 0), (0, 0)))}
    if not config["architectures"][0].endswith("ForSequenceClassification"):
        return tensors
    return {name if name.startswith(HEADS) else PREFIXES[kind] + name: x for name, x in tensors.items()}


def see_both_sides() -> None:
    """Turn transformers' LFM2 into the encoder of LiquidAI's repositories, which transformers lacks: convolutions with
    as many taps before a token as after it."""
    import torch
    from transformers.models.lfm2 import modeling_lfm2

    def centered(x: Any, weight: Any, bias: Any, **_: Any) -> Any:
        half = weight.shape[1] // 2
        return torch.nn.functional.conv1d(x, weight[:, None], bias, padding=half, groups=len(weight))

    modeling_lfm2.causal_conv1d_fn = centered


def computed(config: dict[str, Any], tensors: dict[str, np.ndarray], texts: list[list[int]]) -> dict[str, np.ndarray]:
    import torch
    import transformers
    from safetensors.numpy import save_file

    name = config["architectures"][0]
    scores = name.endswith("ForSequenceClassification")
    kind = MODEL_TYPES[name.removesuffix("ForSequenceClassification").removesuffix("Model")]
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps({"model_type": kind, **config}))
        plain = {name: np.ascontiguousarray(x) for name, x in named(tensors, config, kind).items()}
        save_file(plain, Path(folder, "model.safetensors"), metadata={"format": "pt"})
        of_class = transformers.AutoModelForSequenceClassification if scores else transformers.AutoModel
        model, report = of_class.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True
        )
    left = {key: names for key, names in report.items() if [x for x in names if "pooler." not in str(x) or scores]}
    if left:
        raise SystemExit(f"{name}: {left}")
    if kind == "lfm2":
        see_both_sides()
    found = []
    for ids, second in zip(texts, SECONDS, strict=True):
        types = torch.tensor([[0] * second + [1] * (len(ids) - second)])
        more = {"token_type_ids": types} if config.get("type_vocab_size", 1) > 1 else {}
        if kind == "lfm2":  # a mask that hides nothing, in place of the causal one
            everything = torch.zeros(1, 1, len(ids), len(ids), dtype=torch.float64)
            more = {"attention_mask": {"full_attention": everything, "conv": None}, "use_cache": False}
        with torch.no_grad():
            out = model.eval()(torch.tensor([ids]), **more)
        found.append(out.logits.numpy() if scores else out.last_hidden_state[0, :, ::EVERY].numpy())
    return {"scores" if scores else "rows": np.concatenate(found).astype(np.float32)}


def main() -> None:
    import random_checkpoints

    for name in sys.argv[1:] or random_checkpoints.ENCODERS:
        config = random_checkpoints.complete(random_checkpoints.ENCODERS[name])
        rng = np.random.default_rng(7)
        # 3 and up: ids of padding are left out of positions in RoBERTa
        texts = [rng.integers(3, config["vocab_size"], n).tolist() for n in LENGTHS]
        values = computed(config, random_checkpoints.tensors(config), texts)
        ids, lengths = np.concatenate(texts).astype(np.int32), np.asarray(LENGTHS, np.int32)
        np.savez_compressed(
            HERE / f"{name}.npz", ids=ids, lengths=lengths, seconds=np.asarray(SECONDS, np.int32), **values
        )
        print(name, {key: (x.shape, float(np.abs(x).max())) for key, x in values.items()})


if __name__ == "__main__":
    main()
