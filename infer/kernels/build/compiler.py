"""From a kernel's Python function to machine code: numba's front end, then LLVM, once.

numba itself serves all kinds of functions. It runs passes for features that kernels do not use, searches all its
libraries for the type of every call, optimizes every function alone and again when they are linked, and compiles Python
wrappers for all callees. Here a kernel gets only the steps it needs: numba reads it, infers its types and writes LLVM
IR; finding its callees costs nothing; all is optimized together once and compiled once. Compiling a model's kernels
takes half of numba's own time (see docs/decisions.md).

LLVM does not vectorize: kernels are written with vectors where it pays.
"""
# This module is imported when a kernel has to be compiled.
# ruff: noqa: TID253

import operator
import sys
import types as python_types
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import compiler, types
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.datamodel import models, register_default
from numba.core.lowering import Lower
from numba.core.registry import cpu_target
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import IRLegalization, NativeLowering, NopythonTypeInference, PreLowerStripPhis
from numba.core.typing import signature as typed
from numba.core.untyped_passes import FixupArgs, IRProcessing, ReconstructSSA, TranslateByteCode

from ..emit import isa
from ..emit.emitter import F32, I64, VOID, Emitter, Piece, Value, const
from ..emit.fields import Kind, load_field
from .kernel import Device, KernelSource
from .object_cache import CompiledObject

_IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.imod, operator.itruediv)
_COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
_OPERATORS = {
    *_IN_PLACE, *_COMPARISONS,
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.truediv,
    operator.and_, operator.or_, operator.lshift, operator.rshift, bool,
}  # fmt: skip
_KINDS = {"i64": types.int64, "f32": types.float32, "f64": types.float64, "i32": types.int32, "void": types.void}
# argument types of a call -> its type, and a function (context, builder, type, arguments) -> value that writes it
_Call = tuple[Any, Callable[[Any, Any, Any, Sequence[Value]], Value]]


class _Callee(types.Callable, types.Opaque):
    """numba type of a global that kernels call."""

    def __init__(self, what: Any, call: Callable[..., _Call]) -> None:
        self._what, self._call = what, call  # `what` is kept alive, so that its id stays unique
        self._calls: dict[tuple[Any, ...], Any] = {}
        super().__init__(f"{type(what).__name__} {what.__name__} {id(what)}")

    def get_call_type(self, context: Any, args: Sequence[Any], kws: Any) -> Any:
        key = tuple(types.unliteral(a) for a in args)
        if key not in self._calls:
            call_type, write = self._call(*key)
            cpu_target.target_context.insert_func_defn([(write, self, call_type.args)])
            self._calls[key] = call_type
        return self._calls[key]

    def get_call_signatures(self) -> tuple[list[Any], bool]:
        return list(self._calls.values()), True

    def get_impl_key(self, sig: Any) -> Any:
        return self


register_default(_Callee)(models.OpaqueModel)


# --- functions that kernels call --------------------------------------------------------------------------------------
def _piece(piece: Piece) -> Callable[..., _Call]:
    arguments, result = piece.sig.split("->")
    call_type = typed(_KINDS[result], *(_KINDS[k] for k in arguments.split(",") if k))

    def write(context: Any, builder: Any, _type: Any, args: Sequence[Value]) -> Value:
        e = Emitter(builder, piece.isa)
        if piece.apart:
            value = e.function(piece.__name__, piece.body, *args, result={"void": VOID, "i64": I64}[result])
        else:
            value = piece.body(e, *args)
        return context.get_dummy_value() if result == "void" else value

    return lambda *_: (call_type, write)


def _device(device: Device) -> Callable[..., _Call]:
    def call(*args: Any) -> _Call:
        lowered, library = _lowered(device.function, args, None)

        def write(context: Any, builder: Any, call_type: Any, values: Sequence[Value]) -> Value:
            context.add_linking_libs([library])
            return context.call_internal(builder, lowered, call_type, values)

        return typed(lowered.restype, *args), write

    return call


def _extreme(builtin: "_Builtin") -> Callable[..., _Call]:
    """Python's min or max of several i64 or several f32: the first unless another is less (or greater)."""

    def call(*args: Any) -> _Call:
        kind = args[0]
        assert kind in (types.int64, types.float32), f"min or max of {kind}"
        assert set(args) == {kind}, f"min or max of {args}"

        def write(_context: Any, builder: Any, _type: Any, values: Sequence[Value]) -> Value:
            compare = builder.icmp_signed if kind is types.int64 else builder.fcmp_ordered
            best = values[0]
            for value in values[1:]:
                best = builder.select(compare(builtin.sign, value, best), value, best)
            return best

        return typed(kind, *args), write

    return call


class _Builtin:
    def __init__(self, name: str, sign: str) -> None:
        self.__name__, self.sign = name, sign


_BUILTINS = {"min": _Builtin("min", "<"), "max": _Builtin("max", ">")}


class _Global:
    """Stands for a callee among a function's globals; numba asks it for its type."""

    def __init__(self, what: Any, call: Callable[..., _Call]) -> None:
        self._numba_type_ = _Callee(what, call)


def _load_registries() -> None:
    """Load numba's registries of types and functions, but delay its search for a BLAS, which imports scipy if installed
    (0.6 s) and which kernels do not need. Other users of numba get the BLAS on first use."""
    from numba.np import linalg

    look = linalg.ensure_blas
    if "numba.np.arraymath" not in sys.modules:

        def none() -> None:
            raise ImportError

        linalg.ensure_blas = none
        try:
            from numba.np import arraymath
        finally:
            linalg.ensure_blas = look
        arraymath.ensure_blas, arraymath._HAVE_BLAS = look, _Later(arraymath._check_blas)
    cpu_target.target_context.refresh()
    cpu_target.typing_context.refresh()


class _Later:
    """A condition, evaluated when it is tested."""

    def __init__(self, ask: Callable[[], bool]) -> None:
        self._ask = ask

    def __bool__(self) -> bool:
        return self._ask()


@cache
def _global(what: Any) -> _Global:
    make = _piece if isinstance(what, Piece) else _device if isinstance(what, Device) else _extreme
    return _Global(what, make(what))


def _bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of the function whose callees are replaced by objects that numba can type, with positional fields."""
    scope = dict(function.__globals__)
    for name in function.__code__.co_names:
        what = scope.get(name, _BUILTINS.get(name))
        if isinstance(what, Piece | Device | _Builtin):
            scope[name] = _global(what)
    # keyword-only parameters follow the others in a function's code
    n = function.__code__.co_argcount + function.__code__.co_kwonlyargcount
    code = function.__code__.replace(co_argcount=n, co_kwonlyargcount=0)
    bound = python_types.FunctionType(code, scope, function.__name__)
    bound.__qualname__, bound.__module__ = function.__qualname__, function.__module__
    return bound


# --- the front end ----------------------------------------------------------------------------------------------------
class _Library(CPUCodeLibrary):
    """LLVM modules of a kernel and its callees, linked but not optimized."""

    def add_llvm_module(self, ll_module: Any) -> None:
        self._final_module.link_in(ll_module)

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


class _Typing(type(cpu_target.typing_context)):  # type: ignore[misc]
    """numba's typing context, plus a cache for operators on numbers: each lookup takes 0.3 ms."""

    def __init__(self) -> None:
        self.__dict__ = cpu_target.typing_context.__dict__
        self._operators: dict[tuple[Any, ...], Any] = {}

    def resolve_function_type(self, func: Any, args: Sequence[Any], kws: Any) -> Any:
        plain = tuple(types.unliteral(a) for a in args)
        key = getattr(func, "typing_key", None), plain
        if key[0] not in _OPERATORS or kws or not all(isinstance(a, types.Number) for a in plain):
            return super().resolve_function_type(func, args, kws)
        if key not in self._operators:
            self._operators[key] = super().resolve_function_type(func, plain, kws)
        return self._operators[key]


class _Lower(Lower):
    """numba's lowering to LLVM, direct for operators on numbers: numba would first look for a special version for each
    constant operand, which only powers have, at 1 ms per operator."""

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        wanted = self.fndesc.calltypes[expr]
        if op not in _OPERATORS or not all(isinstance(a, types.Number) for a in wanted.args):
            return super().lower_binop(resty, expr, op)
        operands = [
            self.context.cast(self.builder, self.loadvar(operand.name), self.typeof(operand.name), kind)
            for operand, kind in zip((expr.lhs, expr.rhs), wanted.args, strict=True)
        ]
        write = self.context.get_function(*_operation(op, wanted.args))
        result = write(self.builder, operands)
        return self.context.cast(self.builder, result, wanted.return_type, resty)


@cache
def _operation(op: Any, args: tuple[Any, ...]) -> Any:
    """numba's function for an operator on numbers of these types, and its signature."""
    function = _TYPING.resolve_value_type(op)
    return function, function.get_call_type(_TYPING, args, {})


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "hybrid_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        return _Lower


_PASSES = (
    TranslateByteCode,
    FixupArgs,
    IRProcessing,
    ReconstructSSA,
    NopythonTypeInference,
    PreLowerStripPhis,
    IRLegalization,
    _Lowering,
)


class _Compiler(compiler.CompilerBase):
    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("kernel")
        for each in _PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]


_load_registries()
_TYPING = _Typing()


def _lowered(function: Callable[..., Any], args: Sequence[Any], result: Any) -> tuple[Any, _Library]:
    """numba's descriptor of the function, and its LLVM code; `result` None: inferred."""
    target = cpu_target.target_context
    flags: Any = compiler.Flags()
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = flags.enable_ssa = True
    flags.enable_pyobject = flags.nrt = False
    flags.error_model = "numpy"
    library = _Library(target.codegen(), function.__qualname__)
    bound = _bound(function)
    done = compiler.compile_extra(_TYPING, target, bound, tuple(args), result, flags, {}, library, _Compiler)
    return done.fndesc, library


def _add_entry(symbol: str, source: KernelSource, lowered: Any, library: _Library) -> None:
    """Add a C function `symbol` that reads the fields of a record and calls the kernel with them.

    numba's own function takes an address for its result and returns an exception status, which kernels do not need.
    """
    target = cpu_target.target_context
    module = target.create_module("entry")
    results = [] if lowered.restype == types.void else [target.get_value_type(lowered.restype)]
    n = len(lowered.argtypes) - len(source.parameters)
    kind = target.call_conv.get_function_type(lowered.restype, lowered.argtypes)
    kernel = ir.Function(module, kind, lowered.llvm_func_name)
    entry_type = ir.FunctionType(
        results[0] if results else VOID, [target.get_value_type(t) for t in lowered.argtypes[:n]]
    )
    entry = ir.Function(module, entry_type, symbol)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    e = Emitter(builder)
    fields = [
        const(F32 if field.kind is Kind.FLOAT else I64, 0)
        if source.layout.find(name) is None
        else load_field(e, entry.args[0], source.layout, name)
        for field, name in source.parameters
    ]
    args = [*entry.args, *fields]
    _, value = target.call_conv.call_function(builder, kernel, lowered.restype, lowered.argtypes, args)
    builder.ret(value) if results else builder.ret_void()
    library.add_ir_module(module)


# --- LLVM -------------------------------------------------------------------------------------------------------------
@cache
def machine() -> Any:
    """LLVM's target machine, for the processor that numba compiles for: numba's, or one like it that also has the
    features which only the system names."""
    codegen = cpu_target.target_context.codegen()
    if not isa.system_features():
        return codegen._tm
    flags = ",".join(f"+{name}" for name in sorted(isa.cpu_features()))
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=isa.cpu_target(), features=flags, opt=3, reloc="default", codemodel="jitdefault", jit=True
    )


@global_compiler_lock
def optimized(kernel: KernelSource) -> tuple[Any, str]:
    """The optimized LLVM module of a kernel, and the name of its only visible function."""
    args, result = normalize_signature(kernel.signature)
    fields = [types.float32 if field.kind is Kind.FLOAT else types.int64 for field, _ in kernel.parameters]
    lowered, library = _lowered(kernel.function, [*args, *fields], result)
    symbol = f"hybrid_{kernel.name}"
    _add_entry(symbol, kernel, lowered, library)
    library.finalize()
    module = library._final_module
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration and item.name != symbol:
            item.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine(), options)
    builder.getModulePassManager().run(module, builder)
    return module, symbol


def compile_kernel(kernel: KernelSource) -> CompiledObject:
    """Machine code of a kernel. It calls only functions of the C library."""
    module, symbol = optimized(kernel)
    foreign = [f.name for f in module.functions if f.is_declaration and f.name.startswith(("numba_", "NRT_", "Py"))]
    assert not foreign, f"{kernel.name} needs Python: {foreign}"
    return CompiledObject(symbol, machine().emit_object(module))


def assembly(kernel: KernelSource) -> str:
    return str(machine().emit_assembly(optimized(kernel)[0]))
