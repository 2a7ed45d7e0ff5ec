"""Lines of messages in a file of prompts: the options of each, and its answer in parts."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import HybridError, UsageError

from ..asking.reading import Reading
from ..chat.dialect import NOTHING, AnswerRules, ChatOptions, Dialect
from ..chat.prompting import ChatPrompt
from ..chat.tools import choice_of, tools_of

if TYPE_CHECKING:
    from ..constraints import Constraint
    from ..drawing.drawing import GenerationResult
    from .line_pictures import LinePictures

FIELDS = ("tools", "tool_choice")


def shows_pictures(message: dict[str, Any]) -> bool:
    """Whether a line's message has a picture."""
    content = message.get("content")
    return isinstance(content, list) and any(isinstance(part, dict) and part.get("type") == "image" for part in content)


@dataclass(frozen=True)
class ChatLine:
    """prompt: the messages as the template writes them."""

    dialect: Dialect
    asked: ChatOptions
    prompt: ChatPrompt

    @classmethod
    def read(
        cls,
        line: dict[str, Any],
        dialect: Dialect | None,
        asked: ChatOptions,
        form: "Constraint | None",
        pictures: "LinePictures | None" = None,
    ) -> "ChatLine":
        """The messages of a line. asked: options that the line does not set; pictures: reads the pictures of messages.
        Raises UsageError if the line is wrong."""
        messages = line.get("messages")
        if dialect is None:
            raise UsageError("this model has no chat template for messages. Give prompts.")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise UsageError("its messages are not a list of objects with role and content.")
        if line.get("tools") is not None:
            asked = replace(asked, tools=tuple(tools_of(line["tools"])))
        if line.get("tool_choice") is not None:
            asked = replace(asked, choice=choice_of(line["tool_choice"], asked.tools))
        try:
            dialect.check(asked)
            if pictures is not None:
                messages = pictures.read(messages)
            elif any(map(shows_pictures, messages)):
                raise UsageError("workers of a cluster read no pictures. Answer this file without a cluster.")
            read = cls(dialect, asked, dialect.prompt(messages, asked))
            read.rules(form)
        except HybridError as error:  # a TemplateError, say: the line is wrong
            raise UsageError(str(error)) from None
        return read

    def rules(self, form: "Constraint | None") -> AnswerRules:
        """How its answers are sampled. Not stored with the line: some forms take 10 MB."""
        return self.dialect.rules(self.asked, self.prompt, form)

    def values(self, result: "GenerationResult") -> dict[str, Any]:
        """An answer as JSON: its text, and thoughts and calls if there are any."""
        return Reading(self.dialect.reader(self.asked, self.prompt)).answer(result).to_json()

    @property
    def key(self) -> list[Any]:
        """The options that change answers, beside the text; empty without options."""
        asked = self.asked
        given = [[tool.as_given for tool in asked.tools], asked.choice.mode, asked.choice.name, asked.budget]
        return [] if asked == replace(NOTHING, think=asked.think) else given
