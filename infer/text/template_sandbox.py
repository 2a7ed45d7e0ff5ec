"""Runs chat templates: jinja2's sandbox, with a budget that every possibly long operation asks first.

jinja2 is imported with this module (0.1 s). Its sandbox keeps a template from everything but its arguments, but limits
neither time nor memory. So the syntax tree of a template is changed before it is compiled: loops, literals, slices,
comparisons, `+` and `~` become our filters, and jinja2's filters are wrapped. Names of our filters begin with a star,
which no template can write.
"""

import functools
import json
import operator
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError
from jinja2.exceptions import TemplateError as JinjaError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_eval_context

from . import template_sizes
from .template_budget import SMALL, Budget, LimitError

MAX_BITS = 4096  # limit on a number
_BODY = 32  # nodes of the body of a loop or macro that count as a step

_SCALARS = frozenset({str, int, float, bool, type(None)})
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda a, b: a in b,
    "notin": lambda a, b: a not in b,
}
_TESTS = {
    "in": "in",
    **dict.fromkeys(("==", "eq", "equalto"), "eq"),
    **dict.fromkeys(("!=", "ne"), "ne"),
    **dict.fromkeys(("<", "lt", "lessthan"), "lt"),
    **dict.fromkeys(("<=", "le"), "lteq"),
    **dict.fromkeys((">", "gt", "greaterthan"), "gt"),
    **dict.fromkeys((">=", "ge"), "gteq"),
}
_SHORT = frozenset(["abs", "attr", "count", "d", "default", "first", "items", "last", "length"])
"""Filters that take no time and make no large values."""
_SHALLOW = frozenset(
    ["batch", "list", "map", "random", "reject", "rejectattr", "reverse", "select", "selectattr", "slice"]
)
"""Filters that read only the value itself and its elements."""
_LISTING = frozenset(["batch", "groupby", "join", "list", "max", "min", "slice", "sort", "unique"])
"""Filters that first make a list of their value, or read all of it."""
_UNUSED = ("urlize", "wordwrap", "xmlattr")  # they make HTML and lines; no template needs them
_BUILT_IN = (str, list, tuple, dict, int, float, type)
_UNBOUNDED = frozenset({"encode", "translate", "to_bytes", "from_bytes", "fromhex"})  # methods of these, not callable
_OWN_ARGUMENTS = ("_block_vars", "_loop_vars")  # arguments that jinja2 adds to a call
_LONGEST_FORM = 256  # characters of a format for strftime
_LONGEST_REASON = 1000  # characters of a message that the template raises


class _Generator(CodeGenerator):
    """Does not evaluate constant expressions at compile time, when nothing is counted."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Any, finalize: Any) -> str:
        if not isinstance(node, nodes.Const | nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


class _Template(jinja2.Template):
    """A template that writes values by `Sandbox.text`."""

    @classmethod
    def _from_namespace(cls, environment: Any, namespace: Any, globals: Any) -> Any:
        namespace["str"] = environment.text
        return super()._from_namespace(environment, namespace, globals)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of a chat template. budget: counts and limits of the current rendering."""

    intercepted_binops = frozenset({"*", "**", "-", "%"})  # and +, which is `_added`
    code_generator_class = _Generator
    template_class = _Template

    def __init__(self) -> None:
        # optimized would evaluate constants before anything is counted
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, loopcontrols],
            optimized=False,
        )
        self.budget = Budget()
        self._plain_join = self.filters["join"]
        self.filters |= {
            "format": self._format,
            "join": pass_eval_context(functools.partial(self._join)),
            "sum": self._sum,
            "tojson": self._tojson,
        }
        for name in _UNUSED:
            del self.filters[name]
        for name in self.filters.keys() - _SHORT:
            self.filters[name] = self._guarded(name, self.filters[name])
        compared = {name: self._comparing(compare) for name, compare in _COMPARISONS.items()}
        self.filters |= {f"*{name}": function for name, function in compared.items()}
        self.filters |= {
            "*added": self._added,
            "*counted": self.budget.counted,
            "*joined": self._joined,
            "*made": self.budget.made,
            "*walked": self._walked,
            "*step": self.budget.step,
        }
        self.tests |= {name: compared[same] for name, same in _TESTS.items()}
        self.tests |= {
            "lower": lambda value: self.text(value).islower(),
            "upper": lambda value: self.text(value).isupper(),
        }
        del self.globals["lipsum"]
        self.globals["raise_exception"] = self._raise
        self.globals["strftime_now"] = _strftime_now

    # --- the syntax tree ---
    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        parts: Any = list(tree.find_all((nodes.Macro, nodes.CallBlock, nodes.Block)))
        for part in parts:
            cost = nodes.Const(_size(part) // _BODY, lineno=part.lineno)
            part.body.insert(0, nodes.ExprStmt(_filter("*step", cost), lineno=part.lineno))
        for loop in list(tree.find_all(nodes.For)):
            loop.iter = _filter("*counted", loop.iter, nodes.Const(1 + _size(loop) // _BODY, lineno=loop.lineno))
        _exchange(tree)
        return tree

    # --- operations ---
    def _walked(self, value: Any) -> Any:
        self.budget.walk(value)
        return self.budget.made(value)

    def text(self, value: Any) -> str:
        """A value as text."""
        if type(value) is str:
            return value
        if type(value) not in _SCALARS:
            self.budget.walk(value)
        return str(value)

    def concat(self, parts: Iterable[str]) -> str:
        """Join the text of a `set` block, a macro or a filter block. Called by jinja2."""
        if not isinstance(parts, list | tuple):
            parts = list(parts)
        size = sum(map(len, parts))
        if size > SMALL:
            self.budget.room(size)
        text: str = self.budget.made("".join(parts))
        return text

    def _joined(self, *parts: Any) -> str:
        """The operator `~`."""
        return self.concat([part if type(part) is str else self.text(part) for part in parts])

    def _added(self, *values: Any) -> Any:
        """The operator `+`, for two or more values."""
        for value in values:
            if type(value) is not str:
                return functools.reduce(lambda a, b: self.call_binop(None, "+", a, b), values)
        return self.concat(values)

    def _comparing(self, compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        budget = self.budget

        def compared(left: Any, right: Any) -> Any:
            kind, other = type(left), type(right)
            if kind is str and other is str:
                budget.used += len(right)
            elif not (kind in _SCALARS and (other in _SCALARS or other is dict)):
                budget.walk(left, right)
                if isinstance(left, str) and isinstance(
                    right, list | tuple
                ):  # each may be as long, and differ at its end
                    budget.touch(len(left) * len(right))
            return compare(left, right)

        return compared

    def call(self, /, context: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        budget = self.budget
        budget.step(5)
        for value in (*args, *kwargs.values()) if kwargs else args:
            if type(value) is tuple:  # hashing tuples in tuples may take forever
                budget.walk(value)
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, _BUILT_IN):
            if method.__name__ in _UNBOUNDED:
                raise SecurityError(f"{method.__name__} of {type(owner).__name__} is not safely callable")
            for name in _OWN_ARGUMENTS:
                kwargs.pop(name, None)
            args = template_sizes.check_call(budget, owner, method.__name__, args, kwargs)
            return budget.made(function(*args, **kwargs))
        return budget.made(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """The operators + - * ** %. Raises LimitError if the result would be too large. Called by jinja2."""
        kind, other = type(left), type(right)
        if operator == "**":
            template_sizes.power(right)
        elif operator == "%" and isinstance(left, str):
            template_sizes.formatted(self.budget, left, "%", right)
        elif not (kind in _SCALARS and other in _SCALARS) or (operator == "*" and (kind is str or other is str)):
            self._grown(operator, left, right)
        result = self.binop_table[operator](left, right)
        if isinstance(result, int):
            if result.bit_length() > MAX_BITS:
                raise LimitError(f"it computes a number of more than {MAX_BITS} bits")
            return result
        return self.budget.made(result)

    def _grown(self, operator: str, left: Any, right: Any) -> None:
        """Count `left + right`, `left - right` or `left * right` before it runs, if one of them has a length."""
        sizes = [len(value) if hasattr(value, "__len__") else 0 for value in (left, right)]
        size = sum(sizes)
        if operator == "*":
            times = [value if isinstance(value, int) else 0 for value in (left, right)]
            size = max(sizes[0] * times[1], sizes[1] * times[0])
        if isinstance(left, str) or isinstance(right, str):
            self.budget.room(size)
        elif size > 0:
            self.budget.pieces(size)

    # --- filters ---
    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The filter `name`, made to ask the budget first. Its first argument may be an object of jinja2."""
        budget, check = self.budget, template_sizes.FILTERS.get(name)
        listing, deep = name in _LISTING, name not in _SHALLOW

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            if len(args) == 1 and not kwargs and type(args[0]) is str and len(args[0]) <= SMALL:
                budget.used += len(args[0])
                result = function(args[0])
                return budget.made(result) if type(result) is str else result
            if listing:
                args = tuple(list(value) if isinstance(value, Iterator) else value for value in args)
            for value in (*args, *kwargs.values()) if kwargs else args:
                if type(value) is str:
                    if len(value) > SMALL:
                        budget.touch(len(value))
                        if listing:
                            budget.pieces(len(value))
                elif deep and type(value) not in _SCALARS:
                    budget.walk(value)
            if check is not None:
                check(budget, *args, **kwargs)
            result = function(*args, **kwargs)
            return self._each_made(result) if isinstance(result, Iterator) else budget.made(result)

        return run

    def _each_made(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self.budget.step()
            yield self.budget.made(item)

    def _attributes(self, items: Iterable[Any], attribute: Any) -> list[Any]:
        return list(items if attribute is None else map(make_attrgetter(self, attribute), items))

    def _join(self, context: Any, items: Iterable[Any], d: Any = "", attribute: Any = None) -> Any:
        values = self._attributes(items, attribute)
        characters, _ = self.budget.walk(values)
        self.budget.room(characters + len(values) * len(str(d)))
        return self._plain_join(context, values, d)

    def _format(self, form: Any, *args: Any, **kwargs: Any) -> Any:
        """`form % args`, or `form % kwargs`."""
        if args and kwargs:
            raise ValueError("the filter 'format' takes values or names, not both")
        return self.call_binop(None, "%", self.text(form), kwargs or args)

    def _sum(self, items: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
        for item in self._attributes(items, attribute):
            start = self.call_binop(None, "+", start, item)
        return start

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        # jinja2's own escapes <, > and & for HTML
        if indent is not None or separators is not None:
            characters, depth = self.budget.walk(value)
            width = (
                len(indent) if isinstance(indent, str) else max(0, template_sizes.count(indent, "the filter 'tojson'"))
            )
            between = sum(map(len, separators or ()))
            self.budget.room(characters + characters // 2 * between + characters // 8 * width * depth)
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def _raise(self, message: Any) -> None:
        raise JinjaError(self.text(message)[:_LONGEST_REASON])


class _Generation(Extension):
    """{% generation %} marks text that a model is trained on; here it has no effect."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _strftime_now(form: str) -> str:
    if len(form) > _LONGEST_FORM:
        raise LimitError(f"it writes a date in a format of more than {_LONGEST_FORM} characters")
    return datetime.now().strftime(form)


# --- the syntax tree of a template ---
def _filter(name: str, first: Any, *others: Any) -> nodes.Filter:
    return nodes.Filter(first, name, list(others), [], None, None, lineno=first.lineno)


def _size(node: nodes.Node) -> int:
    return sum(1 for _ in node.find_all(nodes.Node))


def _exchange(node: nodes.Node) -> None:
    """Replace unlimited operations by limited ones, everywhere below a node."""
    for name, value in list(node.iter_fields()):
        if isinstance(value, list):
            setattr(node, name, [_exchanged(item) for item in value])
        else:
            setattr(node, name, _exchanged(value))


def _exchanged(item: Any) -> Any:
    if not isinstance(item, nodes.Node):
        return item
    _exchange(item)
    match item:
        case nodes.Add():
            left: Any = item.left
            merged = isinstance(left, nodes.Filter) and left.name == "*added"
            return _filter("*added", *([left.node, *left.args] if merged else [left]), item.right)
        case nodes.Concat():
            return _filter("*joined", *item.nodes)
        case nodes.Getitem(arg=nodes.Slice()):
            return _filter("*made", item)
        case nodes.Tuple(ctx="load") if not _is_constant(item):
            return _filter("*walked", item)
        case nodes.List() | nodes.Dict() if not _is_constant(item):
            return _filter("*made", item)
        case nodes.Compare():
            return _compared(item)
    return item


def _compared(item: nodes.Compare) -> nodes.Expr:
    """A comparison as our filter. With a constant it stays, because the constant limits its time."""
    if len(item.ops) == 1:
        left, (operand,) = item.expr, item.ops
        constant = (left, operand.expr) if operand.op not in ("in", "notin") else (operand.expr,)
        return item if any(map(_is_constant, constant)) else _filter(f"*{operand.op}", left, operand.expr)
    item.expr = _filter("*walked", item.expr)
    for operand in item.ops:
        operand.expr = _filter("*walked", operand.expr)
    return item


def _is_constant(node: nodes.Node) -> bool:
    """Whether a node is a number, a text, or a list of these."""
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(map(_is_constant, node.items))
    return isinstance(node, nodes.Const) or (isinstance(node, nodes.Dict) and not node.items)
