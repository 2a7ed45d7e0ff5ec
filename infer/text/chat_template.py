"""Chat templates: jinja2 in a sandbox, with the names and filters that transformers provides.

A template is untrusted code that comes with the model: it can reach only its arguments, and its time and memory are
limited.
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
    """Writes a conversation as text in the model's format.

    The result contains BOS and the other control tokens as text; encode it with add_special=False, parse_special=True.
    """

    def __init__(self, source: str, *, name: str = "chat template", tokens: Mapping[str, str] | None = None) -> None:
        """tokens: texts of special tokens, by the names in templates (bos_token, eos_token...)."""
        from jinja2 import TemplateError as JinjaError

        from .template_sandbox import Sandbox  # imports jinja2

        self.source = source
        self.name = name
        self.tokens = dict(tokens or {})
        self._sandbox = Sandbox()
        self._renders = threading.Lock()  # renderings share one budget
        try:
            if len(source) > MAX_SOURCE:
                raise ValueError(f"it has {len(source)} characters, more than {MAX_SOURCE}")
            self._template = self._sandbox.from_string(source)
        except (JinjaError, RecursionError, MemoryError, ValueError, OverflowError, SyntaxError) as error:
            raise TemplateError(f"{name}: {_reason(error)}.", remedy=Remedy.WITHOUT_TEMPLATE) from None

    @classmethod
    def from_gguf(cls, gguf: MetadataFile, tokenizer: Tokenizer, name: str | None = None) -> "ChatTemplate | None":
        """The file's template, or the one called `name`; None if the file does not have it."""
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
        """Steps of the last rendering; more than template_budget.MAX_STEPS if it exceeded any limit."""
        return self._sandbox.budget.steps

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **more: Any,
    ) -> str:
        """The conversation, messages {"role": ..., "content": ...}, as text. Raises TemplateError if the template
        refuses it, fails or exceeds a limit."""
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
                look()  # this call may have waited for another rendering
                for part in self._template.generate(arguments):
                    size += len(part) + 1  # an empty part also takes memory
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
            except Exception as error:  # a fault of the template, which is untrusted code, not of this program
                raise TemplateError(f"{self.name} cannot be rendered: {_reason(error)}") from None
            finally:
                self._sandbox.budget.end()
        return "".join(parts)


def special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """Texts of special tokens, by the names that templates use."""
    vocabulary = tokenizer.vocabulary
    ids = {"bos": vocabulary.bos, "eos": vocabulary.eos, "unk": vocabulary.unk, "pad": vocabulary.pad}
    return {f"{what}_token": vocabulary.tokens[token] for what, token in ids.items() if token is not None}


def _reason(error: BaseException) -> str:
    text = " ".join(str(error)[:1000].split()) or type(error).__name__
    line = getattr(error, "lineno", None)
    where = f" (line {line})" if isinstance(line, int) else ""
    return shown(text, 200) + where
