"""read(write(x)) = x for any metadata and tensors."""

import math
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import TRAITS, VALUE_CODE, ArrayOf, GGMLType, ValueType
from hybrid.quant.ggml.writer import GGUFWriter

NUMBERS = {
    kind: st.booleans()
    if kind is ValueType.BOOL
    else st.floats(width=64 if code == "d" else 32, allow_nan=False)
    if code in "fd"
    else st.integers(int(np.iinfo(code).min), int(np.iinfo(code).max))
    for kind, code in VALUE_CODE.items()
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
KINDS = {**NUMBERS, ValueType.STRING: TEXT}


@st.composite
def values(draw: st.DrawFn) -> tuple[ValueType | ArrayOf, object]:
    kind = draw(st.sampled_from(sorted(KINDS)))
    if draw(st.booleans()):
        return kind, draw(KINDS[kind])
    return ArrayOf(kind), draw(st.lists(KINDS[kind], min_size=1, max_size=9))


@st.composite
def tensors(draw: st.DrawFn) -> tuple[GGMLType, tuple[int, ...]]:
    kind = draw(st.sampled_from(sorted(GGMLType)))
    outer = draw(st.lists(st.integers(1, 4), max_size=3))
    return kind, (*outer, draw(st.integers(1, 4)) * TRAITS[kind].block)


@settings(max_examples=60)
@given(
    st.dictionaries(
        TEXT.filter(lambda k: k not in ("general.architecture", "general.alignment")), values(), max_size=8
    ),
    st.dictionaries(TEXT.filter(lambda k: len(k.encode()) < 64), tensors(), max_size=5),
)
def test_what_is_written_is_read(
    key_values: dict[str, tuple[ValueType | ArrayOf, object]], infos: dict[str, tuple[GGMLType, tuple[int, ...]]]
) -> None:
    rng = np.random.default_rng(0)
    data = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.gguf"
        with GGUFWriter(path, "arch") as w:
            for key, (kind, value) in key_values.items():
                w.add(key, value, kind)
            for name, (kind, shape) in infos.items():
                w.declare(name, shape, kind)
                nbytes = math.prod(shape) // TRAITS[kind].block * TRAITS[kind].nbytes
                data[name] = rng.integers(0, 256, nbytes, np.uint8)
            for name, raw in data.items():
                w.write(name, iter(np.array_split(raw, 3)))
        with GGUFFile.open(path) as f:
            assert list(f.metadata) == ["general.architecture", *key_values]
            for key, (kind, value) in key_values.items():
                back = f.metadata[key]
                assert f.value_types[key] == kind
                assert (back.tolist() if isinstance(kind, ArrayOf) else back) == value
            assert list(f.tensors) == list(infos)
            for name, (kind, shape) in infos.items():
                t = f.tensors[name]
                assert (t.type, t.shape) == (kind, shape) and t.offset % 32 == 0
                np.testing.assert_array_equal(f.raw(name).reshape(-1), data[name])
