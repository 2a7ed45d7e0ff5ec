"""Op records: the fields that a kernel declares, the values that an op gives them, and how emitted code reads them.

A kernel's fields are the keyword-only parameters of its function. Its record has an int64 for each, in that order:

    Address   memory, in a program's arena or anywhere else
    Int       i64
    Float     f32, in the low half
    Counter   address of an i64 that is zero when a run begins; a program has one per op whose kernel declares it

A field with a default may be omitted. A stride in bytes comes with its rows: field `ldx` is the stride of `x`, field
`ld` the stride of all rows without their own. Without `x`, `ldx` is omitted also.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from .core import F32, I64, EmitterCore, Value, const

RECORD = 32  # int64 of an op record: the kernel's address and up to 31 fields; four cache lines
_INTEGERS, _FLOATS = (int, np.integer), (float, np.floating)  # `isinstance` is slower with `int | np.integer`
OF_THE_OP = ("name", "nbytes", "flops", "work")  # an op's arguments that are not fields: see `Builder.op`


class Kind(Enum):
    ADDRESS = "an address"
    INT = "an integer"
    FLOAT = "a float"
    COUNTER = "a counter"


Address = Annotated[int, Kind.ADDRESS]
Int = Annotated[int, Kind.INT]
Float = Annotated[float, Kind.FLOAT]
Counter = Annotated[int, Kind.COUNTER]


@dataclass(frozen=True)
class Field:
    """A field of a record. Without a `default`, every op must give its value."""

    name: str
    kind: Kind
    default: int | float | None = None

    def accepts(self, value: Any) -> bool:
        """Whether the type of `value` fits: FLOAT takes floats, INT integers, the others anything but floats."""
        if self.kind is Kind.INT:
            return isinstance(value, _INTEGERS)
        is_float = isinstance(value, _FLOATS)
        return is_float if self.kind is Kind.FLOAT else not is_float

    def word(self, value: int | float) -> int:
        """The value as the int64 of a record."""
        if self.kind is Kind.FLOAT:
            return int(np.float32(value).view(np.uint32))
        return int(value)


@dataclass(frozen=True)
class Layout:
    """The fields of a kernel's records."""

    kernel: str
    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        assert len(names) < RECORD, f"{self.kernel} has {len(names)} fields, a record has room for {RECORD - 1}"
        taken = sorted({*names} & {*OF_THE_OP})
        assert not taken, f"{self.kernel}: fields cannot have the names {taken}"

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Layout":
        """The layout that a function's keyword-only parameters declare."""
        code, defaults = function.__code__, function.__kwdefaults__ or {}
        names = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        fields = []
        for name in names:
            kind = getattr(function.__annotations__.get(name), "__metadata__", (None,))[0]
            assert isinstance(kind, Kind), f"{function.__name__}: field {name} is not an Address, Int, Float or Counter"
            fields.append(Field(name, kind, defaults.get(name)))
        return cls(function.__name__, tuple(fields))

    def named(self, kernel: str, without: Iterable[str] = ()) -> "Layout":
        """The layout of another kernel, which lacks the fields `without`."""
        unknown = {*without} - {field.name for field in self.fields}
        assert not unknown, f"{kernel}: cannot remove {sorted(unknown)}, which are not fields"
        return replace(self, kernel=kernel, fields=tuple(f for f in self.fields if f.name not in without))

    @cached_property
    def _places(self) -> dict[str, tuple[int, Field]]:
        return {field.name: (i, field) for i, field in enumerate(self.fields)}

    @cached_property
    def _strides(self) -> dict[str, str]:
        """Field that may be rows -> the field with its stride."""
        names = self._places.keys()
        return {name: own for name in names if (own := "ld" + name if "ld" + name in names else "ld") in names}

    def find(self, name: str) -> tuple[int, Field] | None:
        """Index and field of a name, or None."""
        return self._places.get(name)

    def arranged(
        self, given: Mapping[str, Any], strides: Mapping[str, int], counter: Callable[[], Any]
    ) -> list[tuple[Field, Any]]:
        """Every field with its value. `given`: values by name, None: omitted; `strides`: of the fields that are rows.

        Raises TypeError for missing fields, unknown fields, and values of the wrong type.
        """
        values = {name: value for name, value in given.items() if value is not None}
        self._add_strides(values, strides)
        wrong = [f"there is no field {name}" for name in given if name not in self._places]
        record = []
        for field in self.fields:
            name, value = field.name, values.get(field.name)
            if value is not None:
                if not field.accepts(value):
                    wrong.append(f"{name} is {field.kind.value}, not {value!r}")
            elif field.kind is Kind.COUNTER:
                value = counter()
            elif field.default is not None:
                value = field.default
            else:
                value = 0
                wrong.append(f"{name} is missing")
            record.append((field, value))
        if wrong:
            raise TypeError(f"op {self.kernel}: {'; '.join(wrong)}. Its fields: {', '.join(self._places)}.")
        return record

    def _add_strides(self, values: dict[str, Any], strides: Mapping[str, int]) -> None:
        """Add the strides of rows to `values`, and zeros for the own strides of omitted rows."""
        filled: dict[str, int] = {}
        for name, stride in strides.items():
            own = self._strides.get(name)
            if own is None:
                continue
            if own in values or filled.setdefault(own, stride) != stride:
                raise TypeError(f"op {self.kernel}: {own} is given by {name}, and again with another value")
        values |= filled
        for name, own in self._strides.items():
            if own == "ld" + name and name not in values:
                values.setdefault(own, 0)


# --- in the emitter ---------------------------------------------------------------------------------------------------
class RowsAt:
    """One column (or a vector of columns) of rows: element t is t * stride bytes after `start`."""

    def __init__(self, e: EmitterCore, start: Value, stride: Value) -> None:
        self.e, self.start, self.stride = e, start, stride

    def at(self, t: Value) -> Value:
        return self.e.at(self.start, self.e.b.mul(t, self.stride))

    def load(self, ty: Any, t: Value) -> Value:
        return self.e.load(ty, self.at(t))

    def store(self, value: Value, t: Value) -> None:
        self.e.store(value, self.at(t))


class Fields:
    """The fields of a record as attributes; each access emits a load. of: the Kernel, or its layout."""

    def __init__(self, e: EmitterCore, record: Value, of: Any) -> None:
        self._e, self._record = e, record
        self._layout: Layout = of if isinstance(of, Layout) else of.layout

    def __getattr__(self, name: str) -> Value:
        return load_field(self._e, self._record, self._layout, name)

    def rows(self, name: str, token: Value, column: Value, stride: str = "") -> RowsAt:
        """Rows of the field `name`, from `token` and `column` on; their stride is the field `stride` or `ld` + name."""
        b, ld = self._e.b, getattr(self, stride or "ld" + name)
        offset = b.add(b.mul(token, ld), b.shl(column, const(I64, 2)))
        return RowsAt(self._e, self._e.at(getattr(self, name), offset), ld)


def load_field(e: EmitterCore, record: Value, layout: Layout, name: str) -> Value:
    """Load a field as i64 or f32."""
    place = layout.find(name)
    if place is None:
        raise AttributeError(f"{layout.kernel} has no field {name}")
    i, field = place
    return e.load(F32 if field.kind is Kind.FLOAT else I64, record, 8 * i)
