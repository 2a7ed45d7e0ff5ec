"""A stand-in for `hybrid.infer.LoadedModel` that predicts from the sum of all its tokens and keeps a clock.

Each call takes a fixed time on `clock`, so that results made of times can be checked to the digit.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

N_VOCAB = 11


def log_probs(tokens: list[int]) -> np.ndarray:
    """f64 [N_VOCAB] after these tokens: different for every sum, so a wrong start or a leftover state shows."""
    x = np.sin(np.arange(N_VOCAB) * (1.0 + sum(tokens) + 0.1 * len(tokens)))
    return x - np.log(np.exp(x).sum())


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


class FakeSequence:
    def __init__(self, model: "FakeModel"):
        self.model = model
        self.tokens: list[int] = []
        self.extra: dict[str, Any] = {}
        model.open += 1
        assert model.open <= model.memory.n_seq_max, "more sequences than the model has"

    def _append(self, ids: list[int]) -> np.ndarray:
        assert ids
        assert all(0 <= i < N_VOCAB for i in ids)
        self.tokens += ids
        assert len(self.tokens) <= self.model.n_ctx, "longer than n_ctx"
        return log_probs(self.tokens)

    def prefill(self, ids: list[int]) -> np.ndarray:
        self.model.calls.append(("prefill", len(self.tokens), len(ids)))
        self.model.clock.now += 0.001 * len(ids)
        return self._append(ids)

    def decode(self, token: int) -> np.ndarray:
        self.model.calls.append(("decode", len(self.tokens), 1))
        self.model.clock.now += 0.01
        return self._append([token])

    def fill(self, ids: list[int]) -> None:
        self.model.calls.append(("fill", len(self.tokens), len(ids)))
        self.tokens = list(ids)
        assert len(self.tokens) <= self.model.n_ctx, "longer than n_ctx"

    def clear(self) -> None:
        self.tokens = []

    def copy(self) -> "FakeSequence":
        self.model.clock.now += 0.0005
        other = FakeSequence(self.model)
        other.tokens = list(self.tokens)
        return other

    def save(self, path: Path, extra: dict[str, Any] | None = None) -> None:
        self.model.clock.now += 0.02
        Path(path).write_bytes(bytes(4 * len(self.tokens)))

    def close(self, *, remember: bool = True) -> None:
        self.model.open -= 1


class FakeModel:
    def __init__(self, n_ctx: int = 64, n_seq_max: int = 1, add_bos: bool = True, bos: int | None = 1):
        self.n_ctx, self.n_seq_max = n_ctx, n_seq_max
        self.memory = SimpleNamespace(n_seq_max=n_seq_max)
        self.path, self.arch, self.file_type, self.precision = Path("/m/fake.gguf"), "jamba", "Q8_0", "fast"
        self.kv_type = "f16"
        self.numa = None
        self.n_bytes, self.n_params, self.n_threads, self.n_vocab = 3_360_000_000, 3_029_000_000, 2, N_VOCAB
        self.compile_seconds, self.n_compiled = 0.25, 17
        self.tokenizer = SimpleNamespace(bos=bos, add_bos=add_bos, encode=self._encode)
        self.clock = Clock()
        self.calls: list[tuple[str, int, int]] = []
        self.batches: list[int] = []
        self.open = 0
        self.closed = False
        self.broken = False

    def _encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        ids = [ord(c) % N_VOCAB for c in text]
        return [self.tokenizer.bos, *ids] if add_special and self.tokenizer.add_bos else ids

    def sequence(self) -> FakeSequence:
        return FakeSequence(self)

    def restore(self, path: Path, seq: FakeSequence | None = None) -> FakeSequence:
        self.clock.now += 0.004
        other = FakeSequence(self)
        other.tokens = [0] * (Path(path).stat().st_size // 4)
        return other

    def eval(self, works: list[Any]) -> list[Any]:
        self.batches.append(len(works))
        self.clock.now += 0.002
        results = []
        for work in works:
            rows = []
            for token in work.ids:
                rows.append(work.seq._append([token]))
            if work.targets is None:
                wanted = work.output if isinstance(work.output, slice) else slice(-1, None)
                logits = np.array(rows)[wanted]
                results.append(SimpleNamespace(nll=None, logits=logits * np.nan if self.broken else logits))
                continue
            picked = np.array(rows)[work.output]
            assert len(picked) == len(work.targets) > 0
            nll = -picked[np.arange(len(picked)), list(work.targets)]
            results.append(SimpleNamespace(nll=nll * np.nan if self.broken else nll, logits=None))
        return results

    def close(self) -> None:
        assert self.open == 0, "a sequence was left open"
        self.closed = True
