"""The prompt for the rest of an answer: the conversation up to the end of the last message, without closing tags."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybrid.quant.ggml.errors import TemplateError, UsageError

from .format import ThoughtFormat
from .messages import text_of, thoughts_in

END = "kq end of what is written"  # put after the message; the rendering is cut there

Message = Mapping[str, Any]
Write = Callable[[Sequence[Message], bool], str]  # messages, and whether the prompt for an answer follows


def begun(messages: Sequence[Message], write: Write, form: ThoughtFormat | None) -> tuple[str, bool, str]:
    """The text up to the end of the last message; whether it ends inside thoughts; the part of it that is the answer.

    Raises UsageError if the last message cannot be continued.
    """
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant" or last.get("tool_calls"):
        raise UsageError("the last message cannot be continued: expected one of the assistant without calls.")
    content, thoughts = text_of(last.get("content"), "the last message") or "", thoughts_in(last) if form else ""
    is_raw = form is not None and (form.opening in content or form.closing in content)
    try:
        asked = write(messages[:-1], True)
    except TemplateError:  # there is no question before the answer
        asked = None
    if asked is not None and not content and not thoughts:
        return asked, form is not None and _ends_in(asked, form.opening), ""
    opens = asked is not None and form is not None and _ends_in(asked, form.opening)
    header = asked  # the prompt without thoughts that it opens, or opens and closes
    if asked is not None and form is not None and (opens or _ends_in(asked, form.closing)):
        header = asked[: asked.rfind(form.opening)]
    text = None if is_raw and header is not None else _rendered(messages, write, content, thoughts)
    if text is None or (header is not None and not text.startswith(header)) or thoughts.strip() not in text:
        text = None
    elif content and opens and form is not None and _is_open(form, _behind(text, asked, header, content), opens):
        text = None  # the template writes text as thoughts
    if text is None:
        if asked is None or header is None:
            raise TemplateError("the chat template does not write the message that is to be continued.")
        if is_raw:
            text = header + content
        elif thoughts and form is not None:
            text = (asked if opens else f"{header}{form.opening}\n") + thoughts
            text += f"\n{form.closing}\n\n{content}" if content else ""
        else:
            text = asked + (f"\n{form.closing}\n\n" if opens and form is not None else "") + content
    written = _behind(text, asked, header, content)
    return text, form is not None and _is_open(form, written, opens), written


def _ends_in(text: str, mark: str) -> bool:
    return text.rstrip().endswith(mark)


def _rendered(messages: Sequence[Message], write: Write, content: str, thoughts: str) -> str | None:
    """The template's text up to the end of the message; None: it does not write that end, or more than once."""
    last = {key: value for key, value in messages[-1].items() if key not in ("content", "reasoning", "thinking")}
    if thoughts and not content:
        last |= {"content": "", "reasoning_content": thoughts + END}
    else:
        last |= {"content": content + END, **({"reasoning_content": thoughts} if thoughts else {})}
    try:
        text = write([*messages[:-1], last], False)
        if text.count(END) != 1:
            return None
        text = text[: text.index(END)]
        whole = write(messages, False)
    except TemplateError:
        return None
    if not whole.startswith(text):  # the template strips messages; trailing space is part of the answer to be continued
        text = text.rstrip() + content[len(content.rstrip()) :]
    return text


def _behind(text: str, asked: str | None, header: str | None, content: str) -> str:
    """The part of the text that is the answer: all after its prompt."""
    for before in (asked, header):
        if before is not None and text.startswith(before):
            return text[len(before) :]
    at = text.rfind(content.strip()) if content.strip() else -1
    return text[at:] if at >= 0 else content


def _is_open(form: ThoughtFormat, written: str, opens: bool) -> bool:
    if form.opening in written or form.closing in written:
        return written.rfind(form.opening) > written.rfind(form.closing)
    return opens
