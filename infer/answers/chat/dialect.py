"""How one model chats: its template, how thoughts and calls are written in it, and what an answer needs for both.

dialect = Dialect(template, tokenizer)                       # once per model
exchange = dialect.exchange(messages, Asked(tools=tools))    # for one answer
drawing = Drawing(..., **exchange.rules.drawn)               # or generate(...)
parts = exchange.reader.push(piece.text)

Several answers to the same messages share `prompt` and `rules`; only the last two lines are done for each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import UsageError

from .format import CallFormat, JsonCall
from .messages import object_in
from .prompting import AUTO, ChatPrompt, chat_prompt, message_of
from .reader import AnswerReader
from .tools import Tool, ToolChoice
from .wider_tools import wider_tools

if TYPE_CHECKING:
    from ...text.chat_template import ChatTemplate
    from ...text.tokenizer import Tokenizer
    from ..constraints import Constraint, Grammar
    from ..constraints.forms import Forms
    from .format import ChatFormat
    from .thoughts import ThoughtBudget

Message = Mapping[str, Any]


@dataclass(frozen=True)
class ChatOptions:
    """What is asked for beside messages.

    choice    whether tools are to be called
    parallel  an answer may have several calls
    think     whether the model is to think; None: as its template has it
    budget    tokens of thoughts, at most; None: any number
    documents, variables  what the template gets beside them
    """

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = AUTO
    parallel: bool = True
    think: bool | None = None
    budget: int | None = None
    documents: Sequence[Message] | None = None
    variables: Message = field(default_factory=dict)

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that may be called."""
        return () if self.choice.mode == "none" else self.tools

    @property
    def relaxed(self) -> "ChatOptions":
        """For the answer to results: who has to call tools always would never say what came of it."""
        return replace(self, choice=AUTO) if self.choice.mode == "required" else self


NOTHING = ChatOptions()
REQUIRED = ToolChoice("required")
MOST_WIDER = 8  # lists of tools whose wider schemas are kept
NO_CALLS = CallFormat("", "", "", JsonCall())  # none of whose marks is a token


@dataclass(frozen=True)
class AnswerRules:
    """How answers to one prompt are drawn, beside the samplers.

    form    of each answer, to be copied for it
    shown   the special tokens that are part of its text
    budget  makes that of the thoughts of one answer
    """

    form: "Constraint | None" = None
    shown: frozenset[int] = frozenset()
    budget: "Callable[[], ThoughtBudget | None] | None" = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that say what of the tools' schemas calls are not held to."""
        return () if self.form is None else self.form.grammar.notes

    @property
    def drawn(self) -> dict[str, Any]:
        """What `Drawing` and `generate` take of it: for one answer, whose own it is."""
        return {
            "constraint": None if self.form is None else self.form.copy(),
            "shown": self.shown,
            "budget": None if self.budget is None else self.budget(),
        }


@dataclass(frozen=True)
class Exchange:
    """A prompt and one answer: how that is drawn, and read (None: it is text)."""

    messages: Sequence[Message]
    asked: ChatOptions
    prompt: ChatPrompt
    rules: AnswerRules
    reader: AnswerReader | None = None


class Dialect:
    """See above. `format`: how the template writes thoughts and calls. forms: where grammars are compiled."""

    def __init__(self, template: "ChatTemplate", tokenizer: "Tokenizer", forms: "Forms | None" = None) -> None:
        from ..constraints.forms import Forms
        from .probing import probed

        self.template, self.tokenizer = template, tokenizer
        self.format: ChatFormat = probed(template)
        self._forms = Forms(tokenizer) if forms is None else forms
        self._wider: dict[Grammar, Grammar] = {}

    def check(self, asked: ChatOptions) -> None:
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
        asked: ChatOptions = NOTHING,
        form: "Constraint | None" = None,
    ) -> Exchange:
        """The answer that follows messages. form: of its text. UsageError, TemplateError: it cannot be asked for."""
        self.check(asked)
        prompt = self.prompt(messages, asked)
        return Exchange(messages, asked, prompt, self.rules(asked, prompt, form), self.reader(asked, prompt))

    def is_plain(self, asked: ChatOptions) -> bool:
        """Whether an answer is nothing but text."""
        return self.format.thoughts is None and not asked.callable

    # --- text ---
    def prompt(self, messages: Sequence[Message], asked: ChatOptions, *, continues: bool = False) -> ChatPrompt:
        """The messages as the template wants them, and their text. continues: see chat_prompt."""
        return chat_prompt(
            self.template,
            self.format,
            messages,
            tools=asked.tools,
            choice=asked.choice,
            think=asked.think,
            documents=asked.documents,
            variables=asked.variables,
            continues=continues,
        )

    def rendered(self, prompt: ChatPrompt, messages: Sequence[Message] | None = None) -> str:
        """Messages of a prompt as the template got them, None: all, without what stands before an answer.

        TemplateError: not every template takes every beginning of a conversation.
        """
        messages = prompt.messages if messages is None else messages
        return self.template.render(messages, **{**prompt.variables, "add_generation_prompt": False})

    def rendered_with(self, messages: Sequence[Message], asked: ChatOptions, answer: Any) -> str:
        """Messages, and the answer to them, as they come back. answer: as message_of takes it.

        TemplateError: the template does not take the answer. UsageError: a call in it was cut off, so that the template
        would write another text.
        """
        if any(isinstance(object_in(call.arguments), str) for call in answer.calls):
            raise UsageError("a call of the answer was cut off.")
        return self.rendered(self.prompt([*messages, message_of(answer)], asked))

    # --- answers ---
    def rules(self, asked: ChatOptions, prompt: ChatPrompt, form: "Constraint | None" = None) -> AnswerRules:
        """How the answers to a prompt are drawn. form: of their text. UsageError: they cannot be asked for."""
        if self.is_plain(asked):
            return AnswerRules(form)
        constraint = self._constraint(asked, prompt.thinks, form)
        return AnswerRules(constraint, self.shown(asked), partial(self.budget, asked, prompt.thinks))

    def reader(self, asked: ChatOptions, prompt: ChatPrompt, *, split: bool = True) -> AnswerReader:
        """Of one answer. split: its thoughts are told apart from its text."""
        form = self.format if split else replace(self.format, thoughts=None)
        return AnswerReader(form, asked.callable, thinks=split and prompt.thinks, continues=bool(prompt.written))

    def grammar(self, asked: ChatOptions, thinks: bool, form: "Grammar | None") -> "Grammar | None":
        """What may be drawn: see answer_grammar. thinks: the answer begins inside thoughts.

        A grammar with tools has been compiled. A tool whose schema cannot be compiled has a wider schema in it, and
        `notes` say so. UsageError: the form cannot be used, or not beside tools.
        """
        from .call_grammar import answer_grammar

        make = partial(answer_grammar, self.format, self.tokenizer)
        options: dict[str, Any] = {"parallel": asked.parallel, "thinks": thinks, "form": form}
        first = make(asked.callable, asked.choice, **options)
        if first is None or not asked.callable:
            return first
        if first in self._wider:
            return self._wider[first]
        refused = self._refused(first)
        if refused is None:
            return first
        if form is not None and self._forms.fault(form) is not None:
            raise refused
        chosen = [tool for tool in asked.callable if asked.choice.name in (None, tool.name)]
        for tools in wider_tools(chosen, partial(make, choice=REQUIRED), self._forms):
            grammar = make(tools, asked.choice, **options)
            if grammar is not None and self._refused(grammar) is None:
                if len(self._wider) >= MOST_WIDER:
                    self._wider.clear()
                self._wider[first] = grammar
                return grammar
        raise refused

    def _refused(self, grammar: "Grammar") -> UsageError | None:
        """Why a form cannot be compiled."""
        try:
            self._forms.compiled(grammar)
        except UsageError as error:
            return error
        return None

    def shown(self, asked: ChatOptions) -> frozenset[int]:
        """The special tokens that are marks of what an answer may have."""
        from .marks import shown_tokens

        return shown_tokens(self.format if asked.callable else replace(self.format, calls=NO_CALLS), self.tokenizer)

    def budget(self, asked: ChatOptions, thinks: bool) -> "ThoughtBudget | None":
        """The budget of the thoughts of one answer; it tells thoughts, too, where they may be of any length."""
        if self.format.thoughts is None:
            return None
        from .thoughts import ThoughtBudget

        return ThoughtBudget(self.format, self.tokenizer, asked.budget, thinks)

    def _constraint(self, asked: ChatOptions, thinks: bool, form: "Constraint | None") -> "Constraint | None":
        own = None if form is None else form.grammar
        grammar = self.grammar(asked, thinks, own)
        if grammar is None or (form is not None and grammar == own):
            return form
        return self._forms.compiled(grammar)
