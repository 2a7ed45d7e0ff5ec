"""benchmarks/sampling.py: every setting runs, and llama.cpp's samplers get the same settings as ours."""

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sampling as module

from hybrid.infer.answers.sampling import Sampler, SamplingParams

pytestmark = pytest.mark.exhaustive

PEER = Path(os.environ.get("PEER", "")) / "libllama.so"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VOCABULARIES", {"1k": 1000, "2k": 2000})


def test_every_setting_is_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["sampling.py", "--rounds", "1"])
    module.main()
    table = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row[0].strip() for row in table[2:]] == list(module.SETTINGS)
    assert all(len(row) == 3 and "(" in row[1] for row in table[2:])


def test_the_logits_are_as_trained_models_have_them() -> None:
    """Some bits of entropy, mostly among few tokens, for any vocabulary."""
    for n_vocab in (32_000, 256_000):
        logits = module.rows_of(n_vocab)
        assert 2 < module.entropy(logits) < 6
        p = np.exp(logits.astype(np.float64))
        p = np.sort(p / p.sum(axis=1, keepdims=True), axis=1)[:, ::-1]
        assert p[:, :40].sum(axis=1).mean() > 0.7 and p[:, 0].mean() < 0.9


def test_a_fast_block_and_a_median_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first blocks do not count; blocks of both sides alternate."""
    monkeypatch.setattr(module, "WARM", 2)
    calls: list[str] = []
    figures = module.measured([lambda: calls.append("a"), lambda: calls.append("b")], 3)
    assert calls == ["a", "b"] * 5 and all(0 <= least <= middle for least, middle in figures)
    rows = [module.Row("x", "1k", (2.0, 3.0), (5.0, 6.0)), module.Row("x", "2k", (4.0, 4.4), None)]
    assert module.table(rows).splitlines() == [
        "| settings | 1k | 2k |",
        "|---|---:|---:|",
        "| x | 2 (3) / 5 (6): 2.5x | 4 (4) |",
    ]


@pytest.mark.skipif(not PEER.exists(), reason="PEER has no libllama.so: llama.cpp was built without shared libraries")
@pytest.mark.parametrize("settings", module.SETTINGS.values(), ids=module.SETTINGS)
def test_both_draw_from_the_same(settings: dict[str, Any]) -> None:
    """The first draw's candidates and probabilities are equal, with random samplers switched off."""
    settings = {**settings, **({"xtc_probability": 1.0} if "xtc_probability" in settings else {})}
    params, logits = SamplingParams(seed=1, **settings), module.rows_of(2000)[0]
    library = module.Library(PEER)
    ours, chain = Sampler(params, 2000), library.chain(params, 2000)
    for token in [*np.argsort(-logits)[:8].tolist(), *np.argsort(-logits)[:6].tolist()]:
        ours.accept(token)
        library.accept(chain, token)
    ids = np.empty((2000, 3), np.int32)
    values = ids.view(np.float32)
    module.fill(ids, values, logits)
    data = module._Data(ids.ctypes.data, 2000, -1, False)
    library.apply(chain, ctypes.addressof(data))
    token = ours.sample(logits)
    if ours.probabilities is None:
        assert int(ids[data.selected, 0]) == token
        return
    left = np.ctypeslib.as_array(ctypes.cast(data.data, ctypes.POINTER(ctypes.c_int32)), (data.size, 3))
    known = zip(left[:, 0].tolist(), left.view(np.float32)[:, 2].tolist(), strict=True)
    theirs = {token: p for token, p in known if p > 0}  # top-n-sigma leaves tokens that cannot be drawn
    mine = dict(zip(*(column.tolist() for column in ours.probabilities), strict=True))
    assert mine.keys() == theirs.keys()
    total = sum(theirs.values())
    # llama.cpp normalizes again after every step, in float32; ours does once
    np.testing.assert_allclose([theirs[i] / total for i in mine], list(mine.values()), rtol=2e-5, atol=1e-6)
    library.free(chain)
