"""A state file with the prompt cache: after loading, every text continues bit for bit."""

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_conformance import FAMILIES, MODELS, SHAPES, same, tokens
from test_speculation import Plain

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.memory.state_file import read_state
from hybrid.quant.ggml.errors import StateError
from hybrid.quant.ggml.types import FileType

BUDGET = 64 << 20


def talked(model: LoadedModel) -> tuple[Any, list[list[int]]]:
    """A sequence and five texts: a stem of more than a page, three continuations of it, and an unrelated text."""
    seq = model.sequence()
    stem = tokens(70)
    texts = [
        stem,
        stem + tokens(30, 1),
        stem + tokens(75, 2),
        [*stem, *tokens(75, 2)[:5], *tokens(9, 3)],
        tokens(20, 4),
    ]
    for ids in texts[:1] + texts[1:]:
        at = seq.resume(ids)
        seq.prefill(ids[at:])
        seq.decode(ids[0])
    seq.resume([*texts[2], 5])
    return seq, texts


@pytest.mark.parametrize("family", ["jamba", "mamba2", "granite", "llama"])
def test_every_text_is_found_again(family: str, random_model: Callable[..., Path], tmp_path: Path) -> None:
    path = random_model(SHAPES[family], FileType.Q8_0)
    with LoadedModel.load(path, n_ctx=256, n_ubatch=64, checkpoint_budget=BUDGET) as model:
        seq, texts = talked(model)
        seq.save(tmp_path / "s", {"x": 1}, checkpoints=BUDGET)
        small = seq.save(tmp_path / "small", checkpoints=0)
        want = []
        for ids in texts:
            seq.clear()
            assert model.cache is not None
            model.cache.clear()
            seq.prefill(ids)
            want.append(seq.decode(261))
    assert small < (tmp_path / "s").stat().st_size
    with LoadedModel.load(path, n_ctx=256, n_ubatch=64, checkpoint_budget=BUDGET) as model:
        seq = model.restore(tmp_path / "s")
        assert seq.extra == {"x": 1} and seq.tokens == texts[2]
        for ids, logits in zip(texts, want, strict=True):
            assert seq.resume([*ids, 261]) == len(ids), "nothing is processed again"
            assert same(seq.decode(261), logits)
        # again, into a memory that has it all
        again = model.restore(tmp_path / "s", seq)
        assert again.resume([*texts[1], 262]) == len(texts[1])
        assert same(again.decode(261), want[1])
        again.close()
        assert model.cache is not None
        model.cache.clear()
        assert model.memory.recurrent.pool.used == model.memory.attention.pool.used == 0
    for budget in (0, 1):
        with LoadedModel.load(path, n_ctx=256, checkpoint_budget=budget) as model:
            seq = model.restore(tmp_path / "s")
            assert same(seq.decode(261), want[2]), "the sequence itself needs no budget"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sampled_text_is_saved_in_its_middle(family: str, random_model: Callable[..., Path], tmp_path: Path) -> None:
    """After each of its tokens in turn; another process continues with the same tokens."""
    path, prompt, n = random_model(MODELS[family], FileType.Q8_0), tokens(70), 9

    def sample(model: LoadedModel, seq: Any, ids: list[int], sampler: Sampler, n: int) -> Any:
        run = generate(seq, ids, sampler, max_tokens=n, tokenizer=Plain())  # type: ignore[arg-type]
        for _ in run:
            pass
        return run.result

    def new(model: LoadedModel) -> Sampler:
        return Sampler(SamplingParams(temp=0.9, seed=5, repeat_penalty=1.1), model.n_vocab)

    with LoadedModel.load(path, n_ctx=128, n_ubatch=64, n_threads=2) as model:
        seq, sampler = model.sequence(), new(model)
        whole = sample(model, seq, prompt, sampler, n)
        want = sampler.state(), seq.logits.tobytes() if seq.logits is not None else b""
        for cut in range(1, n, 3):
            seq.clear()
            sampler = new(model)
            first = sample(model, seq, prompt, sampler, cut)
            seq.save(tmp_path / str(cut), {"sampler": sampler.state(), "pending": first.pending})
    with LoadedModel.load(path, n_ctx=128, n_ubatch=32, n_threads=1) as model:
        seq = model.sequence()
        for cut in range(1, n, 3):
            seq = model.restore(tmp_path / str(cut), seq)
            sampler = new(model)
            seq.prefill(seq.pending)
            sampler.set_state(seq.extra["sampler"])
            rest = sample(model, seq, [], sampler, n - cut)
            assert rest.ids == whole.ids[cut:], cut
            assert (sampler.state(), seq.logits.tobytes() if seq.logits is not None else b"") == want


def test_damage_is_noticed(random_model: Callable[..., Path], tmp_path: Path) -> None:
    path = random_model(SHAPES["jamba"], FileType.Q8_0)
    with LoadedModel.load(path, n_ctx=256, checkpoint_budget=BUDGET) as model:
        seq, _ = talked(model)
        seq.save(tmp_path / "s", checkpoints=BUDGET)
        good = (tmp_path / "s").read_bytes()
        assert model.cache is not None

        def restore(data: bytes) -> None:
            (tmp_path / "bad").write_bytes(data)
            assert model.cache is not None
            seq.clear()
            model.cache.clear()
            model.restore(tmp_path / "bad", seq)

        rng = np.random.default_rng(3)
        with read_state(tmp_path / "s") as state:
            data = len(good) - sum(-(-a.nbytes // 64) * 64 for a in state.header.arrays)
            spots = [data + a.offset + int(rng.integers(a.nbytes)) for a in state.header.arrays if a.nbytes]
            header = good[24 : 24 + struct.unpack_from("<Q", good, 16)[0]]
        for spot in rng.choice(spots, 12, replace=False).tolist():
            with pytest.raises(StateError, match="is damaged"):
                restore(good[:spot] + bytes([good[spot] ^ 1]) + good[spot + 1 :])
        # a false header with a valid checksum
        for change in (
            {"parent": 0},
            {"parent": -2},
            {"n": 0},
            {"n": "7"},
            {"kv": 1},
            {"points": [[0, True, False]]},
            {"points": 3},
            {"points": [[10**6, True, False]]},
        ):
            values = json.loads(header)
            values["cache"][0].update(change)
            text = json.dumps(values).encode()
            head = struct.pack("<8sIIQ", b"hybstate", 1, zlib.crc32(text), len(text)) + text
            with pytest.raises(StateError, match="damaged"):
                restore(head + bytes(-len(head) % 64) + good[data:])
        restore(good)
        assert model.cache.n_checkpoints > 3
