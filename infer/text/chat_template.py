"""Chat templates: jinja2 in a sandbox, with the names and filters that transformers gives them.

A template comes with the model, so it is code from outside: it can reach nothing but its arguments, and it cannot run
or grow without end.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from hybrid.quant.ggml.errors import Remedy, TemplateError, shown

from .stops import GoneError, look
from .template_budget import MAX_TEXT, LimitError
from .tokenizer import Tokenizer
from .tokenizer.vocabulary import MetadataFile

MAX_SOURCE = 1 << 17  # characters of a template; published ones have up to 17 000


class ChatTemplate:
    """A model's own way to write a conversation as text.

    The result holds BOS and the other control tokens written out; encode it with add_special=False, parse_special=True.
    """

    def __init__(self, source: str, *, name: str = "chat template", tokens: Mapping[str, str] | None = None) -> None:
        """`tokens`: the special tokens' texts by the names templates use (bos_token, eos_token...)."""
        from jinja2 import TemplateError as JinjaError

        from .template_sandbox import Sandbox  # imports jinja2

        self.source = source
        self.name = name
        self.tokens = dict(tokens or {})
        self._sandbox = Sandbox()
        self._renders = threading.Lock()  # one budget, one rendering
        try:
            if len(source) > MAX_SOURCE:
                raise ValueError(f"it has {len(source)} characters, more than {MAX_SOURCE}")
            self._template = self._sandbox.from_string(source)
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
        """Steps of the last rendering; more than template_budget.MAX_STEPS when it has passed any bound."""
        return self._sandbox.budget.steps

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
        parts: list[str] = []
        size = 0
        with self._renders:
            self._sandbox.budget.begin()
            try:
                look()  # it may have waited for another rendering
                for part in self._template.generate(arguments):
                    size += len(part) + 1  # a part without characters takes memory, too
                    if size > MAX_TEXT:
                        raise LimitError(f"it writes more than {MAX_TEXT} characters")
                    parts.append(part)
            except JinjaError as error:
                raise TemplateError(f"{self.name}: {_reason(error)}") from None
            except LimitError as error:
                self._sandbox.budget.exhaust()
                raise TemplateError(f"{self.name} cannot be rendered: {_reason(error)}") from None
            except GoneError:
                raise
            except Exception as error:  # the template is code from outside: its faults are no bugs of ours
                raise TemplateError(f"{self.name} cannot be rendered: {_reason(error)}") from None
            finally:
                self._sandbox.budget.end()
        return "".join(parts)


def special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """Their texts, by the names that templates use."""
    vocabulary = tokenizer.vocabulary
    ids = {"bos": vocabulary.bos, "eos": vocabulary.eos, "unk": vocabulary.unk, "pad": vocabulary.pad}
    return {f"{what}_token": vocabulary.tokens[token] for what, token in ids.items() if token is not None}


def _reason(error: BaseException) -> str:
    text = " ".join(str(error)[:1000].split()) or type(error).__name__
    line = getattr(error, "lineno", None)
    where = f" (line {line})" if isinstance(line, int) else ""
    return shown(text, 200) + where
