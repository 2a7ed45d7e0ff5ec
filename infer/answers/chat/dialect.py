"""How one model chats: its template, the format of its thoughts and calls, and the objects for each answer.

dialect = Dialect(template, tokenizer)                           # once per model
exchange = dialect.exchange(messages, ChatOptions(tools=tools))  # for one answer
drawing = Drawing(..., **exchange.rules.drawn)                   # or generate(...)
parts = exchange.reader.push(piece.text)

Several answers to the same messages share `prompt` and `rules`; only the last two lines are repeated for each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import UsageError

from ...text.literal_text import LiteralText
from .format import CallFormat, JsonCall
from .messages import object_in
from .picture_parts import rendered
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
    """Options of an answer, besides the messages.

    choice    whether tools are to be called
    parallel  one answer may contain several calls; None: unless `choice` requires one
    think     whether the model is to think; None: the template's default
    budget    limit on the tokens of thoughts; None: no limit
    documents, variables  passed to the template
    parse_special  control tokens written in messages count as such
    """

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = AUTO
    parallel: bool | None = None
    think: bool | None = None
    budget: int | None = None
    documents: Sequence[Message] | None = None
    variables: Message = field(default_factory=dict)
    parse_special: bool = False

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that may be called."""
        return () if self.choice.mode == "none" else self.tools

    @property
    def several(self) -> bool:
        """Whether one answer may contain several calls."""
        return self.choice.mode != "required" if self.parallel is None else self.parallel

    @property
    def needs_template(self) -> bool:
        """Whether any option is set that raw text cannot have."""
        return replace(self, parse_special=False) != NOTHING

    @property
    def relaxed(self) -> "ChatOptions":
        """The options for the answer to tool results: a model that must always call tools would never report them."""
        return replace(self, choice=AUTO) if self.choice.mode == "required" else self


NOTHING = ChatOptions()
REQUIRED = ToolChoice("required")
MOST_WIDER = 8  # lists of tools whose wider schemas are kept
NO_CALLS = CallFormat("", "", "", JsonCall())  # a format without tags, and so without special tokens


@dataclass(frozen=True)
class AnswerRules:
    """Settings of the answers to one prompt, beside the samplers'.

    form    the constraint; each answer gets a copy
    shown   the special tokens that count as text of the answer
    budget  makes the thought budget of one answer
    calls   makes the reader of its calls, if it may contain several
    """

    form: "Constraint | None" = None
    shown: frozenset[int] = frozenset()
    budget: "Callable[[], ThoughtBudget | None] | None" = None
    calls: "Callable[[], AnswerReader] | None" = None

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each part of the tools' schemas that is not enforced."""
        return () if self.form is None else self.form.grammar.notes

    @property
    def drawn(self) -> dict[str, Any]:
        """Arguments for `Drawing` and `generate`, for one answer only: all but `shown` keep its state."""
        return {
            "constraint": None if self.form is None else self.form.copy(),
            "shown": self.shown,
            "budget": None if self.budget is None else self.budget(),
            "calls": None if self.calls is None else self.calls(),
        }


@dataclass(frozen=True)
class Exchange:
    """A prompt, and how one answer to it is sampled (`rules`) and read (`reader`; None: as plain text)."""

    messages: Sequence[Message]
    asked: ChatOptions
    prompt: ChatPrompt
    rules: AnswerRules
    reader: AnswerReader | None = None


class Dialect:
    """See the module. format: how the template writes thoughts and calls. forms: compiles the grammars."""

    def __init__(self, template: "ChatTemplate", tokenizer: "Tokenizer", forms: "Forms | None" = None) -> None:
        from ..constraints.forms import Forms
        from .probing import probed

        self.template, self.tokenizer = template, tokenizer
        self.format: ChatFormat = probed(template)
        self._forms = Forms(tokenizer) if forms is None else forms
        self._wider: dict[Grammar, Grammar] = {}

    @cached_property
    def _literal(self) -> LiteralText:
        return LiteralText(self.tokenizer)

    def check(self, asked: ChatOptions) -> None:
        """Raises UsageError if the model cannot answer with these options."""
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
        """The next answer to the messages. form: constraint on its text. Raises UsageError or TemplateError."""
        self.check(asked)
        prompt = self.prompt(messages, asked)
        return Exchange(messages, asked, prompt, self.rules(asked, prompt, form), self.reader(asked, prompt))

    def is_plain(self, asked: ChatOptions) -> bool:
        """Whether an answer is only text: the model has no thoughts, and no tool may be called."""
        return self.format.thoughts is None and not asked.callable

    # --- text ---
    def prompt(self, messages: Sequence[Message], asked: ChatOptions, *, continues: bool = False) -> ChatPrompt:
        """The prompt: the messages as the template accepts them, and their text. continues: see chat_prompt."""
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
            literal=None if asked.parse_special else self._literal,
        )

    def rendered(self, prompt: ChatPrompt, messages: Sequence[Message] | None = None) -> str:
        """The text of a prompt's messages (None: all of them), without the beginning of an answer.

        Raises TemplateError: not every template accepts every prefix of a conversation.
        """
        messages = prompt.messages if messages is None else messages
        return rendered(self.template, self.format, messages, prompt.variables, ask=False)

    def rendered_with(self, messages: Sequence[Message], asked: ChatOptions, answer: Any) -> str:
        """The text of the messages and of the answer to them, as the next prompt will have it. answer: see message_of.

        Raises TemplateError if the template does not accept the answer, UsageError if a call in it was cut off: the
        template would write another text.
        """
        if any(isinstance(object_in(call.arguments), str) for call in answer.calls):
            raise UsageError("a call of the answer was cut off.")
        return self.rendered(self.prompt([*messages, message_of(answer)], asked))

    # --- answers ---
    def rules(self, asked: ChatOptions, prompt: ChatPrompt, form: "Constraint | None" = None) -> AnswerRules:
        """How the answers to a prompt are sampled. form: constraint on their text. Raises UsageError: see `grammar`."""
        if self.is_plain(asked):
            return AnswerRules(form)
        constraint = self._constraint(asked, prompt.thinks, form)
        return AnswerRules(
            constraint, self.shown(asked), partial(self.budget, asked, prompt.thinks), self.calls(asked, prompt)
        )

    def calls(self, asked: ChatOptions, prompt: ChatPrompt) -> "Callable[[], AnswerReader] | None":
        """Makes readers that find a repeated call; None: an answer contains at most one call."""
        return partial(self.reader, asked, prompt) if asked.callable and asked.several else None

    def reader(self, asked: ChatOptions, prompt: ChatPrompt, *, split: bool = True) -> AnswerReader:
        """A reader for one answer. split: separate thoughts from text."""
        form = self.format if split else replace(self.format, thoughts=None)
        return AnswerReader(
            form,
            asked.callable,
            thinks=split and prompt.thinks,
            continues=bool(prompt.written),
            drop_repeated=True,
        )

    def grammar(self, asked: ChatOptions, thinks: bool, form: "Grammar | None") -> "Grammar | None":
        """The grammar of an answer: see answer_grammar. thinks: the answer begins inside thoughts.

        A grammar with tools is already compiled. A tool whose schema does not compile gets a wider schema, and `notes`
        say so. Raises UsageError if the form cannot be used, or not together with tools.
        """
        from .call_grammar import answer_grammar

        make = partial(answer_grammar, self.format, self.tokenizer)
        options: dict[str, Any] = {"parallel": asked.several, "thinks": thinks, "form": form}
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
        """The error of compiling a grammar; None if it compiles."""
        try:
            self._forms.compiled(grammar)
        except UsageError as error:
            return error
        return None

    def shown(self, asked: ChatOptions) -> frozenset[int]:
        """The special tokens that are tags in such an answer."""
        from .marks import shown_tokens

        return shown_tokens(self.format if asked.callable else replace(self.format, calls=NO_CALLS), self.tokenizer)

    def budget(self, asked: ChatOptions, thinks: bool) -> "ThoughtBudget | None":
        """The thought budget of one answer; it also tells thoughts from text if their length has no limit."""
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
