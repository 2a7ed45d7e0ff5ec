"""Chat templates: jinja2 in a sandbox, with the names and filters that transformers gives them.

A template comes with the model, so it is code from outside: it can reach nothing but its arguments, and it cannot run
or grow without end.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from hybrid.quant.ggml.errors import Remedy, TemplateError, shown

from .tokenizer import Tokenizer
from .tokenizer.vocabulary import MetadataFile

MAX_STEPS = 1_000_000  # loop passes of one rendering (a call counts as 5); long real conversations need some 10 000
MAX_TEXT = 1 << 24  # characters in any one string, and in the result


class ChatTemplate:
    """A model's own way to write a conversation as text.

    The result holds BOS and the other control tokens written out; encode it with add_special=False, parse_special=True.
    """

    def __init__(self, source: str, *, name: str = "chat template", tokens: Mapping[str, str] | None = None) -> None:
        """`tokens`: the special tokens' texts by the names templates use (bos_token, eos_token...)."""
        from jinja2 import TemplateError as JinjaError

        self.source = source
        self.name = name
        self.tokens = dict(tokens or {})
        self._environment = _environment()
        try:
            self._template = self._environment.from_string(source)
        except (JinjaError, RecursionError, MemoryError, ValueError, OverflowError, SyntaxError) as error:
            raise TemplateError(f"{name}: {_reason(error)}.", remedy=Remedy.WITHOUT_TEMPLATE) from None

    @classmethod
    def from_gguf(cls, gguf: MetadataFile, tokenizer: Tokenizer, name: str | None = None) -> "ChatTemplate | None":
        """The file's template, or the named one of several; None when it has no template."""
        key = "tokenizer.chat_template" + (f".{name}" if name else "")
        source = gguf.metadata.get(key)
        if source is None and name is None:
            source = gguf.metadata.get("tokenizer.chat_template.default")
        if source is None:
            return None
        if not isinstance(source, str):
            raise TemplateError(f"{gguf.path}: {key} is {type(source).__name__}, expected a string")
        return cls(source, name=key, tokens=special_tokens(tokenizer))

    @property
    def steps(self) -> int:
        """Loop passes of the last rendering; a call counts as 5."""
        return int(self._environment.steps)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **more: Any,
    ) -> str:
        """The conversation, messages {"role": ..., "content": ...}, as text. TemplateError: the template refuses it."""
        from jinja2 import TemplateError as JinjaError

        arguments: dict[str, Any] = {
            **self.tokens,
            "messages": [dict(message) for message in messages],
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
            **more,
        }
        self._environment.begin()
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(arguments):
                size += len(part)
                if size > MAX_TEXT:
                    raise _LimitError(f"it writes more than {MAX_TEXT} characters")
                parts.append(part)
        except JinjaError as error:
            raise TemplateError(f"{self.name}: {_reason(error)}") from None
        except (
            _LimitError,
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise TemplateError(f"{self.name} cannot be rendered: {_reason(error)}") from None
        return "".join(parts)


def special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """Their texts, by the names that templates use."""
    vocabulary = tokenizer.vocabulary
    ids = {"bos": vocabulary.bos, "eos": vocabulary.eos, "unk": vocabulary.unk, "pad": vocabulary.pad}
    return {f"{what}_token": vocabulary.tokens[token] for what, token in ids.items() if token is not None}


class _LimitError(Exception):
    """The template ran or grew too long."""


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    line = getattr(error, "lineno", None)
    where = f" (line {line})" if isinstance(line, int) else ""
    return shown(text, 200) + where


def _environment() -> Any:
    """Imports jinja2 (0.1 s) and builds the sandbox."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError as JinjaError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Bounded(ImmutableSandboxedEnvironment):
        """Counts loop passes and calls, and looks at operands before they grow."""

        intercepted_binops = frozenset({"*", "**", "+", "%"})
        steps = 0

        def begin(self) -> None:
            self.steps = 0

        def step(self, cost: int = 1) -> None:
            self.steps += cost
            if self.steps > MAX_STEPS:
                raise _LimitError(f"it takes more than {MAX_STEPS} steps")

        def counted(self, items: Iterable[Any]) -> Iterator[Any]:
            for item in items:
                self.step()
                yield item

        def joined(self, *parts: Any) -> str:
            """The operator `~`."""
            return str(self.checked("".join(map(str, parts))))

        def too_long(self) -> Any:
            raise _LimitError(f"it makes a string of more than {MAX_TEXT} characters")

        def call(self, /, context: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
            self.step(5)
            method = getattr(function, "__wrapped__", function)  # the sandbox wraps str.format
            if isinstance(getattr(method, "__self__", None), str):
                wide = method.__name__ in ("format", "format_map") and re.search(r"\d{8}|{[^}]*{", method.__self__)
                pads = method.__name__ in ("center", "expandtabs", "ljust", "rjust", "zfill")
                if wide or (pads and any(isinstance(value, int) and value > MAX_TEXT for value in args)):
                    self.too_long()
            return self.checked(super().call(context, function, *args, **kwargs))

        def checked(self, value: Any) -> Any:
            return self.too_long() if isinstance(value, str) and len(value) > MAX_TEXT else value

        def guarded(self, function: Any) -> Any:
            """A filter that can make long strings out of short ones."""

            @functools.wraps(function)
            def run(*args: Any, **kwargs: Any) -> Any:
                if any(isinstance(value, int) and value > MAX_TEXT for value in (*args, *kwargs.values())):
                    self.too_long()
                return self.checked(function(*args, **kwargs))

            return run

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            """What Jinja calls for + - * / % and powers: refused where the result would be too long."""
            if operator == "**" and not (isinstance(right, int | float) and abs(right) <= 64):
                raise _LimitError("it raises to a power above 64")
            if operator == "%":
                grows = isinstance(left, str) and re.search(r"\d{8}|\*", left) is not None
            else:
                grows = self.size_after(operator, left, right) > MAX_TEXT
            if grows:
                self.too_long()
            result = super().call_binop(context, operator, left, right)
            if isinstance(result, int) and result.bit_length() > 4096:
                raise _LimitError("it computes a number of more than 4096 bits")
            return self.checked(result)

        def size_after(self, operator: str, left: Any, right: Any) -> int:
            """Length of `left + right` or `left * right` where one of them has a length, else 0."""
            sizes = [len(value) if hasattr(value, "__len__") else 0 for value in (left, right)]
            if operator == "*":
                times = [value if isinstance(value, int) else 0 for value in (left, right)]
                return max(sizes[0] * times[1], sizes[1] * times[0])
            return sum(sizes)

        def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
            tree = super()._parse(source, name, filename)
            for loop in list(tree.find_all(nodes.For)):
                loop.iter = nodes.Filter(loop.iter, "_counted", [], [], None, None, lineno=loop.lineno)
            return _replace_concatenation(tree)

    class Generation(Extension):
        """{% generation %} marks what a model is trained on; here it has no effect."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def _replace_concatenation(tree: nodes.Template) -> nodes.Template:
        def visit(node: nodes.Node) -> None:
            for name, value in list(node.iter_fields()):
                if isinstance(value, list):
                    setattr(node, name, [exchanged(item) for item in value])
                else:
                    setattr(node, name, exchanged(value))

        def exchanged(item: Any) -> Any:
            if not isinstance(item, nodes.Node):
                return item
            visit(item)
            if isinstance(item, nodes.Concat):
                first, *others = item.nodes
                return nodes.Filter(first, "_joined", others, [], None, None, lineno=item.lineno)
            return item

        visit(tree)
        return tree

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None,
               sort_keys: bool = False) -> str:  # fmt: skip
        # jinja2's own escapes <, > and & for HTML
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message: str) -> None:
        raise JinjaError(message)

    environment = Bounded(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.filters["_counted"] = environment.counted
    environment.filters["_joined"] = environment.joined
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    for name in ("batch", "center", "indent", "join", "replace", "slice"):
        environment.filters[name] = environment.guarded(environment.filters[name])
    del environment.globals["lipsum"]
    for name in ("format", "urlize", "wordwrap", "xmlattr"):  # no template needs them
        del environment.filters[name]
    return environment
