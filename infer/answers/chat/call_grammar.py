"""The grammar of an answer with thoughts, tool calls or a form: one grammar from its first token on.

    grammar = answer_grammar(format, tokenizer, tools, choice, thinks=prompt.thinks)
    constraint = Constraint(grammar, tokenizer)

"auto": free text (free_text.py); after the tag of a call, only a call. "required" or a name: calls at once, or after
the thoughts. A form comes after the thoughts; with "auto", calls may replace it. Thoughts are free text up to their
closing tag. Thoughts that the prompt opened also end at the tag of a call; thoughts that the model opens may contain
that tag. After calls the answer ends.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hybrid.quant.ggml.errors import UsageError

from ..constraints.grammar import Grammar, Subform
from .call_rules import CallRules
from .format import ChatFormat
from .free_text import FreeText, Mark
from .lark import Rules, literal
from .sections import short_mark

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer
    from .tools import Tool, ToolChoice

GAP = r"/[ \t\r\n]{1,8}/"  # after thoughts


def answer_grammar(
    format: ChatFormat,
    tokenizer: "Tokenizer",
    tools: "Sequence[Tool]",
    choice: "ToolChoice",
    *,
    parallel: bool = True,
    thinks: bool = False,
    form: Grammar | None = None,
) -> Grammar | None:
    """The grammar of an answer; None: nothing is constrained.

    parallel  several calls may be made
    thinks    the prompt opened thoughts
    form      of the answer's text; returned unchanged if there are neither thoughts nor tools

    The grammar's `notes` say which parts of the tools' schemas are not enforced. Raises UsageError for a form beside
    calls without a tag.
    """
    chosen = [] if choice.mode == "none" else [tool for tool in tools if choice.name in (None, tool.name)]
    thoughts = format.thoughts
    if thoughts is None or not thoughts.closing or Mark.of(thoughts.closing, tokenizer).token in tokenizer.eog:
        thoughts, thinks = None, False  # their tag ends the answer: thoughts and text look alike
    may_think = thoughts is not None and (thinks or (bool(thoughts.opening) and not thoughts.is_opened))
    if not chosen and (form is None or not may_think):
        return form
    form = None if chosen and choice.mode == "required" else form
    answer = _Answer(format, tokenizer, chosen, parallel, thinks, may_think, form)
    lark = answer.auto() if choice.mode == "auto" and form is None else answer.at_once()
    name = "the tools" if chosen else form.name if form is not None else ""
    return Grammar.composed(name, lark, answer.parts, answer.notes)


class _Answer:
    """The rules of one answer."""

    def __init__(
        self,
        format: ChatFormat,
        tokenizer: "Tokenizer",
        tools: "Sequence[Tool]",
        parallel: bool,
        thinks: bool,
        may_think: bool,
        form: Grammar | None,
    ) -> None:
        self._rules = Rules()
        self._free = FreeText(self._rules, tokenizer)
        self.notes: list[str] = []
        self._form, self._thinks, self._may_think = form, thinks, may_think
        self.parts: dict[str, Subform] = {} if form is None else {"form": Subform(form, form.name)}
        if may_think:
            assert format.thoughts is not None
            self._opening = Mark.of(format.thoughts.opening, tokenizer)
            self._closing = Mark.of(format.thoughts.closing, tokenizer)
        self._marks: list[tuple[Mark, str]] = []  # tags of calls, and the rules after them
        self._section = self._starts = ""
        if tools:
            self._calls(CallRules(self._rules, format.calls, tools, tokenizer), format, tokenizer, parallel)

    def _calls(self, rules: CallRules, format: ChatFormat, tokenizer: "Tokenizer", parallel: bool) -> None:
        calls = format.calls
        before = (calls.begin + calls.call.opening).lstrip()
        mark = replace(Mark.of(calls.mark, tokenizer), behind=())  # `before` has the rest
        self._section = rules.section(before, parallel)
        if mark.text and mark.text in before:
            behind = before[before.index(mark.text) + len(mark.text) :]
            self._marks.append((mark, rules.section(behind, parallel)))
            if (short := short_mark(calls)) is not None:
                self._marks.append((Mark.of(short, tokenizer), rules.section("", parallel)))
        else:
            self._starts = rules.starts()
            if self._form is not None:
                raise UsageError(
                    "no tag tells this model's calls from text: ask either for calls or for a form, not for both."
                )
        self.parts |= rules.parts
        self.notes = rules.notes

    def auto(self) -> str:
        """The grammar of free text in which thoughts, and then calls, may begin."""
        opened, opening = self._opened()
        is_like_opening = self._spelled(self._opening) if opened and self._opening.token is None else ""
        if not self._marks:
            not_first = self._rules.terminal(" | ".join(filter(None, [self._starts, is_like_opening])))
            gap = self._rules.terminal(GAP)
            answer = f"{self._free.whole([], not_first)} | {gap}? {self._section}"
        else:
            marks = [mark for mark, _ in self._marks]
            answers = [self._free.whole(marks, is_like_opening)]
            for mark, behind in self._marks:
                others = [other for other in marks if other != mark]
                answers.append(f"{self._free.up_to(mark, others, is_like_opening)} {behind}")
            answer = " | ".join(answers)
        if opened:
            answer = f"{opened}* ({answer} | {opening} {self._free.whole([self._closing])})"
        elif self._thinks and not self._marks:
            answer = f"{self._free.up_to(self._closing)} ({answer}) | {self._free.whole([self._closing])}"
        return self._rules.text(answer)

    def at_once(self) -> str:
        """The grammar of calls or a form, at once or after thoughts."""
        choices = [choice for choice in (self._form and "@form", self._section) if choice]
        body = self._rules.rule(" | ".join(choices))
        if not self._may_think:
            return self._rules.text(body)
        gap = self._rules.terminal(GAP)
        if not self._thinks:
            return self._rules.text(f"({self._opened()[0]} {gap}?)? {body}")
        ends = self._marks[:1]
        start = f"{self._free.up_to(self._closing, [mark for mark, _ in ends])} {gap}? {body}"
        for mark, behind in ends:
            start += f" | {self._free.up_to(mark, [self._closing])} {behind}"
        return self._rules.text(start)

    def _opened(self) -> tuple[str, str]:
        """Rules for thoughts that the model opens and closes, and for their opening; "" if it may not open any."""
        if not self._may_think or self._thinks or not self._opening.text:
            return "", ""
        if self._opening.token is None:
            opening = self._spelled(self._opening)
        else:
            white = self._rules.terminal(r"/\s{1,8}/")
            opening = f"{white}? {self._free.drawn(self._opening)}"
        return self._rules.rule(f"{opening} {self._free.up_to(self._closing)}"), opening

    def _spelled(self, mark: Mark) -> str:
        return self._rules.terminal(rf"/\s{{0,8}}/ {literal(mark.text)}")
