"""`hybrid.load`: what it loads, and how."""

import os
from pathlib import Path

import numpy as np
import pytest

import hybrid
from hybrid.infer.evaluate.embed import Embedder


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"parallel": 0}, "parallel = 0, expected 1 or more"),
        ({"context": -1}, "n_ctx = -1"),
        ({"keys_values": "f64"}, "keys and values are kept in one of"),
        ({"cache": "much"}, "cache much: expected a size"),
        ({"pooling": "all"}, "pooling = 'all', expected cls, mean or last"),
        ({"template": "{% if %}"}, "template: "),
        ({"cpus": "0-3"}, r"cpus = '0-3': expected a list of processors"),
        ({"cpus": [0, 0]}, "cpus"),
        ({"numa": "none"}, "numa = 'none': expected one of interleave"),
    ],
)
def test_what_cannot_be(gguf: Path, settings: dict[str, object], says: str) -> None:
    with pytest.raises(hybrid.HybridError, match=says) as caught:
        hybrid.load(gguf, **settings)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["none.gguf", Path("none.gguf")])
def test_no_such_model(name: "str | Path") -> None:
    with pytest.raises(hybrid.HybridError, match=r"none\.gguf: no such file or folder"):
        hybrid.load(name)


def test_settings_arrive(gguf: Path) -> None:
    with hybrid.load(gguf, context=128, parallel=2, keys_values="q8_0", precision="exact", cache=0) as model:
        inner = model.answering.model
        assert (inner.n_ctx, inner.n_seq_max, inner.kv_type, inner.cache) == (128, 3, inner.kv_type, None)
        assert inner.precision == "exact" and model.context == 128 and "Jamba" in repr(model)
        assert model.complete("A", tokens=4).finish == "length"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not pin threads")
def test_threads_are_pinned(gguf: Path) -> None:
    allowed = os.sched_getaffinity(0)
    with hybrid.load(gguf, context=128, cpus=[max(allowed)]) as model:
        assert model.complete("A", tokens=4).finish == "length"
        assert model.answering.model.n_threads == 1, "one for each of them"
    assert os.sched_getaffinity(0) == allowed


def test_an_encoder(bert: Path) -> None:
    with Embedder(bert) as embedder:
        expected = embedder.embed(["hello", "there is more"])
    with hybrid.load(bert) as model:
        assert np.array_equal(model.embed(["hello", "there is more"]), expected)
        with pytest.raises(hybrid.HybridError, match="is an encoder: it makes embeddings only") as caught:
            model.complete("a")
        assert caught.value.__notes__ == ["Use model.embed(texts)."]
        assert model.context and model.tokenize("hello")
