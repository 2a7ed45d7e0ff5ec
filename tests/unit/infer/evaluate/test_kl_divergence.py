"""KL divergence: the file and the statistics against plain loops."""

import math
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hybrid.infer.evaluate import kl_divergence as kl
from hybrid.infer.evaluate.kl_divergence import BaseFile, BaseWriter, compare, decode, encode
from hybrid.infer.evaluate.kl_statistics import KLDivergenceSoFar, MeanWithError, summary
from hybrid.quant.ggml.errors import FormatError, HybridError, Remedy, UsageError

N_VOCAB, N_CTX, N_CHUNKS = 37, 9, 12
SCORES = N_CTX - 1 - N_CTX // 2


def logits_of(seed: int, rows: int = SCORES) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((rows, N_VOCAB)) * 4).astype(np.float32)


def ln_softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


def written(path: Path) -> list[int]:
    tokens = np.random.default_rng(7).integers(N_VOCAB, size=N_CTX * N_CHUNKS).tolist()
    with BaseWriter(path, tokens, N_CTX, N_VOCAB) as places:
        for i in reversed(range(N_CHUNKS)):
            places.write(i, logits_of(i))
    return tokens


def test_log_probabilities_are_kept_to_half_a_step() -> None:
    logits = logits_of(1, 50)
    kept = decode(encode(logits), N_VOCAB)
    expected = ln_softmax(logits)
    lowest = expected.max(axis=1, keepdims=True) - 16
    assert np.abs(kept - np.maximum(expected, lowest)).max() < 0.51 * 16 / 65535 + 2e-6


def test_a_row_of_equal_logits() -> None:
    kept = decode(encode(np.full((2, N_VOCAB), 3, np.float32)), N_VOCAB)
    np.testing.assert_allclose(kept, -math.log(N_VOCAB), rtol=1e-6)


def test_layout_of_the_file(tmp_path: Path) -> None:
    tokens = written(tmp_path / "x.kld")
    raw = (tmp_path / "x.kld").read_bytes()
    assert raw[:8] == b"_logits_" and struct.unpack("<3i", raw[8:20]) == (N_CTX, N_VOCAB, N_CHUNKS)
    assert struct.unpack(f"<{len(tokens)}i", raw[20 : 20 + 4 * len(tokens)]) == tuple(tokens)
    width = 2 * (4 + N_VOCAB + 1)  # an odd vocabulary is padded
    assert len(raw) == 20 + 4 * len(tokens) + width * SCORES * N_CHUNKS
    row = raw[20 + 4 * len(tokens) + width * (2 * SCORES + 1) :][:width]
    scale, least = struct.unpack("<2f", row[:8])
    q = struct.unpack(f"<{N_VOCAB}H", row[8 : 8 + 2 * N_VOCAB])
    expected = ln_softmax(logits_of(2))[1]
    expected = np.maximum(expected, expected.max() - 16)
    np.testing.assert_allclose([scale * v + least for v in q], expected, atol=3e-4)
    assert max(q) == 65535
    base = BaseFile(tmp_path / "x.kld")
    np.testing.assert_array_equal(base.tokens, tokens)
    whole = ln_softmax(logits_of(11))
    np.testing.assert_allclose(base.chunk(11), np.maximum(whole, whole.max(axis=1, keepdims=True) - 16), atol=3e-4)


def test_statistics_against_a_plain_loop() -> None:
    rng = np.random.default_rng(5)
    parts, nll, nll_base, kld, change, same = [], [], [], [], [], []
    for i in range(N_CHUNKS):
        base, q = logits_of(i), logits_of(i) + 0.5 * logits_of(100 + i)
        targets = rng.integers(N_VOCAB, size=SCORES)
        ln_base, ln_q = ln_softmax(base), ln_softmax(q)
        parts.append(compare(q, ln_base.astype(np.float32), targets))
        for row, target in enumerate(targets):
            p = np.exp(ln_base[row])
            kld.append(sum(p[t] * (ln_base[row, t] - ln_q[row, t]) for t in range(N_VOCAB)))
            nll.append(-ln_q[row, target])
            nll_base.append(-ln_base[row, target])
            change.append(math.exp(ln_q[row, target]) - p[target])
            same.append(int(np.argmax(ln_q[row]) == np.argmax(ln_base[row])))
    r = summary(parts, N_CTX, 1.0)
    n = len(kld)
    assert (r.n_scored, r.n_chunks, r.n_ctx) == (n, N_CHUNKS, N_CTX)

    def close(estimate: MeanWithError, values: list[float]) -> None:
        assert estimate.value == pytest.approx(np.mean(values), rel=1e-5, abs=1e-7)
        assert estimate.error == pytest.approx(np.std(values) / math.sqrt(n - 1), rel=1e-4)

    close(r.kld, kld)
    close(r.p_change, change)
    assert r.ppl.value == pytest.approx(math.exp(np.mean(nll)), rel=1e-5)
    assert r.ppl_base.value == pytest.approx(math.exp(np.mean(nll_base)), rel=1e-5)
    close(r.ln_ratio, [a - b for a, b in zip(nll, nll_base, strict=True)])
    assert r.correlation == pytest.approx(np.corrcoef(nll, nll_base)[0, 1], rel=1e-4)
    assert r.ratio.value == pytest.approx(r.ppl.value / r.ppl_base.value, rel=1e-9)
    assert r.difference.value == pytest.approx(r.ppl.value - r.ppl_base.value, rel=1e-9)
    assert r.p_change_rms.value == pytest.approx(math.sqrt(np.mean(np.square(change))), rel=1e-5)
    assert r.same_top.value == pytest.approx(np.mean(same))
    assert r.kld_percentiles[50] == pytest.approx(np.median(kld), rel=1e-4)
    assert (r.kld_percentiles[100], r.p_change_percentiles[0]) == pytest.approx((max(kld), min(change)), rel=1e-4)


def test_what_is_said_per_chunk_costs_one_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report equals the result for the chunks so far, without reading the earlier ones again."""
    written(tmp_path / "x.kld")
    base = BaseFile(tmp_path / "x.kld")
    q = [logits_of(i) + 0.5 * logits_of(100 + i) for i in range(N_CHUNKS)]
    targets = base.tokens.reshape(N_CHUNKS, N_CTX)[:, N_CTX // 2 + 1 :]
    parts = [compare(x, base.chunk(i), targets[i]) for i, x in enumerate(q)]
    sizes: list[int] = []

    def percentile(x: np.ndarray, wanted: object) -> np.ndarray:
        sizes.append(len(x))
        return np.zeros(13)

    said: list[KLDivergenceSoFar] = []
    expected = [summary(parts[: i + 1], N_CTX, 1.0) for i in range(N_CHUNKS)]
    monkeypatch.setattr(np, "percentile", percentile)
    monkeypatch.setattr(kl, "group_logits", lambda _, group: [q[group.first]])
    tokenizer = SimpleNamespace(add_bos=False, bos=None)
    model = SimpleNamespace(n_vocab=N_VOCAB, n_seq_max=1, path=Path("m.gguf"), tokenizer=tokenizer)
    result = kl.kl_divergence(model, base, progress=lambda i, n, so_far: said.append(so_far))  # type: ignore[arg-type]
    assert sizes == [SCORES * N_CHUNKS] * 2, "percentiles of something else than the whole, once"
    for so_far, e in zip(said, expected, strict=True):
        assert (so_far.n_scored, so_far.n_chunks) == (e.n_scored, e.n_chunks)
        for estimate, right in ((so_far.ppl, e.ppl), (so_far.ln_ratio, e.ln_ratio), (so_far.kld, e.kld)):
            assert (estimate.value, estimate.error) == pytest.approx((right.value, right.error), rel=1e-10)
    assert result.kld == expected[-1].kld and result.ppl == expected[-1].ppl


def test_tokens_below_the_range_count_for_nothing() -> None:
    """As in llama-perplexity: tokens whose p in the base is below e^-16 add nothing to the divergence."""
    base = ln_softmax(np.array([[20.0, 0.0, -20.0]], np.float32)).astype(np.float32)
    part = compare(np.array([[20.0, 0.0, -1000.0]], np.float32), base, np.array([0]))
    assert abs(part.kld[0]) < 1e-7


def test_files_that_are_no_base(tmp_path: Path) -> None:
    path = tmp_path / "x.kld"
    with pytest.raises(UsageError, match=r"x\.kld cannot be read: No such file or directory\.$") as refused:
        BaseFile(path)
    assert refused.value.remedy is Remedy.KL_DIVERGENCE_BASE
    for content, says in {
        b"": "holds no log-probabilities",
        b"_logits?" + bytes(12): "holds no log-probabilities",
        b"_logits_" + struct.pack("<3i", 512, -1, 4): "is damaged: it says 4 chunks of 512 tokens",
        b"_logits_" + struct.pack("<3i", 512, 100, 4): "is cut off: it has 20 bytes of",
    }.items():
        path.write_bytes(content)
        with pytest.raises(FormatError, match=rf"x\.kld {says}"):
            BaseFile(path)
    written(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match=r"is cut off"):
        BaseFile(path)


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), BaseWriter(tmp_path / "x.kld", [1, 2], 2, N_VOCAB):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(HybridError, match=r"x\.kld cannot be written: No such file or directory\. Give another"),
        BaseWriter(tmp_path / "none" / "x.kld", [1, 2], 2, N_VOCAB),
    ):
        pass
