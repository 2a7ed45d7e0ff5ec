"""`hybrid run -p TEXT --template`: one message and its answer, in the model's chat template."""

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
from ..terminal.terminal import quiet_keys
from .text import OneText, timings

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.answers.chat.tools import ToolCall
    from hybrid.infer.answers.conversations.conversation import Conversation


@dataclass(frozen=True, eq=False, repr=False)
class OneMessage(OneText):
    """A message to answer. state: a saved chat. If that ends with calls, the text is their result: of one call the text
    itself, of several a JSON list of texts."""

    system: str = ""
    asking: Asking = field(default_factory=Asking)


def answer(model: "LoadedModel", asked: OneMessage) -> None:
    """Streams the answer to stdout, then its calls, a JSON line each; thoughts only with `as_json`."""
    from hybrid.infer.answers.asking.reading import call_json

    as_json = asked.as_json
    conversation = _conversation(model, asked)
    last = ""
    with quiet_keys() as screen, ReadingLine() as progress:
        shown = CodeText(screen)
        calls = conversation.calls
        if calls:
            parts = conversation.answer_calls(_results(asked.text, calls), progress.step)
        else:
            parts = conversation.answer(asked.text, progress.step)
        for part in parts:
            progress.close()
            if part.kind == "text" and part.text and not as_json:
                shown.write(part.text if last else part.text.lstrip())
                last = part.text
    result, turn = conversation.result, conversation.turns.head
    if result is None or turn is None:  # interrupted while reading the prompt
        raise KeyboardInterrupt
    if as_json:
        whole = conversation.reading.answer(result) if conversation.reading else turn.answer
        console.out_json({**console.plain(result), **whole.to_json()})
    else:
        if last and not last.endswith("\n"):
            shown.write("\n")
        for call in turn.answer.calls:
            console.out(json.dumps(call_json(call), ensure_ascii=False))
    if result.reason == "interrupt":
        raise KeyboardInterrupt
    if result.discarded:
        console.note(tokens_left_out(model, result.discarded))
    if turn.answer.n_thought:
        console.note(f"thought for {turn.answer.n_thought} tokens (--json tells what)")
    console.note(timings(model, result))
    if asked.state is not None:
        conversation.save(asked.state)


def _conversation(model: "LoadedModel", asked: OneMessage) -> "Conversation":
    """A new conversation, or the one in the state file."""
    from hybrid.infer.answers.conversations.conversation import Conversation

    answers, state = asked.answers, asked.state
    conversation = Conversation(
        model,
        answers.params(model),
        model.chat_template,
        answers.max_tokens,
        list(answers.stop),
        asked.system,
        answers.speculate,
        answers.keep,
        answers.constraint(model),
    )
    if conversation.template is None:
        raise UsageError(f"{model.path.name} has no chat template. Leave out --template.")
    if state is not None and not state.parent.is_dir():
        raise UsageError(f"{state.parent} is not a folder: the state could not be saved there. Make it first.")
    if state is not None and state.exists():
        conversation.load(state)
        console.note(f"restored {len(conversation.seq.tokens)} tokens from {state}")
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
