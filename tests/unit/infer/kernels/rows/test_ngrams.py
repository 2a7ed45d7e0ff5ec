"""Hashes of n-grams to the bit, and their gates against twins."""

import numpy as np
import pytest
from reference import qwen4_exp as twin
from reference.run_kernel import guarded, record, run

from hybrid.infer.kernels.rows.ngrams import gate_streams, hash_ngrams, numbered_tokens, sum_ngrams

LAST = (1 << 24) - 2  # largest id that numbers can name


def hashed(ids: list[int], n_gram: int, n_each: int, end: int, numbers: list[list[int]], n_threads: int = 1) -> list:
    """Rows of all tokens of a text, from windows that `numbered_tokens` writes."""
    n = len(ids)
    numbered = np.full((n, 3), 7.25, np.float32)
    given = np.array(ids, np.int64)
    run(numbered_tokens, record(numbered_tokens, count=np.array([n]), tokens=given, out=numbered), n_threads)
    assert (numbered[:, 1:] == 7.25).all()
    padded = np.concatenate([np.zeros(n_gram - 1, np.float32), numbered[:, 0]])
    windows = np.stack([padded[t : t + n_gram] for t in range(n)])
    factors, sizes, offsets = (np.array(x, np.int64) for x in numbers)
    rows = np.full((n + 1, len(sizes)), -1, np.int64)
    fields = record(
        hash_ngrams,
        count=np.array([n]),
        x=windows,
        n_gram=n_gram,
        n_each=n_each,
        end=end,
        factors=factors,
        sizes=sizes,
        offsets=offsets,
        rows=rows,
    )
    run(hash_ngrams, fields, n_threads)
    assert (rows[n:] == -1).all()
    return rows[:n].tolist()


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("n_gram", "n_each", "n_vocab"), [(2, 1, 40), (3, 8, 1 << 24), (5, 3, 50000)])
def test_hashes(n_gram: int, n_each: int, n_vocab: int, n_threads: int) -> None:
    """With consecutive end tokens, at the start of a text, and as far back as windows reach."""
    rng = np.random.default_rng(n_gram)
    config = {
        "vocab_size": n_vocab,
        "ngram_size": n_gram,
        "heads_per_ngram": n_each,
        "ngram_vocab_size_base": 1000003,
        "seed": 1 << 40,
    }
    end = 7
    ids = rng.integers(0, n_vocab, 60).tolist()
    for t in (0, 11, 12, 20, 20 + n_gram, 41):
        ids[t] = end
    ids[30] = min(n_vocab - 1, LAST)
    numbers = twin.constants(config, 0)
    assert max(numbers[0]) * (n_vocab - 1) > 1 << 58
    assert hashed(ids, n_gram, n_each, end, [*numbers], n_threads) == twin.hashed(ids, n_each, end, *numbers)


def test_products_beyond_63_bits_wrap_as_those_of_torch() -> None:
    factors, sizes, offsets = [(1 << 62) + 12345, (1 << 61) + 7], [1009], [3]
    ids, end, mixed = [5, 900, 77], 2, []
    with np.errstate(over="ignore"):
        for t, now in enumerate(ids):
            before = ids[t - 1] if t else end
            mixed.append(int(np.int64(now) * np.int64(factors[0]) ^ np.int64(before) * np.int64(factors[1])))
    assert min(mixed) < 0
    assert hashed(ids, 2, 1, end, [factors, sizes, offsets]) == [[m % 1009 + 3] for m in mixed]


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("n_tok", "n_stream", "n"), [(1, 2, 1), (5, 3, 7), (3, 4, 32), (2, 5, 131)])
def test_gates(n_tok: int, n_stream: int, n: int, n_threads: int) -> None:
    rng = np.random.default_rng(n)
    key, query = (rng.standard_normal((n_tok, n_stream, n)).astype(np.float32) for _ in range(2))
    key[-1, -1] = 0
    value = rng.standard_normal((n_tok, n + 3)).astype(np.float32)
    whole, out = guarded((n_tok, n_stream * n))
    fields = record(
        gate_streams,
        count=np.array([n_tok]),
        key=key.reshape(n_tok, -1),
        query=query.reshape(n_tok, -1),
        value=value,
        out=whole,
        n_stream=n_stream,
        n=n,
        scale=np.float32(n**-0.5),
    )
    run(gate_streams, fields, n_threads)
    assert (whole[:, n_stream * n :] == 7.25).all()
    want = twin.gate_streams(*(x.astype(np.float64) for x in (key, query, value[:, :n])))
    got = out.reshape(want.shape)
    lengths = np.linalg.norm(key, axis=2) * np.linalg.norm(query, axis=2) * n**-0.5
    bound = (1e-6 + np.sqrt(1e-6 * lengths) / 4)[:, :, None] * abs(value[:, None, :n])
    assert (abs(got - want) <= bound).all()
    assert (got[-1, -1] == np.float32(0.5) * value[-1, :n]).all(), "without a sign there is none to take"


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(
    ("n_gram", "n_each", "base", "n_row"), [(2, 1, 40, 9), (4, 3, 1 << 24, 1 << 30), (5, 2, 50000, 77)]
)
def test_sums(n_gram: int, n_each: int, base: int, n_row: int, n_threads: int) -> None:
    """Against numbers to the base, in Python's integers; texts as in `test_hashes`."""
    rng, n_part, end = np.random.default_rng(n_gram), (n_gram - 1) * n_each, 7
    ids = rng.integers(0, base - 1, 60).tolist()
    for t in (0, 11, 12, 20, 20 + n_gram, 41):
        ids[t] = end
    ids[30] = min(base - 1, LAST)
    sizes = [n_row + 2 * j + 1 for j in range(n_part)]
    offsets = [sum(sizes[:j]) for j in range(n_part)]
    windows = np.zeros((60, n_gram), np.float32)
    for t in range(60):
        for i in range(min(t + 1, n_gram)):
            windows[t, n_gram - 1 - i] = ids[t - i] + 1
    factors = np.array([[pow(base, i, size) for i in range(n_gram)] for size in sizes], np.int64)
    rows = np.full((61, n_part), -1, np.int64)
    fields = record(
        sum_ngrams, count=np.array([60]), x=windows, n_gram=n_gram, n_each=n_each, end=end, factors=factors,
        sizes=np.array(sizes), offsets=np.array(offsets), rows=rows,
    )  # fmt: skip
    run(sum_ngrams, fields, n_threads)
    assert (rows[60] == -1).all()
    for t in range(60):
        for j in range(n_part):
            length = 1
            while length < min(j // n_each + 2, t + 1) and ids[t - length] != end:
                length += 1
            number = sum(ids[t - i] * base**i for i in range(length))
            assert rows[t, j] == number % sizes[j] + offsets[j]
