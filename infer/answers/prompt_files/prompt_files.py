"""Answers a file of prompts: one JSON object per line in, one per answer out, in the same order.

    in    {"prompt": TEXT} or {"messages": [{"role": ..., "content": ...}, ...]} or just "TEXT"; "id" is passed through;
          a line's own form (one of `form_fields.FIELDS`: "json_schema", "grammar", ...) replaces the common form
          messages may have "tools" and "tool_choice", as at OpenAI, and parts {"type": "image", "image": PATH} of their
          content, with paths relative to the file; every line may have limits, stops and sampling
          settings as in a request to the server (`line_settings`), which replace the file's settings
    out   {"index", "id", "sample", "text", "reason", "prompt_tokens", "tokens", "key"}, with n_probs also
          "completion_probabilities"; for messages "reasoning_content" and "tool_calls", if there are any

Answers are appended as they become complete. `key` identifies the model, the settings, the prompt and the sample: with
it an interrupted run continues after the last line that it wrote, and refuses a file that belongs to something else.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from hybrid.quant.ggml.errors import Remedy, UsageError, shown
from hybrid.quant.ggml.sources import check_source

from ...progress import AnswerProgress
from ..chat.dialect import NOTHING, AnswerRules, ChatOptions, Dialect
from ..constraints.form_fields import asked_form
from ..constraints.forms import Forms
from ..sampling import SamplingParams
from .chat_lines import FIELDS, ChatLine
from .line_pictures import LinePictures
from .line_settings import LineSettings

if TYPE_CHECKING:
    from ... import LoadedModel
    from ...engine.pictures import Picture
    from ..asking.asker import Asker, Prompt
    from ..batch.batcher import Job
    from ..constraints import Constraint, Grammar
    from ..drawing.drawing import TextPiece

WAITING = 64  # jobs that are prepared ahead


@dataclass(frozen=True)
class PromptLine:
    """One line of the file. form: the form of its answers; own: its settings; line: its raw text."""

    index: int
    text: str
    id: Any
    chat: ChatLine | None = None  # `text` is then the template's, with control tokens spelled out
    form: "Grammar | None" = None
    own: LineSettings | None = None
    line: str = ""


@dataclass(frozen=True)
class BatchResult:
    """The work done, in answers and tokens."""

    n_answers: int
    n_before: int  # answers that the file already had
    prompt_tokens: int  # all prompts together
    processed_tokens: int  # prompt tokens that had to be processed
    tokens: int
    discarded: int  # tokens that left a full context
    guessed: int  # tokens that were guessed and verified
    accepted: int  # guessed tokens that were right
    set_aside: tuple[int, ...] = field(default=(), kw_only=True)  # indices of prompts whose lines have an error


def read_prompts(
    text: str,
    name: str,
    model: "LoadedModel",
    form: "Grammar | None" = None,
    forms: "Forms | None" = None,
    asked: ChatOptions = NOTHING,
    pictures: LinePictures | None = None,
) -> list[PromptLine]:
    """The prompts of a file's text, in order. Raises UsageError, which names the first line that is not a prompt, or
    whose form cannot be compiled.

    form   of the answers to lines without their own
    forms  compiles the forms, and keeps them for reuse
    asked  options of messages that their line does not set
    pictures  reads the pictures of messages; None: they are refused
    """
    reader = PromptReader(model, form, forms, asked, pictures)
    prompts: list[PromptLine] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            prompts.append(reader.read(line, len(prompts), f"{name}, line {number}"))
    if not prompts:
        raise UsageError(f"{name} has no prompts.")
    return prompts


class PromptReader:
    """Reads lines of a file one by one, in any order; arguments: see `read_prompts`.

    Raises UsageError if the model cannot do what `asked` says.
    """

    def __init__(
        self,
        model: "LoadedModel",
        form: "Grammar | None" = None,
        forms: "Forms | None" = None,
        asked: ChatOptions = NOTHING,
        pictures: LinePictures | None = None,
    ) -> None:
        self._model, self._form, self._asked, self._pictures = model, form, asked, pictures
        self._forms = Forms(model.tokenizer) if forms is None else forms
        if asked.needs_template and (known := self._dialect) is not None:
            known.check(asked)

    @cached_property
    def _dialect(self) -> Dialect | None:
        """Made for the first line with messages, since probing the template takes tens of milliseconds."""
        template = self._model.chat_template
        return None if template is None else Dialect(template, self._model.tokenizer, self._forms)

    def read(self, line: str, index: int, where: str) -> PromptLine:
        """The prompt of a line. Raises UsageError, which begins with `where`, if the line is wrong."""
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise UsageError(f"{where} is not JSON. Each line is an object with a prompt or messages.") from None
        if isinstance(value, str):
            value = {"prompt": value}
        if not isinstance(value, dict) or ("prompt" in value) == ("messages" in value):
            raise UsageError(f'{where}: expected {{"prompt": TEXT}} or {{"messages": [...]}}.')
        settings = self._settings(value, where)
        own = _own_form(value, self._form, self._forms, where)
        chat = self._chat_line(value, None if own is None else self._forms.compiled(own), where)
        prompt = value.get("prompt") if chat is None else chat.prompt.text
        if not isinstance(prompt, str) or not prompt:
            raise UsageError(f"{where}: its prompt is not a text.")
        return PromptLine(index, prompt, value.get("id"), chat, own, settings, line)

    def _settings(self, line: dict[str, Any], where: str) -> LineSettings | None:
        """The line's own settings."""
        try:
            own = LineSettings.read(line)
            if own is not None:
                own.params(SamplingParams(), self._model.tokenizer, 0)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        return own

    def _chat_line(self, line: dict[str, Any], form: "Constraint | None", where: str) -> ChatLine | None:
        """The messages of a line; None if its prompt is a text."""
        if "messages" not in line:
            if self._asked.needs_template or any(line.get(name) is not None for name in FIELDS):
                raise UsageError(
                    f"{where}: tools and thoughts need messages, and the line has a prompt. Give messages."
                )
            return None
        try:
            asked = self._asked
            if line.get("parse_special") is not None:
                asked = replace(asked, parse_special=line["parse_special"])
            return ChatLine.read(line, self._dialect, asked, form, self._pictures)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None


def _own_form(line: dict[str, Any], form: "Grammar | None", forms: Forms, where: str) -> "Grammar | None":
    """The form of a line's answers: its own, or the form of all lines."""
    try:
        own = asked_form(line)
        if own is not None:
            forms.compiled(own)
    except UsageError as err:
        raise UsageError(f"{where}: {err}") from None
    return form if own is None and line.get("response_format") is None else own


class Lines:
    """Appends lines, each at once and whole, to a file or a stream.

    The file is not replaced: whatever interrupts hours of work, its lines stay, and the next run continues after them.
    """

    def __init__(self, target: Path | TextIO) -> None:
        self._path = target if isinstance(target, Path) else None
        self._file = target.open("ab", buffering=0) if isinstance(target, Path) else None
        self._stream = None if isinstance(target, Path) else target

    def write(self, line: str) -> None:
        """Adds the line and its end. OSError names the file, from which a partly written line is removed."""
        if self._stream is not None:
            self._stream.write(line + "\n")
            self._stream.flush()
        if self._file is None:
            return
        data, size = (line + "\n").encode(), self._file.tell()
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as err:
            self._file.truncate(size)
            raise OSError(err.errno, err.strerror, str(self._path)) from err

    def close(self) -> None:
        """Closes the file; a stream stays open."""
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True)
class PreparedPrompt:
    """A prompt, its tokens, how many of them stay in a full context, how its answers are sampled, and its pictures."""

    prompt: PromptLine
    ids: list[int]
    kept: int | None
    rules: AnswerRules
    pictures: "tuple[Picture, ...]" = ()


def counted(job: "Job") -> tuple[int, ...]:
    """The values that an answer adds to six fields of a `BatchResult`, from prompt_tokens on."""
    result = job.result
    return (
        len(job.ids), result.prompt_tokens, len(result.ids), result.discarded, result.guessed - result.forced,
        max(0, result.accepted - result.forced),
    )  # fmt: skip


@dataclass(frozen=True)
class PromptBatch:
    """How to answer: n_samples answers to each prompt, n_parallel at a time.

    keep: first tokens of a prompt that stay when a full context drops old ones; None: a full context ends the answer.
    speculate: guess tokens where it pays; the answers are the same.
    forms: compiles forms, and has already compiled the prompts' forms; None: a new `Forms`.
    plain: control tokens written in prompts that are texts stay text.
    n_probs: every answer lists the probabilities of its tokens and of the n_probs most likely ones; 0: of no token.
    sampled: these probabilities are after the samplers, not the model's.
    """

    model: "LoadedModel"
    params: "SamplingParams"
    max_tokens: int
    stop: Sequence[str] = ()
    n_parallel: int = 8
    n_samples: int = 1
    keep: int | None = None
    speculate: bool = False
    forms: Forms | None = None
    n_probs: int = 0
    sampled: bool = False
    plain: bool = False

    def run(
        self, prompts: list[PromptLine], target: Path | TextIO, progress: AnswerProgress | None = None
    ) -> BatchResult:
        """Writes the answers to `target`; a file that has some answers is continued.

        OSError names the file if no more can be written; it then holds the answers so far.
        """
        from ..batch.batcher import Batcher

        total = len(prompts) * self.n_samples
        before = 0
        if isinstance(target, Path):
            before = self.resume(prompts, target)
        out = Lines(target)
        # nobody watches these answers: prompts may take all of a pass
        batcher = Batcher(self.model.runner, min(self.n_parallel, max(1, total - before)), step_seconds=math.inf)
        done: dict[int, Job] = {}
        drawn: dict[object, list[TextPiece]] = {}  # pieces of answers whose probabilities are listed
        written = before
        sums: tuple[int, ...] = (0,) * 6
        jobs = self._jobs(prompts, before)
        try:
            more = True
            while more or batcher.busy:
                while more and batcher.n_waiting < WAITING:
                    job = next(jobs, None)
                    more = job is not None
                    if job is not None:
                        job.on_text = drawn.setdefault(job.key, []).append if self.n_probs else None
                        batcher.submit(job)
                for job in batcher.step():
                    if job.error is not None:
                        raise job.error
                    assert isinstance(job.key, int)
                    done[job.key] = job
                while written in done:
                    job = done.pop(written)
                    prompt, sample = prompts[written // self.n_samples], written % self.n_samples
                    out.write(self.line(prompt, sample, job, drawn.pop(written, [])))
                    written += 1
                    sums = tuple(a + b for a, b in zip(sums, counted(job), strict=True))
                    if progress:
                        progress(written, total)
        finally:
            batcher.close()
            out.close()
        return BatchResult(total - before, before, *sums)

    def _jobs(self, prompts: list[PromptLine], first: int) -> "Iterator[Job]":
        for prompt in prompts:
            if (prompt.index + 1) * self.n_samples > first:
                asked = self.prepared(prompt)
                for sample in range(self.n_samples):
                    if prompt.index * self.n_samples + sample >= first:
                        yield self.job(asked, sample)

    def ids(self, prompt: PromptLine) -> list[int]:
        """Tokens of a prompt. Raises UsageError if they do not fit the context."""
        return self._made(prompt).ids

    def _made(self, prompt: PromptLine) -> "Prompt":
        parses = None if prompt.own is None else prompt.own.parse_special
        plain = prompt.chat is None and (self.plain if parses is None else not parses)
        seen = () if prompt.chat is None else prompt.chat.prompt.pictures
        made = self._asker.text(prompt.text, plain=plain, drawn=False, seen=seen)
        if len(made.ids) > self.model.n_ctx:
            raise UsageError(
                f"prompt {prompt.index + 1} has {len(made.ids)} tokens, the context {self.model.n_ctx}.",
                remedy=Remedy.LARGER_CONTEXT,
            )
        return made

    def prepared(self, prompt: PromptLine) -> PreparedPrompt:
        """The part that all answers to a prompt share. Raises UsageError if the prompt does not fit the context."""
        from ..drawing.context_shift import kept_tokens

        made = self._made(prompt)
        ids = made.ids
        kept = None if self.keep is None else kept_tokens(self.model, ids, self.keep)
        form = None if prompt.form is None else self._asker.forms.compiled(prompt.form)
        rules = AnswerRules(form) if prompt.chat is None else prompt.chat.rules(form)
        return PreparedPrompt(prompt, ids, kept, rules, made.pictures)

    def job(self, asked: PreparedPrompt, sample: int) -> "Job":
        """One of the answers. Its key is its number among the answers to all prompts. Its seed is derived from that
        number, so the answer does not depend on where, or beside which others, it is sampled.
        """
        from ..asking.asker import AnswerSettings, Prompt

        number = asked.prompt.index * self.n_samples + sample
        params = replace(self.params, seed=((self.params.seed or 0) + number) % 2**64)
        most, stop, own = self.max_tokens, self.stop, asked.prompt.own
        if own is not None:
            params = own.params(params, self.model.tokenizer, sample)
            most = most if own.max_tokens is None else own.max_tokens
            stop = stop if own.stop is None else own.stop
        settings = AnswerSettings(
            params, most, stop, asked.rules, min(self.n_probs, self.model.n_vocab) or None, self.sampled
        )
        return self._asker.job(
            Prompt(asked.ids, pictures=asked.pictures),
            settings,
            note=False,
            key=number,
            keep=asked.kept,
            speculate=self.speculate,
        )

    @cached_property
    def _asker(self) -> "Asker":
        from ..asking.asker import Asker

        return Asker(self.model.tokenizer, None, self.model.n_vocab, self.forms)

    def key(self, prompt: PromptLine, sample: int) -> str:
        model = self.model
        what = [model.fingerprint, model.kv_type, model.precision, self.params.changed, self.max_tokens, [*self.stop]]
        what += [] if self.keep is None else [self.keep]
        what += [] if prompt.form is None else [prompt.form.to_json()]
        what += [self.n_probs, self.sampled] if self.n_probs else []
        what += prompt.chat.key if prompt.chat is not None else []
        what += [] if prompt.own is None else prompt.own.key
        what += ["plain"] if self.plain else []
        text = f"{what!r} {prompt.index} {prompt.chat is not None} {sample} {self.n_samples}\n{prompt.text}"
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]

    def line(self, prompt: PromptLine, sample: int, job: "Job", drawn: "list[TextPiece]") -> str:
        from ..drawing.probabilities import listed

        result = job.result
        values = {
            "index": prompt.index,
            "id": prompt.id,
            "sample": sample,
            "text": result.text,
            "reason": result.reason,
            "prompt_tokens": len(job.ids),
            "tokens": len(result.ids),
            "key": self.key(prompt, sample),
        }
        if prompt.chat is not None:
            values |= prompt.chat.values(result)
        if self.n_probs:
            values["completion_probabilities"] = listed(self.model.tokenizer, drawn, self.sampled)
        return json.dumps(values, ensure_ascii=False)

    def resume(self, prompts: list[PromptLine], path: Path) -> int:
        """Number of answers that the file already holds; an incomplete last line is cut off."""
        if not path.exists():
            return 0
        check_source(path, "a file of answers")
        raw = path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        lines = whole.splitlines()
        other = f"{shown(path)} holds answers to other prompts or settings. Remove it, or write to another file."
        if len(lines) > len(prompts) * self.n_samples or (raw and not lines):
            raise UsageError(other)
        for number, line in enumerate(lines):
            try:
                key = json.loads(line)["key"]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise UsageError(other) from None
            if key != self.key(prompts[number // self.n_samples], number % self.n_samples):
                raise UsageError(other)
        if len(whole) < len(raw):  # left by a process that was killed; all lines before it stay
            with path.open("r+b") as file:
                file.truncate(len(whole))
        return len(lines)
