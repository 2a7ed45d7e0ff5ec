"""Texts with different adapters in the same pass: each has the bits that it has alone."""

import json
from pathlib import Path

import numpy as np
import peft_adapters
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from test_saving import Process
from test_service import Asked

from hybrid.convert import convert, convert_lora
from hybrid.infer import LoadedModel, LoadOptions, Work
from hybrid.infer.engine.applied import NONE, Applied
from hybrid.infer.sequence import Sequence
from hybrid.infer.stages.line import LineHere
from hybrid.infer.stages.loading import load_staged
from hybrid.quant.ggml.errors import StateError, UsageError

# attention alone, experts with adapters of their own, recurrent layers
NAMES = ("llama-biased", "qwen3moe", "jamba-biased", "mamba-biased")
RANKS = (3, 20, 4, 16)
CHOSEN = [
    NONE, Applied.of({0: 1.0}), Applied.of({1: 0.5}), Applied.of({2: -1.0}), Applied.of({3: 1.0}),
    Applied.of({0: 1.0, 3: 0.25}), Applied.of({0: 0.5, 1: 0.0}), NONE,
]  # fmt: skip


class Adapters:
    """A base model and four adapters of different ranks and types."""

    def __init__(self, name: str, folder: Path, data_dir: Path) -> None:
        self.base = folder / "base.gguf"
        checkpoint = random_checkpoints.write(CONFIGS[name], folder / "base")
        convert(checkpoint, self.base, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
        config = json.loads((checkpoint / "config.json").read_text())
        tensors = random_checkpoints.tensors(config)
        self.files = []
        for i, rank in enumerate(RANKS):
            thin = peft_adapters.factors(tensors, rank, seed=i)
            if i == 2:  # not of all matrices
                thin = dict(list(thin.items())[::2])
            peft = peft_adapters.write(folder / f"peft{i}", thin, 2.0 + i)
            self.files.append(folder / f"adapter{i}.gguf")
            convert_lora(peft, self.files[-1], base=checkpoint, outtype=("f32", "f16", "bf16", "f32")[i])
        rng = np.random.default_rng(5)
        self.texts = [rng.integers(0, config["vocab_size"], 9 + 4 * i).tolist() for i in range(len(CHOSEN))]


@pytest.fixture(scope="module", params=NAMES)
def adapters(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Adapters:
    return Adapters(request.param, tmp_path_factory.mktemp(request.param), data_dir)


def sequence(model: LoadedModel, applied: Applied) -> Sequence:
    seq = model.sequence()
    seq.use(applied)
    return seq


def test_each_has_the_bits_that_it_has_alone(adapters: Adapters) -> None:
    alone: list[np.ndarray] = []
    with LoadedModel.load(adapters.base, n_ctx=64, n_threads=1, lora=adapters.files) as model:
        for ids, applied in zip(adapters.texts, CHOSEN, strict=True):
            seq = sequence(model, applied)
            alone.append(seq.logits_of(ids))
            seq.close()
    with LoadedModel.load(adapters.base, n_ctx=64) as model:  # without any adapters
        for i in (0, len(CHOSEN) - 1):
            seq = model.sequence()
            assert np.array_equal(seq.logits_of(adapters.texts[i]), alone[i])
            assert not np.array_equal(seq.logits_of(adapters.texts[1]), alone[1])
            seq.close()
    with LoadedModel.load(
        adapters.base, n_ctx=64, n_seq_max=len(CHOSEN), n_ubatch=24, n_threads=2, lora=adapters.files
    ) as model:
        seqs = [sequence(model, applied) for applied in CHOSEN]
        works = [Work(seq, ids[:-3], "all") for seq, ids in zip(seqs, adapters.texts, strict=True)]
        for result, expected in zip(model.eval(works), alone, strict=True):
            assert np.array_equal(result.logits, expected[:-3])
        for i in (-3, -2):  # steps of eight tokens
            works = [Work(seq, [ids[i]]) for seq, ids in zip(seqs, adapters.texts, strict=True)]
            for result, expected in zip(model.eval(works), alone, strict=True):
                assert np.array_equal(result.logits, expected[i : i + 1])
        for seq, ids, expected in zip(seqs, adapters.texts, alone, strict=True):  # steps of one
            assert np.array_equal(seq.decode(ids[-1]), expected[-1])


def test_a_text_begins_without_its_adapter(adapters: Adapters) -> None:
    """Of an activated adapter: the tokens before its start have the base's logits, keys and states."""
    ids, start = adapters.texts[-1], 11
    with LoadedModel.load(adapters.base, n_ctx=64, n_seq_max=3, n_ubatch=16, lora=adapters.files) as model:
        base = sequence(model, NONE)
        before = base.logits_of(ids[:start])
        after = base.copy()
        after.tokens, tokens = [], after.tokens  # as if it were empty: the adapter begins here
        after.use(Applied.of({1: 1.0}))
        after.tokens = tokens
        expected = np.concatenate([before, after.logits_of(ids[start:])])
        base.close()
        for n in (len(ids), 5):
            seq = sequence(model, Applied.of({1: 1.0}, start))
            got = [seq.logits_of(ids[i : i + n]) for i in range(0, len(ids), n)]
            assert np.array_equal(np.concatenate(got), expected)
            seq.close()


def test_a_text_keeps_its_adapters(adapters: Adapters) -> None:
    with LoadedModel.load(adapters.base, n_ctx=64, lora=adapters.files[:2]) as model:
        seq = model.sequence()
        assert seq.applied == Applied.of({0: 1.0, 1: 1.0})
        with pytest.raises(UsageError, match="there is no adapter 2: 2 are loaded"):
            seq.use(Applied.of({2: 1.0}))
        seq.prefill(adapters.texts[0])
        seq.use(seq.applied)
        with pytest.raises(UsageError, match="has read tokens with other adapters"):
            seq.use(NONE)


def cached(adapters: Adapters) -> LoadedModel:
    return LoadedModel.load(adapters.base, n_ctx=64, checkpoint_budget=1 << 24, lora=adapters.files)


def test_the_prompt_cache_keeps_them_apart(adapters: Adapters) -> None:
    """A text is continued only from texts with the same adapters at the same scales."""
    ids = adapters.texts[3]
    with LoadedModel.load(
        adapters.base, n_ctx=64, n_seq_max=1, checkpoint_budget=1 << 24, lora=adapters.files
    ) as model:
        logits: dict[Applied, np.ndarray] = {}
        for applied in [*CHOSEN[:3], Applied.of({1: 0.25})]:
            for known in (0, len(ids)):
                seq = model.sequence()
                seq.use(applied)
                assert seq.resume(ids) == known
                got = seq.prefill(ids) if known == 0 else seq.logits
                assert got is not None and np.array_equal(got, logits.setdefault(applied, got))
                seq.close()
        assert len({values.tobytes() for values in logits.values()}) == 4


def test_an_activated_adapter_continues_texts_of_the_base(adapters: Adapters) -> None:
    ids, start = adapters.texts[-1], 11
    applied = Applied.of({1: 1.0}, start)
    with LoadedModel.load(
        adapters.base, n_ctx=64, n_seq_max=1, checkpoint_budget=1 << 24, lora=adapters.files
    ) as model:

        def read(applied: Applied, text: list[int]) -> tuple[int, np.ndarray]:
            seq = model.sequence()
            seq.use(applied)
            known = seq.resume(text)
            logits = seq.prefill(text[known:]) if known < len(text) else seq.logits
            assert logits is not None
            seq.close()
            return known, logits

        expected = read(applied, ids)
        assert expected[0] == 0
        model.cache.clear()  # type: ignore[union-attr]
        base = read(NONE, ids[:start])
        again = read(applied, ids)
        assert again[0] == start and np.array_equal(again[1], expected[1])
        assert read(applied, ids)[0] == len(ids)
        # the base's text does not go on as the adapter's, nor does a text in which it begins elsewhere
        assert read(NONE, ids)[0] == start
        other = Applied.of({1: 1.0}, start + 2)
        known, logits = read(other, ids)
        assert known <= start + 2 and not np.array_equal(logits, expected[1])
        assert np.array_equal(read(NONE, ids[:start])[1], base[1])


def test_a_saved_text_belongs_to_its_adapters(adapters: Adapters, tmp_path: Path) -> None:
    ids, path = adapters.texts[2], tmp_path / "a.state"
    chosen = Applied.of({0: 0.5})
    with LoadedModel.load(adapters.base, n_ctx=64, n_seq_max=2, lora=adapters.files[:2]) as model:
        seq = sequence(model, chosen)
        seq.prefill(ids[:-1])
        seq.save(path)
        expected = seq.decode(ids[-1])
        again = sequence(model, chosen)
        assert model.restore(path, again).tokens == ids[:-1]
        assert np.array_equal(again.decode(ids[-1]), expected)
        again.close()
        for other in (NONE, Applied.of({0: 1.0}), Applied.of({1: 0.5})):
            again = sequence(model, other)
            with pytest.raises(StateError, match=r"was saved by '.* \+ adapter0:0.5', not by this model"):
                model.restore(path, again)
            again.close()


def test_in_stages(adapters: Adapters) -> None:
    options = LoadOptions(n_ctx=64, n_seq_max=len(CHOSEN), n_ubatch=24, n_threads=1, lora=tuple(adapters.files))  # type: ignore[arg-type]
    everything = []
    for model in (LoadedModel.load(adapters.base, options), load_staged(adapters.base, options, 2, LineHere)):
        with model:
            seqs = [sequence(model, applied) for applied in CHOSEN]
            works = [Work(seq, ids, "all") for seq, ids in zip(seqs, adapters.texts, strict=True)]
            everything.append([result.logits for result in model.eval(works)])
            everything[-1] += [seq.decode(5) for seq in seqs]
    for whole, staged in zip(*everything, strict=True):
        assert np.array_equal(whole, staged)


def test_texts_on_disk_keep_their_adapters(adapters: Adapters, tmp_path: Path) -> None:
    """Another process continues the texts of each adapter, and an activated one the base's."""
    rng = np.random.default_rng(8)
    base, *others = (rng.integers(0, max(map(max, adapters.texts)), 300).tolist() for _ in range(3))
    asked = [(others[0], Applied.of({0: 1.0})), (others[1], Applied.of({1: 0.5})), (base, NONE)]
    start = len(base) - 20
    activated = base[:start], [*base, 5, 6], Applied.of({1: 1.0}, start)
    with LoadedModel.load(
        adapters.base, n_ctx=512, n_seq_max=3, checkpoint_budget=1 << 24, lora=adapters.files
    ) as model:
        answers = {}
        for turn in range(2):
            process = Process(model, tmp_path)

            def ask(ids: list[int], applied: Applied, process: Process = process) -> tuple[int, list[int]]:
                one = Asked(model, ids, 4, remember=True, applied=applied)
                process.service.submit(one.job)
                answer = one.wait()
                return one.job.n_known, answer

            for i, (ids, applied) in enumerate(asked):
                known = ask(ids, applied)
                assert (known[0] if model.memory.is_recurrent else known[0] + 1) >= (len(ids) if turn else 0), i
                assert answers.setdefault(i, known[1]) == known[1]
                if turn == 0:
                    assert ask(ids, Applied.of({2: 1.0}))[0] == 0, "of no other adapter"
            if turn == 0:
                ask(activated[0], NONE)
                expected = ask(activated[1], activated[2])
                assert expected[0] == start
            process.close()
        process = Process(model, tmp_path)
        one = Asked(model, [*base[:start], 7, 8, 9], 4, remember=True, applied=activated[2])
        process.service.submit(one.job)
        one.wait()
        assert one.job.n_known == start, "from the base's text on disk"
        process.close()
        assert not process.warnings
