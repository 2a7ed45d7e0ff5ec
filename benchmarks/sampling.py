"""Microseconds to sample one token, by settings and vocabulary size, beside llama.cpp's samplers.

    python benchmarks/sampling.py [--peer path/to/llama.cpp/build/bin] [--rounds 60] [--only dry xtc] [--write]

--peer names the folder of a libllama.so (llama.cpp built with shared libraries, its default), or the file. Both sides
sample from the same logits, in turn, block by block of all rows. A figure is the fastest of --rounds blocks, per token,
with the median in brackets: nothing else may compute meanwhile. llama.cpp's work is that of its
`common_sampler_sample`: fill the list of candidates (here by a compiled loop like its own), run the samplers that the
settings need with its own final sampler, accept the token. Ours is `Sampler.sample` and `accept`.

Logits: normal noise of deviation 2.2 for the whole vocabulary, and 400 possible tokens whose logits fall from the best
as those of trained models do (a line, then an exponential tail). The resulting entropy is printed. --write renews
benchmarks/SAMPLING.md.
"""

import argparse
import ctypes
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import numba
import numpy as np
from quiet import Watch

from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.bench.machine import cpu_name

PAGE = Path(__file__).with_name("SAMPLING.md")
VOCABULARIES = {"32k": 32_000, "65k": 65_536, "152k": 151_936, "256k": 256_000}
ROWS = 16  # rows of logits, used in turn: together they exceed the nearest cache
POSSIBLE = 400
WARM = 12  # blocks that do not count: then mirostat's state has settled
PENALTIES = {"repeat_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.1}
DRY = {"dry_multiplier": 0.8, "dry_breakers": ()}  # llama.cpp's breakers need a vocabulary of its own
OPEN = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temp": 0.0},
    "default": {},
    "default, penalties": PENALTIES,
    "default, dry": DRY,
    "default, typical 0.9": {"typ_p": 0.9},
    "default, top-n-sigma 1.5": {"top_n_sigma": 1.5},
    "default, xtc": {"xtc_probability": 0.5},
    "default, all of these": {**PENALTIES, **DRY, "typ_p": 0.9, "top_n_sigma": 1.5, "xtc_probability": 0.5},
    "temperature only": OPEN,
    "top-p 0.95 only": {**OPEN, "top_p": 0.95},
    "min-p 0.05 only": {**OPEN, "min_p": 0.05},
    "typical 0.9 only": {**OPEN, "typ_p": 0.9},
    "top-n-sigma 1.5 only": {**OPEN, "top_n_sigma": 1.5},
    "xtc only": {**OPEN, "xtc_probability": 0.5},
    "mirostat 1": {"mirostat": 1},
    "mirostat 2": {"mirostat": 2},
    "mirostat 2, tau 2": {"mirostat": 2, "mirostat_tau": 2.0},
    "adaptive-p 0.5, min-p": {**OPEN, "min_p": 0.05, "adaptive_target": 0.5},
    "adaptive-p 0.5 only": {**OPEN, "adaptive_target": 0.5},
}


def rows_of(n_vocab: int) -> np.ndarray:
    """f32 [ROWS, n_vocab]; see the head of this file."""
    rng = np.random.default_rng(n_vocab)
    logits = rng.normal(0, 2.2, (ROWS, n_vocab))
    for row in logits:
        some = rng.choice(n_vocab, POSSIBLE, replace=False)
        best = rng.uniform(16, 24)
        row[some] = best - np.concatenate(
            [[0], rng.exponential(1.2, 9).cumsum(), 5 + rng.exponential(3, POSSIBLE - 10)]
        )
    return logits.astype(np.float32)


def entropy(logits: np.ndarray) -> float:
    """Mean entropy of the rows in bits."""
    p = np.exp(logits - logits.max(axis=1, keepdims=True), dtype=np.float64)
    p /= p.sum(axis=1, keepdims=True)
    return float(-(p * np.log2(p)).sum(axis=1).mean())


# --- ours ---
def ours(params: SamplingParams, logits: np.ndarray) -> Callable[[], None]:
    """A function that samples a token from each row."""
    sampler = Sampler(params, logits.shape[1])

    def block() -> None:
        for row in logits:
            sampler.accept(sampler.sample(row))

    return block


# --- llama.cpp's ---
class _Data(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("selected", ctypes.c_int64),
        ("sorted", ctypes.c_bool),
    ]


class _ChainParams(ctypes.Structure):
    _fields_ = [("no_perf", ctypes.c_bool)]


_F, _I, _U, _N, _P = ctypes.c_float, ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p
_MADE: dict[str, list[Any]] = {
    "greedy": [], "dist": [_U], "top_k": [_I], "top_p": [_F, _N], "min_p": [_F, _N], "typical": [_F, _N],
    "temp": [_F], "temp_ext": [_F, _F, _F], "xtc": [_F, _F, _N, _U], "top_n_sigma": [_F],
    "penalties": [_I, _I, _F, _F, _F], "mirostat": [_I, _U, _F, _F, _I], "mirostat_v2": [_U, _F, _F],
    "dry": [_P, _F, _F, _I, _I, _P, _N], "adaptive_p": [_F, _F, _U],
}  # fmt: skip


class Library:
    """libllama's samplers."""

    def __init__(self, path: Path) -> None:
        self._lib = ctypes.CDLL(str(path / "libllama.so" if path.is_dir() else path))
        self.make_chain = self._function("chain_init", [_ChainParams], _P)
        self.add = self._function("chain_add", [_P, _P], None)
        self.apply = self._function("apply", [_P, _P], None)
        self.accept = self._function("accept", [_P, _I], None)
        self.free = self._function("free", [_P], None)

    def _function(self, name: str, arguments: list[Any], result: Any) -> Any:
        function = getattr(self._lib, f"llama_sampler_{name}")
        function.argtypes, function.restype = arguments, result
        return function

    def chain(self, params: SamplingParams, n_vocab: int) -> int:
        """The sampler chain of llama.cpp's programs for these settings, without samplers that do nothing."""
        chain: int = self.make_chain(_ChainParams(True))
        for name, *values in _steps(params, n_vocab):
            self.add(chain, self._function(f"init_{name}", _MADE[name], _P)(*values))
        return chain


def _steps(p: SamplingParams, n_vocab: int) -> list[tuple[Any, ...]]:
    if p.temp <= 0:
        return [("greedy",)]
    if p.mirostat == 1:
        return [("temp", p.temp), ("mirostat", n_vocab, 1, p.mirostat_tau, p.mirostat_eta, 100)]
    if p.mirostat == 2:
        return [("temp", p.temp), ("mirostat_v2", 1, p.mirostat_tau, p.mirostat_eta)]
    made = {
        "penalties": ("penalties", n_vocab, p.repeat_last_n, p.repeat_penalty, p.frequency_penalty, p.presence_penalty),
        "dry": ("dry", None, p.dry_multiplier, p.dry_base, p.dry_allowed_length, p.dry_last_n, None, 0),
        "top_n_sigma": ("top_n_sigma", p.top_n_sigma),
        "top_k": ("top_k", p.top_k),
        "typ_p": ("typical", p.typ_p, p.min_keep),
        "top_p": ("top_p", p.top_p, p.min_keep),
        "min_p": ("min_p", p.min_p, p.min_keep),
        "xtc": ("xtc", p.xtc_probability, p.xtc_threshold, p.min_keep, 1),
        "temperature": ("temp_ext", p.temp, p.dynatemp_range, p.dynatemp_exponent),
    }
    last = ("adaptive_p", p.adaptive_target, p.adaptive_decay, 1) if p.adaptive_target >= 0 else ("dist", 1)
    return [*(made[name] for name in p.plan), last]


@numba.njit
def fill(ids: np.ndarray, values: np.ndarray, logits: np.ndarray) -> None:
    """Fill llama_token_data [n_vocab] (id, logit, p) from logits; `ids` and `values` are views of the same bytes,
    [n_vocab, 3]."""
    for token in range(len(logits)):
        ids[token, 0] = token
        values[token, 1] = logits[token]
        values[token, 2] = 0.0


def theirs(library: Library, params: SamplingParams, logits: np.ndarray) -> Callable[[], None]:
    """The same function with llama.cpp's samplers."""
    n_vocab = logits.shape[1]
    chain = library.chain(params, n_vocab)
    ids = np.empty((n_vocab, 3), np.int32)
    values, address = ids.view(np.float32), ids.ctypes.data
    data = _Data()
    at = ctypes.addressof(data)

    def block() -> None:
        for row in logits:
            fill(ids, values, row)
            data.data, data.size, data.selected, data.sorted = address, n_vocab, -1, False
            library.apply(chain, at)
            assert data.selected >= 0
            # samplers may let `data` point to their own memory
            library.accept(chain, ctypes.c_int32.from_address(data.data + 12 * data.selected).value)

    return block


# --- measuring ---
@dataclass
class Row:
    """Microseconds per token: the fastest block, and the median one."""

    settings: str
    vocabulary: str
    ours: tuple[float, float]
    theirs: tuple[float, float] | None


def measured(blocks: list[Callable[[], None]], rounds: int) -> list[tuple[float, float]]:
    """(fastest, median) of each function, run in turn, after WARM blocks."""
    taken: list[list[float]] = [[] for _ in blocks]
    for n in range(rounds + WARM):
        for block, times in zip(blocks, taken, strict=True):
            begin = time.perf_counter()
            block()
            if n >= WARM:
                times.append((time.perf_counter() - begin) * 1e6 / ROWS)
    return [(min(times), median(times)) for times in taken]


def table(rows: list[Row]) -> str:
    """A Markdown table: one line per settings, one column per vocabulary."""
    names = list(dict.fromkeys(row.vocabulary for row in rows))
    lines = ["| settings | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for settings in dict.fromkeys(row.settings for row in rows):
        cells = [_cell(next(r for r in rows if (r.settings, r.vocabulary) == (settings, name))) for name in names]
        lines.append(f"| {settings} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: Row) -> str:
    ours = f"{row.ours[0]:.0f} ({row.ours[1]:.0f})"
    if row.theirs is None:
        return ours
    return f"{ours} / {row.theirs[0]:.0f} ({row.theirs[1]:.0f}): {row.theirs[0] / row.ours[0]:.1f}x"


def main() -> None:
    """Measure, print, and with --write write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", type=Path, help="folder of libllama.so, or the file")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", nargs="+", default=[], help="settings whose name has one of these words")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    given = parser.parse_args()
    library = Library(given.peer) if given.peer else None
    rows, notes = [], []
    with Watch() as watch:
        for vocabulary, n_vocab in VOCABULARIES.items():
            logits = rows_of(n_vocab)
            notes.append(f"{vocabulary} {entropy(logits):.1f}")
            for name, settings in SETTINGS.items():
                if given.only and not any(word in name for word in given.only):
                    continue
                params = SamplingParams(seed=1, **settings)
                blocks = [ours(params, logits), *([theirs(library, params, logits)] if library else [])]
                figures = measured(blocks, given.rounds)
                rows.append(Row(name, vocabulary, figures[0], figures[1] if library else None))
                print(f"{vocabulary:5} {name:26} {_cell(rows[-1])}", file=sys.stderr, flush=True)
    others = "" if watch.usage is None else f"; other processes used {watch.usage.others:.2f} cores"
    head = (
        f"{cpu_name()}; Python {sys.version.split()[0]}, numpy {np.__version__}, "
        f"hybrid {metadata.version('hybrid-lm')}; fastest of {given.rounds} blocks of {ROWS} tokens "
        f"(median){others}. Entropy of the logits, bits: {', '.join(notes)}."
    )
    print(f"{head}\n\n{table(rows)}")
    if given.write:
        PAGE.write_text(
            "# What drawing a token costs\n\nWritten by `benchmarks/sampling.py`, which says what is measured: "
            "microseconds a token, ours / llama.cpp's.\n\n" + f"{head}\n\n{table(rows)}\n"
        )


if __name__ == "__main__":
    main()
