"""After a context shift the usual promises hold: bits depend neither on the division of tokens into calls, nor on other
sequences, a save or a copy. The shifted sequence is not confused with its text."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pairwise import in_turn, mostly_long
from test_conformance import MODELS, SHAPES, VARIANTS, same, tokens
from test_speculation import Plain

from hybrid.infer import LoadedModel, Work
from hybrid.infer.answers.batch.batcher import Batcher, Job
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.drawing.context_shift import MARGIN, kept_tokens, leaving, make_room, shortened
from hybrid.infer.answers.drawing.drawing import Drawing
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.evaluate.shared import eval_shared
from hybrid.infer.memory.kv_codec import decoded
from hybrid.infer.memory.moves import seq_add
from hybrid.infer.memory.state_file import read_state, write_state
from hybrid.infer.memory.state_header import StateHeader
from hybrid.quant.ggml.errors import Remedy, StateError, UsageError
from hybrid.quant.ggml.types import FileType

LEARNED = {"gpt2"}
# Norms after RoPE weigh the two values of a pair differently: scores depend on absolute positions. The keys move
# correctly nevertheless, see tests/unit/infer/memory/test_moves.py. Queries of Ministral 3, Llama 4 and Inkling grow
# with their position. The prefix of Hymba stays at its positions.
ABSOLUTE = {
    *("hunyuan", "hunyuan-moe", "ministral3", "ministral3-window", "llama4-window", "llama4-order", "mistral4"),
    *("inkling", "inkling2", "inkling2-loop", "hymba", "hymba-plain"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [pytest.param(n, marks=pytest.mark.matrix) if n in VARIANTS - ABSOLUTE else n for n in MODELS],
)
def test_attention_knows_distances_alone(family: str, random_model: Callable[..., Path]) -> None:
    """Therefore a text continues the same if all its positions are shifted: every layer rotates its keys as its own
    RoPE would.

    In f32 only rounding differs; without RoPE nothing does.
    """
    path = random_model(MODELS[family], FileType.F32)
    with LoadedModel.load(path, n_ctx=256, n_seq_max=2, precision="exact") as model:
        seq, ids, more = model.sequence(), tokens(90), tokens(20, 4)
        seq.prefill(ids)
        turned = any(spec.turned for spec in model.memory.recurrent.specs)
        if family in LEARNED or model.memory.attention.row_specs or turned:
            why = "states with rotated keys" if turned else "rows in memory that stand for groups of tokens"
            why = "learned positions" if family in LEARNED else why
            with pytest.raises(UsageError, match=f"its model has {why}"):
                seq_add(model.memory, seq.slot, 0, -1, 50)
            with pytest.raises(UsageError, match=rf"\({model.arch}\) has {why}"):
                kept_tokens(model, ids)
            return
        turned = any(s.rotation for s in model.memory.attention.specs)
        rows = []
        for delta in (0, 100, 57):
            other = seq.copy()
            assert seq_add(model.memory, other.slot, 0, -1, delta) == 90 + delta
            assert other.n_past == 90 and other.room == 166 - delta and other.is_shifted == (delta > 0)
            rows.append(other.logits_of(more))
            other.close()
            error = np.abs(rows[-1] - rows[0]).max() / rows[0].std()
            print(f"{family} by {delta}: {error:.1e} deviations")
            assert (error < 2e-4) == (family not in ABSOLUTE or not delta) and np.isfinite(rows[-1]).all()
            assert turned or family in ABSOLUTE or same(rows[-1], rows[0])


SHIFTED = ["jamba", "granite", "llama", "mamba2"]


FAMILIES, KV_TYPES = [*SHIFTED, "gemma3", "recurrentgemma", "zamba2", "qwen35"], ["f32", "f16", "q8_0", "q4_0", "q5_1"]


@pytest.mark.parametrize(("family", "kv_type"), list(mostly_long(in_turn(FAMILIES, KV_TYPES), FAMILIES, KV_TYPES)))
def test_bits_behind_a_shift(family: str, kv_type: str, random_model: Callable[..., Path], tmp_path: Path) -> None:
    """However the following tokens are divided into calls, beside others, after a save or in a copy; more than a chunk
    of keys."""
    path, ids, more = random_model(MODELS[family], FileType.Q8_0), tokens(800), tokens(150, 5)
    kept = 7 if family in ("llama", "gemma3") else 0  # unchanged by the shift: a state has seen all tokens
    options = {"n_ctx": 1024, "n_seq_max": 4, "n_ubatch": 128, "kv_type": kv_type}
    with LoadedModel.load(path, n_threads=2, **options) as model:
        seq = model.sequence()
        seq.prefill(ids)
        plain = seq.copy()
        seq.shift(7, 130)
        seq.logits_of(tokens(20, 6))
        seq.shift(7, 61)
        assert seq.tokens == [*ids[:7], *ids[198:], *tokens(20, 6)] and seq.n_past == len(seq.tokens) == 629
        assert seq.save(tmp_path / "state") > 0
        fork = seq.copy()
        whole = seq.logits_of(more)
        assert not same(whole, plain.logits_of(more)[: len(whole)])
        plain.clear()
        assert fork.is_shifted and fork.tokens == seq.tokens[:629]
        singles = [fork.decode(t) for t in more[:5]]
        plain.prefill(tokens(10))
        both = model.eval([Work(plain, tokens(33, 8), "all"), Work(fork, more[5:], "all")], split="equal")
        assert both[1].logits is not None
        assert same(np.concatenate([np.stack(singles), both[1].logits]), whole)
    with read_state(tmp_path / "state") as state:
        assert state.header.version == (2 if state.header.keys_values is None else 3) and state.header.computed == kept
    with LoadedModel.load(path, n_threads=1, **options) as model:
        seq = model.restore(tmp_path / "state")
        assert seq.is_shifted and model.memory.computed(seq.slot) == kept
        assert same(seq.logits_of(more), whole)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0", "q4_1"])
def test_without_rope_it_is_a_text_that_never_had_the_discarded_keys(
    kv_type: str, random_model: Callable[..., Path]
) -> None:
    """Jamba: the state is unchanged, and some keys and values are missing."""
    path, ids = random_model(SHAPES["jamba"], FileType.Q8_0), tokens(300)
    with LoadedModel.load(path, n_ctx=512, n_seq_max=2, kv_type=kv_type) as model:
        seq, other = model.sequence(), model.sequence()
        seq.prefill(ids)
        arrays = dict(model.memory.export(seq.slot))
        kept = {name: a if a.shape[0] != 300 else np.delete(a, slice(9, 140), axis=0) for name, a in arrays.items()}
        model.memory.load(other.slot, 169, kept)
        other.tokens = [*ids[:9], *ids[140:]]
        seq.shift(9, 131)
        assert seq.tokens == other.tokens
        assert same(seq.logits_of(tokens(40, 5)), other.logits_of(tokens(40, 5)))


@pytest.mark.parametrize(("kv_type", "most"), [("f32", 1e-5), ("f16", 2e-3), ("q8_0", 0.02), ("q4_0", 0.25)])
def test_keys_of_the_first_layer_are_those_of_the_shorter_text(
    kv_type: str, most: float, random_model: Callable[..., Path]
) -> None:
    """They depend only on the token and its position."""
    with LoadedModel.load(
        random_model(SHAPES["llama"], FileType.F32), n_ctx=512, n_seq_max=2, kv_type=kv_type
    ) as model:
        seq, other, ids = model.sequence(), model.sequence(), tokens(300)
        seq.prefill(ids)
        seq.shift(9, 131)
        other.prefill(seq.tokens)
        shifted, wanted = (dict(model.memory.export(s.slot)) for s in (seq, other))

        def keys(arrays: dict[str, np.ndarray]) -> np.ndarray:
            kind = model.memory.attention.kind.keys
            planes = {plane.name: arrays[f"blk.0.k{plane.name}"] for plane in kind.planes}
            return decoded(planes, kind, SHAPES["llama"].head_dim)

        error = np.abs(keys(shifted) - keys(wanted)).max() / np.abs(keys(wanted)).max()
        print(f"{kv_type}: {error:.1e} of the largest")
        assert error < most
        assert np.array_equal(shifted["blk.0.v"], wanted["blk.0.v"])


@pytest.mark.parametrize("family", SHIFTED)
def test_the_prompt_cache_never_takes_it_for_its_text(family: str, random_model: Callable[..., Path]) -> None:
    path, ids, more = random_model(SHAPES[family], FileType.Q8_0), tokens(100), tokens(9, 5)
    with LoadedModel.load(path, n_ctx=128, n_seq_max=3, checkpoint_budget=64 << 20) as model:
        reference = model.sequence()
        seq = model.sequence()
        seq.prefill(ids)
        seq.shift(7, 40)
        seq.prefill(more)
        seq.checkpoint()
        seq.copy().close()
        left = list(seq.tokens)
        assert left == [*ids[:7], *ids[47:], *more]
        assert model.cache is not None
        known = model.cache.find([*left, 300])
        assert known is None or known.position <= 7, "as much as the text before the shift has"
        known = model.cache.find([*ids, 300])
        assert known is not None and known.position == 100, "which is still known"
        # resuming its own tokens processes again all tokens without the text's own bits
        assert seq.resume(left) <= 7 and not seq.is_shifted
        seq.prefill(left[len(seq.tokens) :])
        assert seq.logits is not None and same(seq.logits, reference.logits_of(left)[-1])
        # sequences with equal tokens are not the same work
        other = model.sequence()
        other.prefill(ids)
        other.shift(7, 40)
        other.prefill(more)
        assert other.tokens == seq.tokens
        apart = eval_shared(model, [Work(seq, [270]), Work(other, [270])])
        assert apart[0].logits is not None and apart[1].logits is not None
        assert not same(apart[0].logits, apart[1].logits)
        assert same(apart[0].logits[-1], reference.decode(270))


@pytest.mark.parametrize("family", SHIFTED)
def test_a_file_keeps_the_texts_beside_it(family: str, random_model: Callable[..., Path], tmp_path: Path) -> None:
    """With all their keys and values, since the shifted sequence lacks some."""
    path, ids = random_model(SHAPES[family], FileType.Q8_0), tokens(100)
    options = {"n_ctx": 128, "checkpoint_budget": 64 << 20}
    with LoadedModel.load(path, **options) as model:
        seq = model.sequence()
        seq.prefill(ids[:5])
        seq.prefill(ids[5:])
        want = seq.decode(270)
        seq.shift(7, 40)
        seq.save(tmp_path / "state", checkpoints=64 << 20)
        left, shifted = list(seq.tokens), seq.decode(271)
    with LoadedModel.load(path, **options) as model:
        seq = model.restore(tmp_path / "state")
        assert seq.tokens == left and same(seq.decode(271), shifted)
        assert seq.resume([*ids, 270]) == 100
        assert same(seq.decode(270), want)


@pytest.mark.parametrize("family", SHIFTED)
def test_how_far_back_it_goes(family: str, random_model: Callable[..., Path]) -> None:
    path, ids = random_model(SHAPES[family], FileType.Q8_0), tokens(100)
    with LoadedModel.load(path, n_ctx=128, n_seq_max=2) as model:
        seq, other = model.sequence(), model.sequence()
        seq.prefill(ids)
        seq.shift(7, 40)
        if family != "llama":
            assert seq.rewind(50) == 0 and not seq.is_shifted, "the state has seen it all"
            return
        assert seq.rewind(50) == 50 and seq.is_shifted
        assert seq.rewind(7) == 7 and not seq.is_shifted, "from there on nothing was moved"
        other.prefill(ids[:7])
        assert same(seq.decode(270), other.decode(270))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q5_0/q4_0"])
@pytest.mark.parametrize("family", SHIFTED)
def test_a_text_goes_on_for_ever(family: str, kv_type: str, random_model: Callable[..., Path], tmp_path: Path) -> None:
    """With and without guesses, with a stop and a save at any point; the reported number of tokens leaves the
    context."""
    prompt, n_ctx, n = tokens(12) * 4, 96, 200
    with LoadedModel.load(
        random_model(SHAPES[family], FileType.Q8_0), n_ctx=n_ctx, n_ubatch=64, kv_type=kv_type
    ) as model:  # type: ignore[arg-type]
        results = []
        for how in ("plain", "guessed", "saved"):
            seq = model.sequence()
            bias = dict.fromkeys(tokens(5), 3.0)  # makes the model repeat itself
            sampler = Sampler(SamplingParams(temp=0.9, seed=3, logit_bias=bias), model.n_vocab)
            ids: list[int] = []
            gone, begin = 0, list(prompt)
            while len(ids) < n:
                most = n if how != "saved" else min(n - len(ids), 37)
                run = generate(
                    seq,
                    begin,
                    sampler,
                    max_tokens=most,
                    tokenizer=Plain(),
                    keep=10,
                    speculate=how == "guessed",
                )  # type: ignore[arg-type]
                for _ in run:
                    assert seq.n_past <= n_ctx - 1
                assert run.result.reason == "length"
                ids, gone, begin = ids + run.result.ids, gone + run.result.discarded, []
                gone += make_room(seq, 1 + MARGIN, 10) if seq.room <= MARGIN else 0
                seq.decode(run.result.pending[0])
                if how == "saved":
                    seq.save(tmp_path / "state")
                    seq.close()
                    seq = model.restore(tmp_path / "state")
            assert len(prompt) + len(ids) - gone == len(seq.tokens) and gone > n_ctx and seq.is_shifted
            assert seq.tokens[:10] == prompt[:10] and seq.tokens[10:] == ids[-(len(seq.tokens) - 10) :]
            results.append((ids, gone))
            seq.close()
        assert results[0] == results[1] == results[2]


def test_a_shifted_answer_is_no_prompt_that_others_wait_for(random_model: Callable[..., Path]) -> None:
    path = random_model(SHAPES["llama"], FileType.Q8_0)
    with LoadedModel.load(path, n_ctx=96, n_seq_max=2, checkpoint_budget=64 << 20) as model:
        ids = tokens(80)

        def job(ids: list[int], n: int) -> Job:
            sampler = Sampler(SamplingParams(temp=0), model.n_vocab)
            return Job(ids, Drawing(sampler, Plain(), n, [], True), keep=5)  # type: ignore[arg-type]

        batcher, first = Batcher(model.runner, 2), job(ids, 60)
        batcher.submit(first)
        while not first.result.discarded:
            batcher.step()
        assert model.cache is not None
        model.cache.clear()
        second = job([*ids[:75], *tokens(3, 9)], 5)
        batcher.submit(second)
        assert [*batcher.run()] == [second, first], "it did not wait for the end of the other answer"
        assert first.result.reason == second.result.reason == "length"


@pytest.mark.parametrize("family", ["jamba", "llama"])
def test_tokens_are_removed_from_the_middle_or_the_end(family: str, random_model: Callable[..., Path]) -> None:
    ids = tokens(100)
    with LoadedModel.load(random_model(SHAPES[family], FileType.Q8_0), n_ctx=128, n_seq_max=2) as model:
        seq, other = model.sequence(), model.sequence()
        seq.prefill(ids)
        if family == "jamba":
            with pytest.raises(
                StateError, match=r"sequence .* cannot remove tokens 5 to 9 of 100: the recurrent state"
            ):
                seq.remove(5, 9)
            assert seq.tokens == ids and seq.logits is not None and not seq.is_shifted
            seq.remove(90, 200)
            assert seq.tokens == [] and seq.n_past == 0, "the state cannot be cut"
            return
        seq.remove(5, 5)
        seq.remove(-3, 0)
        assert seq.tokens == ids and not seq.is_shifted
        seq.remove(90, 200)
        assert seq.tokens == ids[:90] and seq.logits is None and not seq.is_shifted
        seq.remove(-2, 7)
        assert seq.tokens == ids[7:90] and seq.is_shifted and model.memory.next_position(seq.slot) == 90
        # values and positions are unchanged, as if the tokens before were masked
        rows = seq.logits_of(tokens(9, 3))
        seq_add(model.memory, seq.slot, 0, -1, -7)
        seq.rewind(83)
        assert model.memory.next_position(seq.slot) == 83
        again = seq.logits_of(tokens(9, 3))
        assert 0 < np.abs(rows - again).max() < 0.1 * rows.std(), "distances are what they were, f16 rounds again"
        other.prefill(ids[7:90])
        assert np.abs(other.logits_of(tokens(9, 3)) - again).max() > 0.1 * rows.std(), "not the text without them"


def test_prompts_that_need_room_make_it(random_model: Callable[..., Path]) -> None:
    with LoadedModel.load(random_model(SHAPES["llama"], FileType.Q8_0), n_ctx=96) as model:
        seq = model.sequence()
        seq.prefill(tokens(90))
        sampler = Sampler(SamplingParams(temp=0), model.n_vocab)
        run = generate(seq, tokens(50, 2), sampler, max_tokens=2, tokenizer=Plain(), keep=5)  # type: ignore[arg-type]
        assert len([*run]) == 2
        assert run.result.discarded == 42 + 21
        before = list(seq.tokens)
        run = generate(seq, tokens(91, 2), sampler, max_tokens=2, tokenizer=Plain(), keep=5)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="do not fit the context of 96"):
            next(run)
        assert seq.tokens == before, "nothing leaves for what cannot fit"


def test_how_much_leaves() -> None:
    assert [leaving(n, 5) for n in (4, 5, 6, 7, 255, 256)] == [0, 0, 0, 1, 125, 125]
    for kept in (0, 5, 60):
        for n in range(60, 700):
            left = shortened([*range(n)], kept, 64)
            assert left[:kept] == [*range(kept)] and left[kept:] == [*range(n - len(left) + kept, n)]
            assert (left == [*range(n)]) if n < 64 else 64 - 1 - leaving(63, kept) < len(left) < 64


@pytest.mark.parametrize(("keep", "kept"), [(0, 1), (3, 4), (6, 6), (50, 6), (-1, 6)])
def test_what_is_kept(keep: int, kept: int, random_model: Callable[..., Path]) -> None:
    with LoadedModel.load(random_model(SHAPES["llama"], FileType.Q8_0), n_ctx=32) as model:
        model.file.__dict__["tokenizer"] = type("Bos", (), {"bos": 261})
        assert kept_tokens(model, [261, 5, 6, 7, 8, 9], keep) == kept
        assert kept_tokens(model, [5, 261, 6, 7, 8, 9], keep) == (kept if keep in (50, -1) else keep)
        with pytest.raises(UsageError, match=r"30 kept tokens fill the context of 32: nothing") as refused:
            kept_tokens(model, tokens(30), -1)
        assert refused.value.remedy is Remedy.FEWER_KEPT_TOKENS
        with pytest.raises(UsageError, match="keep = -2"):
            kept_tokens(model, [1], -2)


def test_a_changed_file_is_refused(random_model: Callable[..., Path], tmp_path: Path) -> None:
    path = random_model(SHAPES["llama"], FileType.Q8_0)
    with LoadedModel.load(path, n_ctx=64, n_seq_max=2) as model:
        seq = model.sequence()
        seq.prefill(tokens(30))
        seq.remove(5, 9)
        seq.save(tmp_path / "state")
        again = model.restore(tmp_path / "state")
        assert model.memory.positions[again.slot].of(0, 26).tolist() == [*range(5), *range(9, 30)]
        assert same(again.decode(270), seq.decode(270))
        again.close()
        with read_state(tmp_path / "state") as state:
            header, arrays = state.header, {name: state[name].copy() for name in state}
        free = model.n_free
        for change in (lambda p: -p, lambda p: p[::-1], lambda p: p + 2**31):
            changed = {**arrays, "positions": change(arrays["positions"])}
            write_state(tmp_path / "bad", header, changed.items())
            with pytest.raises(StateError, match=r"bad is damaged: its positions decrease"):
                model.restore(tmp_path / "bad")
        short = StateHeader(header.fingerprint, header.model, header.n_tokens, computed=27)
        write_state(tmp_path / "bad", short, arrays.items())
        with pytest.raises(StateError, match="computed of its header is 27, more than its 26 tokens"):
            model.restore(tmp_path / "bad")
        # the positions in the file decide
        liar = StateHeader(header.fingerprint, header.model, header.n_tokens)
        write_state(tmp_path / "bad", liar, arrays.items())
        assert model.memory.computed(model.restore(tmp_path / "bad").slot) == 5
        assert model.n_free == free - 1
