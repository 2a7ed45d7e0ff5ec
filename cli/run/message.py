"""`hybrid run MODEL -p TEXT`: one message and its answer, in the model's chat template."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hybrid.quant.ggml.errors import UsageError

from .. import console
from ..options.tool_options import Asking
from ..terminal.code_blocks import CodeText
from ..terminal.context_shift import tokens_left_out
from ..terminal.reading_line import ReadingLine
from ..terminal.repetition import AVOIDS_IT, Repetition
from ..terminal.terminal import quiet_keys
from .one_text import OneText
from .text import timings

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.answers.asking.eyes import SeenPicture
    from hybrid.infer.answers.chat.tools import ToolCall
    from hybrid.infer.answers.conversations.conversation import Conversation
    from hybrid.infer.text.chat_template import ChatTemplate
    from hybrid.pipeline.model_eyes import ModelEyes


@dataclass(frozen=True, eq=False, repr=False)
class OneMessage:
    """A message to answer.

    one  its text; its state is a saved chat. If that ends with calls, the text is their result: of one call the text
         itself, of several a JSON list of texts
    """

    one: OneText
    template: "ChatTemplate | None"
    system: str = ""
    asking: Asking = field(default_factory=Asking)
    eyes: "ModelEyes | None" = None


def answer(model: "LoadedModel", asked: OneMessage) -> None:
    """Streams the answer to stdout, then its calls, a JSON line each; thoughts only with `as_json`."""
    from hybrid.infer.answers.asking.reading import call_json

    one = asked.one
    one.answers.probabilities.check_raw()
    text = one.text.removesuffix("\n")  # which ends a file or a pipe
    if not text and not one.images:
        raise UsageError("the message is empty. Give one with -p TEXT or -f FILE.")
    conversation, repetition = _conversation(model, asked), Repetition()
    seen = [asked.eyes.read(data, name) for name, data in one.images] if asked.eyes is not None else []
    last = _stream(conversation, text, seen, repetition, as_json=one.as_json)
    result, turn = conversation.result, conversation.turns.head
    if result is None or turn is None:  # interrupted while reading the prompt
        raise KeyboardInterrupt
    if one.as_json:
        whole = conversation.reading.answer(result) if conversation.reading else turn.answer
        console.out_json({**console.plain(result), **whole.to_json()})
    else:
        if last and not last.endswith("\n"):
            console.out()
        for call in turn.answer.calls:
            console.out(json.dumps(call_json(call), ensure_ascii=False))
    if result.reason == "interrupt":
        raise KeyboardInterrupt
    if result.discarded:
        console.paragraph(tokens_left_out(model, result.discarded))
    if turn.answer.n_thought:
        console.note(f"thought for {turn.answer.n_thought} tokens (--json tells what)")
    if repetition.found:
        console.paragraph(f"the answer repeats itself; {AVOIDS_IT}")
    console.paragraph(timings(model, result))
    if one.state is not None:
        conversation.save(one.state)


def _stream(
    conversation: "Conversation", text: str, seen: "Sequence[SeenPicture]", repetition: Repetition, *, as_json: bool
) -> str:
    """Answers `text` about the pictures `seen`, or the calls whose results it is. Prints the answer's text unless
    `as_json`; returns its last part."""
    last = ""
    with quiet_keys() as screen, ReadingLine() as progress:
        shown = CodeText(screen)
        conversation.looking = progress.picture
        calls = conversation.calls
        if calls and seen:
            raise UsageError("the chat waits for results of calls, which are texts. Leave the pictures out.")
        if calls:
            parts = conversation.answer_calls(_results(text, calls), progress.step)
        else:
            parts = conversation.answer(text, progress.step, seen)
        for part in parts:
            progress.close()
            repetition.push(part.text)
            if part.kind == "text" and part.text and not as_json:
                shown.write(part.text if last else part.text.lstrip())
                last = part.text
    return last


def _conversation(model: "LoadedModel", asked: OneMessage) -> "Conversation":
    """A new conversation, or the one in the state file."""
    from hybrid.infer.answers.conversations.conversation import Conversation

    answers, state = asked.one.answers, asked.one.state
    conversation = Conversation(
        model,
        answers.params(model),
        asked.template,
        answers.answer_tokens,
        list(answers.stop),
        asked.system,
        answers.speculate,
        answers.keep,
        answers.constraint(model),
        eyes=asked.eyes,
    )
    if state is not None and not state.parent.is_dir():
        raise UsageError(f"{state.parent} is not a folder: the state cannot be saved there. Make it first.")
    if state is not None and state.exists():
        conversation.load(state)
        console.paragraph(f"restored {len(conversation.seq.tokens)} tokens from {state}")
        if conversation.settings:
            from ..chat.session import ChatSession
            from ..chat.setting_commands import restore

            given = answers.n_predict is not None
            restore(ChatSession(conversation, input, {}, sampling=answers.sampling, most_is_given=given), state)
    conversation.ask(asked.asking.over(conversation.asked))
    return conversation


def _results(text: str, calls: "Sequence[ToolCall]") -> list[str]:
    """The results of the calls. UsageError: several calls, and the text is not a list of as many texts."""
    if len(calls) == 1:
        return [text]
    names = ", ".join(call.name for call in calls)
    try:
        results = json.loads(text)
    except (ValueError, RecursionError):
        results = None
    if not isinstance(results, list) or len(results) != len(calls):
        raise UsageError(f"the chat waits for {len(calls)} results ({names}). Give them as a JSON list of texts.")
    return [result if isinstance(result, str) else json.dumps(result, ensure_ascii=False) for result in results]
