"""A writer of torch files, opcode by opcode: torch is not installed for the tests."""

import zipfile

import numpy as np


def text(s):
    raw = s.encode()
    return b"X" + len(raw).to_bytes(4, "little") + raw


def number(n):
    return b"J" + n.to_bytes(4, "little", signed=True)


def numbers(values):
    return b"(" + b"".join(map(number, values)) + b"t"


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


def storage(kind="FloatStorage", key="0", numel=6):
    return b"(" + text("storage") + name("torch", kind) + text(key) + text("cpu") + number(numel) + b"tQ"


def tensor(store=None, offset=0, shape=(2, 3), strides=(3, 1), function=("torch._utils", "_rebuild_tensor_v2")):
    hooks = name("collections", "OrderedDict") + b")R"
    arguments = (store or storage()) + number(offset) + numbers(shape) + numbers(strides) + b"\x89" + hooks
    return name(*function) + b"(" + arguments + b"tR"


def state(**entries):
    items = b"".join(text(key) + value for key, value in entries.items())
    return b"\x80\x02" + name("collections", "OrderedDict") + b")R(" + items + b"u."


def archive(path, pkl, members=None, *, compression=zipfile.ZIP_STORED, root="archive"):
    with zipfile.ZipFile(path, "w", compression) as z:
        z.writestr(f"{root}/data.pkl", pkl)
        for key, data in (members or {"data/0": np.arange(6, dtype=np.float32).tobytes()}).items():
            z.writestr(f"{root}/{key}", data)
    return path
