"""A kernel before compilation: its function, the fields of its records, the sources it is made from."""

import inspect
import types as python_types
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from ..emit.emitter import Piece
from ..emit.fields import Layout
from .sources import digest

KERNEL_SIGNATURE = "void(int64,int64,int64)"


class Device:
    """A function that kernels call; it is compiled into each of them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.__name__ = function, function.__name__


def device(function: Callable[..., Any]) -> Any:
    """Make a function callable from kernels: @device."""
    return Device(function)


class KernelSource:
    """A function f(a, tid, nth, *, fields) that becomes `void(args, tid, nth)`; `a` is args, the address of a record.

    declaration  function whose keyword-only parameters are the fields of the records; default: `function`
    without      fields of `declaration` that this kernel lacks
    names        parameter -> name of its field, if it differs
    signature    of the machine code

    The name must be unique among kernels of the same sources: name and sources identify the cached file.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: str = KERNEL_SIGNATURE,
        *,
        declaration: Callable[..., Any] | None = None,
        without: Iterable[str] = (),
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.function, self.signature, self.name = function, signature, function.__qualname__
        declaration = declaration or function
        declared = Layout.of(declaration)
        self.layout = declared.named(self.name, without)
        own = (declared if declaration is function else Layout.of(function)).fields
        self.parameters = tuple((field, (names or {}).get(field.name, field.name)) for field in own)
        """The function's parameters, each with the name of its field. Parameters of the fields `without` are zero."""
        for field, name in self.parameters:
            place = declared.find(name)
            assert place is not None and place[1].kind is field.kind, f"{self.name} reads {name}, {field.kind.value}"
        self._modules = {function.__module__, declaration.__module__}

    @cached_property
    def file(self) -> str:
        """Name of the kernel's file in the cache."""
        return f"{self.name}-{digest(*sorted(self._modules | self._modules_of_callees()))}"

    def _modules_of_callees(self) -> set[str]:
        """Modules that define the pieces and devices the function calls: a variant's may come from anywhere."""
        return {callee.__module__ for callee in _callees(self.function)}

    @cached_property
    def code_size(self) -> int:
        """Bytes of Python bytecode of the kernel and its callees: estimates the time to compile."""
        seen: dict[Any, int] = {}
        pending: list[Any] = [self.function]
        while pending:
            function = pending.pop()
            if function not in seen:
                seen[function] = _code_size(function.__code__)
                pending += _callees(function)
        return sum(seen.values())

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


def _callees(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The Python functions of the pieces and devices that a function names."""
    for name in function.__code__.co_names:
        match function.__globals__.get(name):
            case Piece(body=callee) | Device(function=callee):
                yield callee


def _code_size(code: python_types.CodeType) -> int:
    return len(code.co_code) + sum(_code_size(c) for c in code.co_consts if isinstance(c, python_types.CodeType))


def with_globals(function: Callable[..., Any], name: str, scope: Mapping[str, Any]) -> Callable[..., Any]:
    """A copy of the function under another name, with some globals replaced."""
    missing = [item for item in scope if item not in function.__code__.co_names]
    assert not missing, f"{function.__name__} does not use {missing}"
    copy = python_types.FunctionType(function.__code__, {**function.__globals__, **scope}, name, function.__defaults__)
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, function.__annotations__
    copy.__qualname__, copy.__module__, copy.__doc__ = name, function.__module__, inspect.getdoc(function)
    return copy
