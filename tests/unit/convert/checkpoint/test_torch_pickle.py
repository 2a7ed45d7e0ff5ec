"""pytorch_model.bin is read without torch, and without running any of its code."""

import io
import os
import pickle
import pickletools
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
from torch_archive import archive, name, number, state, storage, tensor, text

from hybrid.convert.checkpoint import Dtype
from hybrid.convert.checkpoint.tensor import DataFile
from hybrid.convert.checkpoint.torch_pickle import PickleMachine
from hybrid.convert.checkpoint.torch_zip import read_torch
from hybrid.quant.ggml.errors import CheckpointError, HybridError, UnsupportedError

pytestmark = pytest.mark.exhaustive


@pytest.fixture
def opened(tmp_path):
    def write(pkl, members=None, **options):
        return DataFile(archive(tmp_path / "pytorch_model.bin", pkl, members, **options))

    return write


# --- sound files ---


def test_reads_values(opened):
    tensors = read_torch(opened(state(a=tensor(), b=tensor(offset=1, shape=(2,), strides=(1,)))))
    np.testing.assert_array_equal(tensors["a"].read(0, 6), np.arange(6))
    np.testing.assert_array_equal(tensors["b"].read(0, 2), [1, 2])
    assert (tensors["a"].dtype, tensors["a"].shape, tensors["a"].strides) == (Dtype.F32, (2, 3), None)


def test_strides_are_honoured(opened):
    tensors = read_torch(
        opened(
            state(
                transposed=tensor(shape=(3, 2), strides=(1, 3)),
                every_other=tensor(offset=1, shape=(3,), strides=(2,)),
                expanded=tensor(shape=(2, 3), strides=(0, 1)),
                column=tensor(offset=2, shape=(2, 1), strides=(3, 1)),
            )
        )
    )
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(tensors["transposed"].read(0, 6).reshape(3, 2), source.T)
    np.testing.assert_array_equal(tensors["transposed"].read(2, 4), source.T[1])
    np.testing.assert_array_equal(tensors["every_other"].read(0, 3), [1, 3, 5])
    np.testing.assert_array_equal(tensors["expanded"].read(0, 6), [0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(tensors["column"].read(0, 2), [2, 5])


def test_storages_of_all_types(opened):
    half = np.array([1.5, -2], np.float16).tobytes()
    members = {"data/0": half, "data/1": half, "data/2": np.array([3, 4], np.int64).tobytes()}
    two = {"shape": (2,), "strides": (1,)}
    tensors = read_torch(
        opened(
            state(
                h=tensor(storage("HalfStorage", "0", 2), **two),
                b=tensor(storage("BFloat16Storage", "1", 2), **two),
                i=tensor(storage("LongStorage", "2", 2), **two),
            ),
            members,
        )
    )
    assert [t.dtype for t in tensors.values()] == [Dtype.F16, Dtype.BF16, "I64"]
    np.testing.assert_array_equal(tensors["h"].read(0, 2), [1.5, -2])


def test_parameters_and_metadata(opened):
    parameter = name("torch._utils", "_rebuild_parameter") + b"(" + tensor() + b"\x88}tR"
    pkl = state(p=parameter)[:-1] + b"}" + text("_metadata") + b"}sb."
    assert read_torch(opened(pkl))["p"].shape == (2, 3)


def test_state_dict_inside(opened):
    inner = state(a=tensor())[2:-1]
    assert list(read_torch(opened(b"\x80\x02}" + text("state_dict") + inner + b"s."))) == ["a"]


def test_pickle_of_python_itself():
    """The output of Python's pickler for plain data, in the protocols that torch has used."""
    data = {"a": (1, -2, 3.5, True, None, "x" * 300), "b": [1, 2, 300, 70000], "c": OrderedDict()}
    for protocol in (2, 3, 4):
        assert PickleMachine("x").run(pickle.dumps(data, protocol)) == data


# --- hostile files ---


class Calls:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    "payload",
    [
        lambda flag: Calls(os.system, f"touch {flag}"),
        lambda flag: Calls(eval, f"open({str(flag)!r}, 'w')"),
        lambda flag: Calls(exec, f"open({str(flag)!r}, 'w')"),
        lambda flag: Calls(open, str(flag), "w"),
        lambda flag: {"weight": [Calls(os.mkdir, str(flag))]},
        lambda flag: OrderedDict(a=OrderedDict(b=Calls(getattr, "os", "system"))),
        lambda flag: Calls(__import__, "this"),
        lambda flag: io.BytesIO(b"x"),
    ],
)
def test_nothing_is_executed(opened, tmp_path, payload, protocol):
    flag = tmp_path / "flag"
    pkl = pickle.dumps(payload(flag), protocol)
    with pytest.raises(CheckpointError, match=r"asks for \w+\.\w+, which could run code\. Nothing was executed"):
        read_torch(opened(pkl))
    assert not flag.exists()


@pytest.mark.parametrize(
    "pkl",
    [
        b"\x80\x02" + name("os", "system") + text("true") + b"\x85R.",
        b"\x80\x02" + name("torch", "load") + text("x") + b"\x85R.",
        b"\x80\x02" + name("torch._utils", "_rebuild_tensor_v2.__globals__") + b".",
        b"\x80\x02" + name("collections", "OrderedDict.__init__") + b".",
        b"\x80\x04" + text("builtins") + text("eval") + b"\x93.",
        b"\x80\x02\x82\x01.",  # EXT1
        b"\x80\x02(i" + b"os\nsystem\n.",  # INST
        b"\x80\x02(c" + b"os\nsystem\no.",  # OBJ
        b"\x80\x02" + name("collections", "OrderedDict") + b")\x81.",  # NEWOBJ
        b"\x80\x02P0\n.",  # PERSID
    ],
)
def test_other_ways_to_run_code(pkl):
    with pytest.raises(CheckpointError, match="Nothing was executed"):
        PickleMachine("x").run(pkl)


@pytest.mark.parametrize(
    ("pkl", "message"),
    [
        (b"", "no end"),
        (b"\x80\x02", "no end"),
        (b"\xff", "for an opcode"),
        (b"\x80\x02.", "in the middle of an object"),
        (b"\x80\x02(.", "in the middle"),
        (b"\x80\x02}}.", "in the middle"),
        (b"\x80\x02h\x05.", "contradicts itself"),
        (b"\x80\x02t.", "contradicts itself"),
        (b"\x80\x02)R.", "contradicts itself"),
        (b"\x80\x02]" + text("k") + text("v") + b"s.", "is not a dictionary"),
        (b"\x80\x02}(" + text("k") + b"u.", "is not a dictionary"),
        (b"\x80\x02}(" + text("k") + b"N" + text("k") + b"Nu.", "k occurs twice"),
        (b"\x80\x02}])s.", "key that is not a string"),
        (b"\x80\x02}N" + b"a.", "appends to something that is not a list"),
        (b"\x80\x02" + text("x") + b"Q.", "storage in an unknown way"),
        (b"\x80\x02" + name("collections", "OrderedDict") + text("x") + b"R.", "unknown way"),
        (state(a=tensor(storage(key="../../etc"))), "storage in an unknown way"),
        (state(a=tensor(storage(numel=-1))), "storage in an unknown way"),
        (state(a=tensor(shape=(2, 3), strides=(3,))), "tensor in an unknown way"),
        (state(a=tensor(shape=(2, -3))), "tensor in an unknown way"),
        (state(a=tensor(strides=(-3, 1))), "tensor in an unknown way"),
        (state(a=tensor(offset=-1)), "tensor in an unknown way"),
        (state(a=tensor(offset=1)), "reaches beyond its storage of 6"),
        (state(a=tensor(shape=(3, 3))), "reaches beyond"),
        (state(a=tensor(strides=(2**30, 1))), "reaches beyond"),
        (state(a=tensor(store=name("torch", "FloatStorage"))), "tensor in an unknown way"),
    ],
)
def test_damaged_pickles(pkl, message):
    with pytest.raises(CheckpointError, match=message) as caught:
        PickleMachine("x").run(pkl)
    assert "\n" not in str(caught.value)


def test_every_cut_of_a_pickle_is_an_error():
    whole = state(a=tensor(), b=tensor(offset=1, shape=(2,), strides=(1,)))
    assert pickletools.dis(whole, io.StringIO()) is None
    for n in range(len(whole)):
        with pytest.raises(CheckpointError):
            PickleMachine("x").run(whole[:n])


def test_random_bytes_in_a_pickle_never_crash():
    whole = bytearray(state(a=tensor(), b=tensor(offset=1, shape=(2,), strides=(1,))))
    rng = np.random.default_rng(3)
    for _ in range(3000):
        broken = bytearray(whole)
        broken[rng.integers(len(whole))] = rng.integers(256)
        try:
            PickleMachine("x").run(bytes(broken))
        except HybridError as error:
            assert "\n" not in str(error)


def test_every_cut_of_the_archive_is_an_error(tmp_path):
    whole = archive(tmp_path / "whole.bin", state(a=tensor())).read_bytes()
    path = tmp_path / "pytorch_model.bin"
    for n in range(0, len(whole), 7):
        path.write_bytes(whole[:n])
        with pytest.raises(CheckpointError):
            read_torch(DataFile(path))


def test_random_bytes_in_the_archive_never_crash(tmp_path):
    whole = archive(tmp_path / "whole.bin", state(a=tensor())).read_bytes()
    path = tmp_path / "pytorch_model.bin"
    rng = np.random.default_rng(4)
    for _ in range(400):
        broken = bytearray(whole)
        broken[rng.integers(len(whole))] = rng.integers(256)
        path.write_bytes(broken)
        try:
            for t in read_torch(DataFile(path)).values():
                t.read(0, t.size)
        except HybridError:
            pass


@pytest.mark.parametrize(
    ("members", "options", "message"),
    [
        ({"data/1": b"\0" * 24}, {}, "the data of a is missing"),
        ({"data/0": b"\0" * 20}, {}, "cut off at 20 bytes, 24 were expected"),
        ({"data/0": b"\0" * 24}, {"compression": zipfile.ZIP_DEFLATED}, "is compressed"),
        ({"data/0": b"\0" * 24, "byteorder": b"big"}, {}, "big-endian"),
        ({"data/0": b"\0" * 24}, {"root": "a/b/c"}, "has no data.pkl"),
    ],
)
def test_damaged_archives(opened, members, options, message):
    with pytest.raises(HybridError, match=message):
        read_torch(opened(state(a=tensor()), members, **options))


def test_entries_that_are_no_tensors(opened):
    with pytest.raises(CheckpointError, match="entry epoch is not a tensor but int"):
        read_torch(opened(state(a=tensor(), epoch=number(3))))
    with pytest.raises(CheckpointError, match="holds no dictionary"):
        read_torch(opened(b"\x80\x02]."))


@pytest.mark.parametrize("head", [b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"x" * 257 + b"ustar" + b"\0" * 300])
def test_old_formats_are_named(tmp_path, head):
    (tmp_path / "pytorch_model.bin").write_bytes(head + b"\0" * 100)
    with pytest.raises(UnsupportedError, match=r"before 2020\. Load it with torch and save it again"):
        read_torch(DataFile(tmp_path / "pytorch_model.bin"))


def test_git_lfs_pointers_are_named(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(CheckpointError, match="git lfs pull"):
        read_torch(DataFile(tmp_path / "pytorch_model.bin"))
