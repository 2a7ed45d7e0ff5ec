"""Promises of every family, in every weight type and both precisions, bit for bit: a token's logits depend on the
tokens before it, not on their division into calls, on other sequences, on the number of threads, or on a save in
between."""

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from random_checkpoints import CONFIGS, REPEATED
from reference.families import MODELS as TWINS
from reference.plain import plain

from hybrid.infer import LoadedModel, Work
from hybrid.infer.bench.shapes import ModelShape
from hybrid.quant.ggml.errors import HybridError
from hybrid.quant.ggml.types import FileType

pytestmark = pytest.mark.every_case
SHAPES = {
    "jamba": ModelShape(
        "odd-jamba", "jamba", 5, 96, 320, 512, 1e-6, n_ff=160, n_head=3, n_head_kv=1, head_dim=32, attn_offset=1,
        attn_period=3, d_state=7, d_conv=3, dt_rank=5, n_expert=5, n_expert_used=2, expert_offset=1, expert_period=2,
    ),
    "mamba": ModelShape("odd-mamba", "mamba", 3, 64, 320, 512, 1e-5, d_state=16, dt_rank=4),
    "falcon-mamba": ModelShape("odd-falcon", "mamba", 2, 96, 320, 512, 1e-5, d_state=5, dt_rank=6, dt_b_c_rms=True),
    "mamba2": ModelShape("odd-mamba2", "mamba2", 3, 80, 320, 512, 1e-5, d_state=19, d_conv=3, n_ssm_head=4, n_group=2),
    "granite": ModelShape(
        "odd-granite", "granitehybrid", 3, 96, 320, 512, 1e-5, n_ff=32, n_head=3, n_head_kv=1, head_dim=32,
        n_ssm_head=6, d_state=7, attn_offset=1, attn_period=3, n_expert=5, n_expert_used=2, n_ff_shared=64,
        rope_base=10000.0,
    ),
    "llama": ModelShape(
        "odd-llama", "llama", 3, 96, 320, 512, 1e-5, tied=False, n_ff=224, n_head=6, n_head_kv=2, head_dim=16,
        rope_base=10000.0,
    ),
}  # fmt: skip
RANDOM = [name for name in CONFIGS if name not in REPEATED]
# plain transformers: their layers are those of Llama
PLAIN = [n for n in CONFIGS if getattr(TWINS[CONFIGS[n]["architectures"][0]], "func", None) is plain]
MODELS: dict[str, ModelShape | str] = {**SHAPES, **{name: name for name in RANDOM}}
TYPES = {t.name: t for t in (FileType.F32, FileType.F16, FileType.BF16, FileType.Q8_0, FileType.Q4_0)}
QUICK = {
    ("jamba", "Q8_0"), ("mamba", "Q4_0"), ("granite", "F16"), ("llama", "BF16"), ("falcon-h1", "F32"),
    ("nemotron-h-moe", "Q8_0"), ("lfm2", "Q4_0"), ("lfm2moe", "BF16"),
    ("qwen3next", "F32"), ("qwen35", "Q8_0"), ("qwen35moe", "Q4_0"), ("recurrentgemma", "Q8_0"),
    ("rwkv4", "Q8_0"), ("rwkv5", "F32"), ("rwkv6", "Q8_0"), ("rwkv7", "F32"), ("rwkv7b", "Q8_0"),
    ("rwkv6qwen2", "F32"), ("arwkv7", "Q8_0"), ("longcat-flash-ngram", "Q8_0"),
    ("zamba", "Q8_0"), ("zamba2", "Q4_0"), ("kimi-linear", "Q8_0"), ("olmo-hybrid", "F32"), ("xlstm", "Q8_0"),
    ("zaya", "Q8_0"), ("minimax-scaled", "Q4_0"), ("plamo2", "Q8_0"), ("phi4flash", "Q8_0"),
    ("bailing-hybrid", "F32"), ("deepseek-v2", "Q8_0"),
    ("lfm3", "Q8_0"),
    ("gemma4", "Q4_0"),
    ("gpt-oss-rounded", "Q8_0"), ("ministral3", "F32"),
    ("glm5-next-streams", "Q8_0"),
    ("qwen4exp", "Q8_0"),
    ("llama4-window", "Q8_0"),
    ("deepseek4", "Q8_0"),
    ("gemma3n", "Q8_0"),
    ("laguna", "Q8_0"),
    ("jet-nemotron", "Q8_0"),
    ("hymba", "Q8_0"),
}  # fmt: skip
EXACT = {("mamba2", "Q8_0", "exact"), ("falcon-mamba", "Q4_0", "exact")}
SAME_LAYERS = {"qwen3next", "qwen35", "lfm2", "rwkv6qwen2", "arwkv7", "zamba"}  # as another family of QUICK
# families with the layers of another one of these, with other RoPE tables or other windows
VARIANTS = {"phi3-window", "qwen3-window", "qwen3moe-window", "qwen3-yarn", "qwen2-yarn", "llama-yarn", "gemma2-order",
            "gemma3-period", "smollm3-window", *PLAIN,
            "gptneox-serial", "falcon-normed", "zaya-window",
            "gpt-oss-window", "ministral3-window",
            "glm5-next-plain",
            "gptneox-yarn", "falcon-yarn", "qwen4exp-plain",
            "lfm3-yarn", "zaya-yarn",
            "llama4", "llama4-order", "deepseek4-yarn",
            "gemma3n-order"}  # fmt: skip
# one for each kind of layer, window and memory: the engine does not know settings of layers
LAYERED = [name for name in RANDOM if name in {family for family, _ in QUICK} | {"gpt2", "gemma3", "mistral-window"}]
# of these one for each kind of memory: keys and values with windows, shared, pooled, latent; states of each kind
MEMORIES = {
    "lfm2", "rwkv7", "recurrentgemma", "gemma3", "gemma4", "deepseek4", "kimi-linear", "zaya", "glm5-next-streams",
    "qwen4exp", "hymba",
}  # fmt: skip
FAMILIES = [
    *(
        name if name in ("jamba", "granite", "llama") else pytest.param(name, marks=pytest.mark.matrix)
        for name in SHAPES  # they have the layers of the other three
    ),
    *(
        pytest.param(name, marks=[pytest.mark.slow, *([] if name in MEMORIES else [pytest.mark.matrix])])
        for name in LAYERED
    ),
]
# the inner loop keeps one of these for each kind of layer
EACH = [
    name
    if name in SHAPES or name in {family for family, _ in QUICK} - SAME_LAYERS
    else pytest.param(name, marks=pytest.mark.exhaustive)
    for name in (*SHAPES, *LAYERED)
]
THREADS = [1, 3, 9]
N = 150  # tokens: more than two tiles of columns, several KV blocks, all with incomplete ends


def every() -> Iterator:
    """Every family with its type of QUICK, every type and both precisions, with varying numbers of threads; the rest of
    the product is marked as long."""
    turn = cycle(THREADS)
    for family in MODELS:
        # kernels of weight types do not know families: two types suffice if most layers are another family's
        few = dict.fromkeys(["F32", "Q8_0", *(kind for name, kind in QUICK if name == family)])
        few = {"F32": None} if family in VARIANTS else few
        for kind in TYPES if family in SHAPES else few:
            for precision in ("fast", "exact") if kind in ("Q8_0", "Q4_0") and family in SHAPES else ("fast",):
                # the inner loop keeps one for each kind of layer and one for each weight type
                short = (family, kind, precision) in EXACT or ((family, kind) in QUICK and precision == "fast")
                marks: tuple = () if short else (pytest.mark.matrix, pytest.mark.slow)
                if short and (family in SAME_LAYERS or precision == "exact"):
                    marks = (pytest.mark.slow,)
                threads = [next(turn)] if short else THREADS
                yield pytest.param(family, kind, precision, threads, marks=marks, id=f"{family}-{kind}-{precision}")


def tokens(n: int, seed: int = 3) -> list[int]:
    return np.random.default_rng(seed).integers(260, 320, n).tolist()


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes() and bool(np.isfinite(a).all())


@pytest.mark.parametrize(("family", "kind", "precision", "threads"), list(every()))
def test_results_depend_on_the_tokens_alone(
    family: str, kind: str, precision: str, threads: list[int], random_model: Callable[..., Path], tmp_path: Path
) -> None:
    path = random_model(MODELS[family], TYPES[kind])
    ids = tokens(N)
    with LoadedModel.load(path, n_ctx=256, n_seq_max=4, n_ubatch=128, n_threads=2, precision=precision) as model:
        seq = model.sequence()
        whole = seq.logits_of(ids)
        assert np.isfinite(whole).all()
        assert whole.std(axis=1).min() > 1e-3
        seq.close()

        seq = model.sequence()
        assert same(np.stack([seq.decode(i) for i in ids]), whole), "token by token"
        seq.close()

        rng = np.random.default_rng(1)
        for _ in range(3):
            cuts = sorted(rng.choice(np.arange(1, N), 4, replace=False))
            seq = model.sequence()
            parts = [seq.logits_of(part.tolist()) for part in np.split(np.asarray(ids), cuts)]
            assert same(np.concatenate(parts), whole), f"cut at {cuts}"
            seq.close()

        several = [model.sequence() for _ in range(4)]
        lengths = (70, 1, 19, 53)
        others = [tokens(n, seed) for seed, n in enumerate(lengths)]
        alone = []
        for other in others:
            seq = several[0]
            seq.clear()
            alone.append(seq.logits_of(other))
        several[0].clear()
        results = model.eval([Work(s, o, "all") for s, o in zip(several, others, strict=True)])
        for a, r in zip(alone, results, strict=True):
            assert r.logits is not None
            assert same(r.logits, a), "beside others"
        for split in ("equal", "seq"):
            for s in several:
                s.clear()
            results = model.eval([Work(s, o, "all") for s, o in zip(several, others, strict=True)], split=split)
            assert all(r.logits is not None and same(r.logits, a) for a, r in zip(alone, results, strict=True)), split
        # one token each, with the slots in another order
        more = model.eval([Work(s, [ids[0]]) for s in reversed(several)])
        seq = several[1]
        seq.clear()
        seq.prefill(others[1])
        assert more[2].logits is not None
        assert same(seq.decode(ids[0]), more[2].logits[0]), "one token each"
        for s in several:
            s.close()

        seq = model.sequence()
        seq.prefill(ids[:77])
        size = seq.save(tmp_path / "state", {"note": 1})
        assert size == (tmp_path / "state").stat().st_size
        copied = seq.copy()
        assert same(copied.logits_of(ids[77:]), whole[77:]), "a copy"
        restored = model.restore(tmp_path / "state")
        assert restored.extra == {"note": 1}
        assert restored.tokens == ids[:77]
        assert restored.logits is not None
        assert same(restored.logits, whole[76])
        assert same(restored.logits_of(ids[77:]), whole[77:]), "saved and restored"
    for n_threads in threads:
        with LoadedModel.load(path, n_ctx=256, n_ubatch=128, n_threads=n_threads, precision=precision) as model:
            seq = model.sequence()
            assert same(seq.logits_of(ids[:90]), whole[:90]), f"{n_threads} threads"
            assert same(seq.decode(ids[90]), whole[90]), f"{n_threads} threads"


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=pytest.mark.exhaustive)
        for name in RANDOM
        if name not in {family for family, _ in QUICK}
    ],
)
def test_cuts_steps_and_saves_change_nothing(family: str, random_model: Callable[..., Path], tmp_path: Path) -> None:
    """A short version, for families with another family's layers but their own windows, positions and sizes."""
    ids = tokens(70)
    with LoadedModel.load(random_model(family, FileType.F32), n_ctx=80, n_ubatch=32, n_threads=2) as model:
        seq = model.sequence()
        whole = seq.logits_of(ids)
        assert np.isfinite(whole).all() and whole.std(axis=1).min() > 1e-3
        seq.clear()
        assert same(seq.logits_of(ids[:37]), whole[:37]), "cut"
        seq.save(tmp_path / "state")
        assert same(np.stack([seq.decode(i) for i in ids[37:43]]), whole[37:43]), "token by token"
        seq.close()
        restored = model.restore(tmp_path / "state")
        assert same(restored.logits_of(ids[37:]), whole[37:]), "saved and restored"


@pytest.mark.parametrize("family", EACH)
def test_likelihood_is_that_of_the_logits(family: str, random_model: Callable[..., Path]) -> None:
    ids = tokens(60)
    with LoadedModel.load(random_model(MODELS[family], FileType.Q8_0), n_ctx=64) as model:
        seq = model.sequence()
        logits = seq.logits_of(ids[:-1]).astype(np.float64)
        expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(59), ids[1:]]
        seq.clear()
        nll = model.eval([Work(seq, ids[:-1], slice(20, None), ids[21:])])[0].nll
        assert nll is not None
        np.testing.assert_allclose(nll, expected[20:], atol=1e-5)


@pytest.mark.parametrize("family", EACH)
def test_going_back(family: str, random_model: Callable[..., Path]) -> None:
    ids = tokens(40)
    with LoadedModel.load(random_model(MODELS[family], FileType.F32), n_ctx=64) as model:
        seq = model.sequence()
        whole = seq.logits_of(ids)
        at = seq.rewind(25)
        assert at == (0 if model.memory.is_recurrent else 25)
        assert seq.tokens == ids[:at]
        assert same(seq.logits_of(ids[at:]), whole[at:])
        assert seq.rewind(99) == 40


def test_the_neighbours_memory_is_not_touched(random_model: Callable[..., Path]) -> None:
    with LoadedModel.load(random_model(SHAPES["jamba"], FileType.F32), n_ctx=64, n_seq_max=3) as model:
        kept = model.sequence()
        kept.prefill(tokens(20))
        before = dict(model.memory.export(kept.slot))
        other = model.sequence()
        other.prefill(tokens(33, 8))
        other.close()
        again = model.sequence()
        assert same(again.logits_of(tokens(5)), logits_in_a_new_sequence(model, tokens(5)))
        for name, array in model.memory.export(kept.slot):
            assert same(array, before[name]), name


def logits_in_a_new_sequence(model: LoadedModel, ids: list[int]) -> np.ndarray:
    seq = model.sequence()
    try:
        return seq.logits_of(ids)
    finally:
        seq.close()


def test_wrong_use_is_one_sentence(random_model: Callable[..., Path], tmp_path: Path) -> None:
    path = random_model(SHAPES["mamba"], FileType.F32)
    with LoadedModel.load(path, n_ctx=16) as model:
        seq = model.sequence()
        calls: list[Callable[[], object]] = [
            model.sequence,
            lambda: seq.prefill([]),
            lambda: seq.prefill(tokens(17)),
            lambda: seq.prefill([320]),
            lambda: seq.prefill([-1]),
            lambda: model.eval([Work(seq, [1]), Work(seq, [2])]),
            lambda: model.eval([Work(seq, [1, 2], "all", [3])]),
            lambda: model.restore(tmp_path / "absent"),
            lambda: LoadedModel.load(path, n_threads=-1),
            lambda: LoadedModel.load(tmp_path / "absent.gguf"),
        ]
        for call in calls:
            with pytest.raises(HybridError) as caught:
                call()
            assert "\n" not in str(caught.value)
        assert seq.tokens == []
        assert np.isfinite(seq.prefill([1])).all()


def test_a_state_of_another_model_is_refused(random_model: Callable[..., Path], tmp_path: Path) -> None:
    with LoadedModel.load(random_model(SHAPES["mamba"], FileType.F32), n_ctx=16) as model:
        seq = model.sequence()
        seq.prefill([1, 2, 3])
        seq.save(tmp_path / "state")
    with (
        LoadedModel.load(random_model(SHAPES["mamba"], FileType.Q8_0), n_ctx=16) as other,
        pytest.raises(HybridError, match="not by this model"),
    ):
        other.restore(tmp_path / "state")
