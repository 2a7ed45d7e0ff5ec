"""How one model chats: its template, how thoughts and calls are written in it, and what an answer needs for both.

dialect = Dialect(template, tokenizer)                       # once per model
exchange = dialect.exchange(messages, Asked(tools=tools))    # once per answer
drawing = Drawing(..., **exchange.drawn)                     # or generate(...)
parts = exchange.reader.push(piece.text)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import UsageError

from .format import CallFormat, JsonCall
from .prompting import AUTO, ChatPrompt, chat_prompt, message_of
from .reader import AnswerReader
from .tools import Tool, ToolChoice

if TYPE_CHECKING:
    from ...text.chat_template import ChatTemplate
    from ...text.tokenizer import Tokenizer
    from ..constraints import Constraint
    from ..constraints.forms import Forms
    from .format import ChatFormat
    from .thoughts import ThoughtBudget

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """What is asked for beside messages.

    choice  whether tools are to be called
    think   whether the model is to think; None: as its template has it
    budget  tokens of thoughts, at most; None: any number
    """

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = AUTO
    think: bool | None = None
    budget: int | None = None

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that may be called."""
        return () if self.choice.mode == "none" else self.tools

    @property
    def relaxed(self) -> "Asked":
        """For the answer to results: who has to call tools always would never say what came of it."""
        return replace(self, choice=AUTO) if self.choice.mode == "required" else self


NOTHING = Asked()
NO_CALLS = CallFormat("", "", "", JsonCall())


@dataclass(frozen=True)
class Exchange:
    """A prompt and its answer: how that is read (None: it is text), its form, the special tokens that are part of its
    text, and how much it may think."""

    messages: Sequence[Message]
    asked: Asked
    prompt: ChatPrompt
    reader: AnswerReader | None = None
    constraint: "Constraint | None" = None
    shown: frozenset[int] = frozenset()
    budget: "ThoughtBudget | None" = None

    @property
    def drawn(self) -> dict[str, Any]:
        """What `Drawing` and `generate` take of it."""
        given = {"constraint": self.constraint, "shown": self.shown, "budget": self.budget}
        return {name: value for name, value in given.items() if value}


class Dialect:
    """See above. `format`: how the template writes thoughts and calls. forms: where grammars are compiled."""

    def __init__(self, template: "ChatTemplate", tokenizer: "Tokenizer", forms: "Forms | None" = None) -> None:
        from ..constraints.forms import Forms
        from .probing import probed

        self.template, self.tokenizer = template, tokenizer
        self.format: ChatFormat = probed(template)
        self._forms = Forms(tokenizer) if forms is None else forms

    def check(self, asked: Asked) -> None:
        """UsageError: the model cannot do that."""
        if self.format.thoughts is None and (asked.think or asked.budget is not None):
            raise UsageError("the model has no thoughts: its chat template does not know any.")
        if asked.choice.name is not None and all(tool.name != asked.choice.name for tool in asked.tools):
            names = ", ".join(tool.name for tool in asked.tools) or "none"
            raise UsageError(f"there is no tool {asked.choice.name} to call. There are: {names}.")
        if asked.choice.mode == "required" and not asked.tools:
            raise UsageError("a call is required and there are no tools.")

    def exchange(
        self,
        messages: Sequence[Message],
        asked: Asked = NOTHING,
        form: "Constraint | None" = None,
    ) -> Exchange:
        """The answer that follows messages. form: of its text. UsageError, TemplateError: it cannot be asked for."""
        self.check(asked)
        prompt = self.prompt(messages, asked)
        reader = self.reader(asked, prompt.thinks)
        if self.format.thoughts is None and not asked.callable:  # nothing but text
            return Exchange(messages, asked, prompt, reader, None if form is None else form.copy())
        constraint = self._constraint(asked, prompt.thinks, form)
        budget = self._budget(asked, prompt.thinks)
        return Exchange(messages, asked, prompt, reader, constraint, self._shown(asked), budget)

    def reader(self, asked: Asked, thinks: bool) -> AnswerReader:
        """Of one answer. thinks: it begins inside thoughts."""
        return AnswerReader(self.format, asked.callable, thinks=thinks)

    def prompt(self, messages: Sequence[Message], asked: Asked) -> ChatPrompt:
        """The messages as the template wants them, and their text."""
        return chat_prompt(
            self.template, self.format, messages, tools=asked.tools, choice=asked.choice, think=asked.think
        )

    def rendered(self, prompt: ChatPrompt, n: int | None = None) -> str:
        """The first n messages of a prompt, without what stands before an answer. TemplateError."""
        return self.template.render(prompt.messages[:n], **{**prompt.variables, "add_generation_prompt": False})

    def rendered_with(self, exchange: Exchange, answer: Any) -> str:
        """What was asked, and the answer to it. answer: as message_of takes it. TemplateError."""
        return self.rendered(self.prompt([*exchange.messages, message_of(answer)], exchange.asked))

    def _constraint(self, asked: Asked, thinks: bool, form: "Constraint | None") -> "Constraint | None":
        from .call_grammar import answer_grammar

        own = None if form is None else form.grammar
        grammar = answer_grammar(self.format, self.tokenizer, asked.callable, asked.choice, thinks=thinks, form=own)
        if grammar is None or (form is not None and grammar == own):
            return None if form is None else form.copy()
        return self._forms.compiled(grammar).copy()

    def _shown(self, asked: Asked) -> frozenset[int]:
        from .marks import shown_tokens

        return shown_tokens(self.format if asked.callable else replace(self.format, calls=NO_CALLS), self.tokenizer)

    def _budget(self, asked: Asked, thinks: bool) -> "ThoughtBudget | None":
        if asked.budget is None:
            return None
        from .thoughts import ThoughtBudget

        return ThoughtBudget(self.format, self.tokenizer, asked.budget, thinks)
