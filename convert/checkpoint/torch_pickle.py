"""Reads the pickle inside a torch checkpoint with a machine that cannot execute anything.

Python's unpickler calls any function that the file names. This one knows only the opcodes of torch's state dicts, and
replaces the few names that they use by inert descriptions; any other opcode or name is an error that names it.
"""

import io
import pickletools
from dataclasses import dataclass
from typing import Any, NoReturn

from hybrid.quant.ggml.errors import CheckpointError, shown

from .tensor import Dtype

STORAGES: dict[str, Dtype | str] = {
    "DoubleStorage": Dtype.F64,
    "FloatStorage": Dtype.F32,
    "HalfStorage": Dtype.F16,
    "BFloat16Storage": Dtype.BF16,
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
}
CALLABLE = {
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
}
_MARK = object()
# Everything else that a pickle can hold is refused before its argument is looked at.
_ALLOWED = {
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
    "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE",
    "TUPLE1", "TUPLE2", "TUPLE3", "SETITEM", "SETITEMS", "APPEND", "APPENDS", "BINPUT", "LONG_BINPUT", "MEMOIZE",
    "BINGET", "LONG_BINGET", "GLOBAL", "STACK_GLOBAL", "BINPERSID", "REDUCE", "BUILD",
}  # fmt: skip
_OPCODES = {op.code.encode("latin-1"): op for op in pickletools.opcodes if op.name in _ALLOWED}
assert len(_OPCODES) == len(_ALLOWED)


@dataclass(frozen=True)
class Global:
    """A name that the pickle refers to. It is never looked up."""

    module: str
    name: str


@dataclass(frozen=True)
class Storage:
    """A block of `numel` elements, in the archive member `data/<key>`."""

    dtype: Dtype | str
    key: str
    numel: int


@dataclass(frozen=True)
class View:
    """A tensor: a strided view into a storage; offset and strides in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class PickleMachine:
    """A stack, a memo and the opcodes. An instance reads one pickle."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        """The object that the pickle describes: containers, numbers, strings, `View`s. CheckpointError: others."""
        stream = io.BytesIO(data)
        try:
            while True:
                code = stream.read(1)
                opcode = _OPCODES.get(code)
                if not code:
                    raise self.damaged("its pickle has no end")
                if opcode is None:
                    self.refuse(code)
                elif opcode.name == "STOP":
                    if len(self.stack) != 1 or self.stack[0] is _MARK:
                        raise self.damaged("its pickle ends in the middle of an object")
                    return self.stack[0]
                else:
                    self.step(opcode.name, _argument(opcode, stream))
        except (ValueError, IndexError, KeyError, OverflowError, TypeError) as error:
            raise self.damaged(f"its pickle breaks off or contradicts itself ({type(error).__name__})") from None

    def refuse(self, code: bytes) -> NoReturn:
        """The error for a pickle with a forbidden opcode or name."""
        known = next((op for op in pickletools.opcodes if op.code.encode("latin-1") == code), None)
        if known is None:
            raise self.damaged(f"its pickle has the byte {code!r} for an opcode")
        raise CheckpointError(
            f"{self.where} is not a plain set of tensors: its pickle uses the opcode {known.name}. "
            "Nothing was executed."
        )

    def step(self, name: str, argument: Any) -> None:  # noqa: C901  a case for each instruction
        """Executes one instruction."""
        stack = self.stack
        if name in ("PROTO", "FRAME"):
            return
        if name in (
            "BINUNICODE",
            "SHORT_BINUNICODE",
            "BINUNICODE8",
            "BININT",
            "BININT1",
            "BININT2",
            "LONG1",
            "BINFLOAT",
        ):
            stack.append(argument)
        elif name in ("NONE", "NEWTRUE", "NEWFALSE"):
            stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
            stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "TUPLE":
            stack.append(tuple(self.to_mark()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(self.pop_n(int(name[-1]))))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.top()
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.top()
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name == "GLOBAL":
            module, _, attribute = argument.partition(" ")
            stack.append(self.known(module, attribute))
        elif name == "STACK_GLOBAL":
            module, attribute = self.pop_n(2)
            stack.append(self.known(module, attribute))
        elif name == "BINPERSID":
            stack.append(self.storage(*self.pop_n(1)))
        elif name == "REDUCE":
            stack.append(self.reduce(*self.pop_n(2)))
        elif name == "BUILD":
            self.pop_n(1)  # attributes of an OrderedDict (torch's _metadata): nothing that weights need
            if not isinstance(self.top(), dict):
                raise self.damaged("its pickle sets attributes of an object that has no attributes")
        elif name in ("SETITEM", "SETITEMS"):
            items = self.pop_n(2) if name == "SETITEM" else self.to_mark()
            self.set_items(items)
        elif name in ("APPEND", "APPENDS"):
            items = self.pop_n(1) if name == "APPEND" else self.to_mark()
            if not isinstance(self.top(), list):
                raise self.damaged("its pickle appends to something that is not a list")
            self.top().extend(items)
        else:
            raise AssertionError(name)

    def known(self, module: Any, name: Any) -> Global:
        """The description of a name that state dicts use. CheckpointError: any other name."""
        if (module, name) in CALLABLE or (module == "torch" and name in STORAGES):
            return Global(module, name)
        raise CheckpointError(
            f"{self.where} is not a plain set of tensors: its pickle asks for {shown(module)}.{shown(name)}, which "
            "could run code. Nothing was executed; do not load this file with other tools."
        )

    def storage(self, identity: Any) -> Storage:
        """The storage that a persistent id refers to."""
        if isinstance(identity, tuple) and len(identity) == 5:
            tag, kind, key, _, numel = identity
            if (
                tag == "storage"
                and isinstance(kind, Global)
                and kind.name in STORAGES
                and isinstance(key, str)
                and key.isalnum()
                and _natural(numel)
            ):
                return Storage(STORAGES[kind.name], key, numel)
        raise self.damaged("its pickle describes a storage in an unknown way")

    def reduce(self, function: Any, arguments: Any) -> Any:
        """The result of a call of one of the known functions."""
        if isinstance(function, Global) and isinstance(arguments, tuple):
            if function.name == "OrderedDict" and not arguments:
                return {}
            if function.name == "_rebuild_parameter" and arguments and isinstance(arguments[0], View):
                return arguments[0]
            if function.name == "_rebuild_tensor_v2" and len(arguments) >= 4:
                return self.view(*arguments[:4])
        raise self.damaged("its pickle builds a tensor in an unknown way")

    def view(self, storage: Any, offset: Any, shape: Any, strides: Any) -> View:
        """A tensor, checked to lie inside its storage."""
        sound = (
            isinstance(storage, Storage)
            and _natural(offset)
            and isinstance(shape, tuple)
            and isinstance(strides, tuple)
            and len(shape) == len(strides) <= 16
            and all(map(_natural, shape))
            and all(map(_natural, strides))
        )
        if not sound:
            raise self.damaged("its pickle describes a tensor in an unknown way")
        last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        if all(shape) and last >= storage.numel:
            raise self.damaged(f"a tensor of shape {shown(shape)} reaches beyond its storage of {storage.numel} values")
        return View(storage, offset, shape, strides)

    def set_items(self, items: list[Any]) -> None:
        """Puts pairs from the stack into the dict below them."""
        target = self.top()
        if not isinstance(target, dict) or len(items) % 2:
            raise self.damaged("its pickle sets items of something that is not a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, (str, int)):
                raise self.damaged("its pickle has a dictionary key that is not a string")
            if key in target:
                raise self.damaged(f"{shown(key)} occurs twice")
            target[key] = value

    def top(self) -> Any:
        """The value on the stack. CheckpointError: the stack is empty."""
        if not self.stack or self.stack[-1] is _MARK:
            raise IndexError
        return self.stack[-1]

    def pop_n(self, n: int) -> list[Any]:
        """Removes and returns the last n values of the stack."""
        if len(self.stack) < n or any(item is _MARK for item in self.stack[-n:]):
            raise IndexError
        items = self.stack[-n:]
        del self.stack[-n:]
        return items

    def to_mark(self) -> list[Any]:
        """Removes and returns the values above the last mark, with the mark."""
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                items = self.stack[i + 1 :]
                del self.stack[i:]
                return items
        raise IndexError

    def damaged(self, what: str) -> CheckpointError:
        """The error for an invalid pickle."""
        return CheckpointError(f"{self.where} is damaged: {what}. Download it again.")


def _argument(opcode: pickletools.OpcodeInfo, stream: io.BytesIO) -> Any:
    if opcode.name == "GLOBAL":  # two lines; the library's reader would undo escapes that do not belong there
        lines = [stream.readline() for _ in range(2)]
        if not all(line.endswith(b"\n") for line in lines):
            raise ValueError
        return " ".join(line[:-1].decode("utf-8") for line in lines)
    return opcode.arg.reader(stream) if opcode.arg else None


def _natural(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62
