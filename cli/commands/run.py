"""`hybrid run`: a chat in the terminal, or one answer for a script."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.infer.answers.drawing.context_shift import ALL, DEFAULT_KEEP
from hybrid.pipeline import models
from hybrid.quant.ggml.errors import HybridError, UsageError, shown

from .. import console
from ..options import model_argument, text_options
from ..options.answer_options import ANSWER_TOKENS, COMPLETION_TOKENS, AnswerOptions
from ..options.cluster_options import ClusterAddress, cluster_address
from ..options.form_options import FormOptions
from ..options.framing import Framing, chosen_template
from ..options.given_text import Given, Resuming
from ..options.groups import takes_groups
from ..options.guess_options import GuessOptions, guesses_text
from ..options.loading_options import Checkpoints, Context, Lora, Precision, ThreadOptions, load_options
from ..options.model_loading import loaded_for_answers
from ..options.probability_options import Probabilities
from ..options.sampling_options import Sampling
from ..options.stage_options import WorkerOptions
from ..options.tool_options import Asking, Thoughts, Tools, asking
from ..options.vision_options import Images
from ..run.one_text import OneText
from ..terminal.context_shift import tokens_left_out

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.answers.asking.eyes import SeenPicture
    from hybrid.infer.answers.prompt_files.prompt_files import PromptBatch
    from hybrid.infer.loading.options import LoadOptions
    from hybrid.pipeline.model_eyes import ModelEyes

    from ..cluster.prompts import ClusterBatch

CHAT_TOKENS_WITHOUT_TEMPLATE = 128  # without a template a model does not stop by itself
BATCH = 'With -f FILE.jsonl: lines of {"prompt": TEXT}, which is continued, or {"messages": [...]}'
PARALLEL = 8


@dataclass(frozen=True, eq=False, repr=False)
class BatchOptions:
    """Options for files of prompts only."""

    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File to write the answers to. If it has some already, continue after them.",
            rich_help_panel=BATCH,
        ),
    ] = None
    parallel: Annotated[
        int | None, typer.Option(min=1, help=f"Answers computed at a time. Default: {PARALLEL}.", rich_help_panel=BATCH)
    ] = None
    n_samples: Annotated[
        int | None, typer.Option(min=1, help="Answers per prompt. Default: 1.", rich_help_panel=BATCH)
    ] = None


@dataclass(frozen=True, eq=False, repr=False)
class Shift:
    """Options for a full context."""

    context_shift: Annotated[
        bool,
        typer.Option(
            "--context-shift",
            help="When the context is full, drop its older half from the attention layers and continue.",
        ),
    ] = False
    keep: Annotated[
        int | None,
        typer.Option(
            min=ALL,
            metavar="N",
            help="With --context-shift: tokens at the beginning of the prompt (in a chat: of the system message) "
            f"that are never dropped, besides BOS; {ALL}: all of it.  [default: {DEFAULT_KEEP}]",
        ),
    ] = None

    def kept(self) -> int | None:
        """Tokens that a context shift never drops, or None without --context-shift. UsageError: --keep without it."""
        if self.context_shift:
            return DEFAULT_KEEP if self.keep is None else self.keep
        if self.keep is not None:
            raise UsageError("--keep needs --context-shift: it says which tokens a shift never drops.")
        return None


@takes_groups
def run(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help=model_argument.DEFAULT)] = None,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT", help="The message, as with -p; needs MODEL before it.")
    ] = None,
    *,
    given: Given,
    images: Images,
    n_predict: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--n-predict",
            min=-1,
            help=f"Maximum tokens to generate; -1: until the context is full. Default: {ANSWER_TOKENS} in a chat "
            f"template; else {COMPLETION_TOKENS}, in a chat {CHAT_TOKENS_WITHOUT_TEMPLATE}.",
        ),
    ] = None,
    n_ctx: Context = 0,
    machine: ThreadOptions,
    kept: Resuming,
    batch: BatchOptions,
    workers: WorkerOptions,
    lora: Lora = None,
    guessing: GuessOptions,
    shift: Shift,
    precision: Precision,
    checkpoints: Checkpoints,
    framing: Framing,
    tools: Tools,
    thoughts: Thoughts,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print text, token ids and timings as JSON when the answer is complete.")
    ] = False,
    form: FormOptions,
    sampling: Sampling,
    probabilities: Probabilities,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Stop before this text. May be repeated.")
    ] = None,
) -> None:
    """Chat with a model, or ask it once.

    In a terminal, `hybrid run MODEL` is a chat; /help lists its commands. With a prompt (PROMPT, -p, -f or a pipe), the
    model answers it once, in its chat template; a model without a template continues the text, as --raw makes every
    model do. The answer goes to stdout, everything else to stderr. With -f FILE.jsonl it answers all prompts of the
    file, several at a time.
    """
    # modules that only some runs need are imported there; a test lists the modules that every run imports
    many, state = given.many, kept.state
    if many is not None:
        for_one = {
            "PROMPT": words, "-p": given.prompt, "--state": state, "--continue": kept.go_on, "--json": as_json,
            "--system": framing.system, "--raw": framing.raw is True, "--no-raw": framing.raw is False,
            "--chat-template": framing.chat_template, "--image": images.image, "--chat": given.chat,
        }  # fmt: skip
        _refuse(for_one, "does not go with")
    else:
        for_many = {"-o": batch.output, "--parallel": batch.parallel, "--n-samples": batch.n_samples}
        _refuse(for_many | ({"--cluster": workers.cluster} if workers.stages is None else {}), "belongs to")
    keep = shift.kept()
    workers.check(machine.pinning, divides=True)
    address = cluster_address(workers.cluster) if workers.stages is None else None
    if model is not None and not model.exists():
        models.named(model)  # before it is said that stdin has no prompt
    if images.image and framing.raw:
        raise UsageError("--image does not go with --raw: pictures are parts of messages.")
    pictures = images.files()
    piped, goes_on = not images.from_stdin, state is not None
    text = None if many is not None else given.text(words or (), as_json=as_json, goes_on=goes_on, piped=piped)
    kept.check()
    asks = replace(asking(thoughts, tools), parse_special=framing.parse_special is True)
    framing.check(asks)
    in_chat = many is None and (text is None or given.begins_chat(as_json=as_json))
    probabilities.check(in_chat=in_chat)
    answers = AnswerOptions(sampling, n_predict, stop or (), guessing.given, keep, form.read(), probabilities)
    options = load_options(machine, precision, checkpoints, n_ctx=n_ctx, lora=lora)
    n_texts = 1 if many is None else batch.parallel or PARALLEL
    with (
        loaded_for_answers(model, replace(options, n_seq_max=n_texts), workers, guessing) as loaded,
        closing(images.vision.eyes(loaded)) as eyes,
    ):
        if many is not None:
            plain = framing.parse_special is False
            file = PromptFile(many, answers, batch, asks, options, address, plain=plain, eyes=eyes)
            answer_file(loaded, replace(file, is_bundled=model is None))
        elif text is None or in_chat:
            seen = [eyes.read(data, name) for name, data in pictures]
            _chat(loaded, framing, kept, answers, options, asks, eyes, seen, text, is_bundled=model is None)
        else:
            special = framing.parse_special is not False
            one = OneText(text, answers, state, as_json, parse_special=special, images=pictures)
            if kept.go_on:
                _continue(loaded, framing, one, asks, eyes, is_bundled=model is None)
            else:
                _answer(loaded, framing, one, asks, eyes, is_bundled=model is None, goes_on_raw=kept.is_completion)


def _chat(
    model: "LoadedModel",
    framing: Framing,
    kept: Resuming,
    answers: AnswerOptions,
    options: "LoadOptions",
    asks: Asking,
    eyes: "ModelEyes",
    seen: "Sequence[SeenPicture]",
    first: str | None,
    *,
    is_bundled: bool,
) -> None:
    """Chats in the terminal. seen: the pictures of the first message, `first`; None: it is typed."""
    from ..chat.opening import Start, chat

    start = Start(
        answers,
        options,
        kept.state,
        kept.go_on,
        framing.chats(asks, is_bundled=is_bundled),
        framing.system,
        asks,
        framing.chat_template,
        is_bundled=is_bundled,
        most_continued=CHAT_TOKENS_WITHOUT_TEMPLATE,
        eyes=eyes,
        pictures=seen,
        first=first,
    )
    chat(model, start)


def _continue(
    model: "LoadedModel", framing: Framing, one: OneText, asks: Asking, eyes: "ModelEyes", *, is_bundled: bool
) -> None:
    """Answers one message of the last chat with the model."""
    from ..chat import saved_chats
    from ..run.message import OneMessage, answer

    template, answers = None, one.answers
    if framing.chats(asks, is_bundled=is_bundled):
        template = chosen_template(framing.chat_template, model.chat_template, model.gguf, model.tokenizer)
    if answers.n_predict is None and template is None:
        answers = replace(answers, n_predict=CHAT_TOKENS_WITHOUT_TEMPLATE)
    one = replace(one, answers=answers, state=saved_chats.last(model))
    answer(model, OneMessage(one, template, framing.system, asks, eyes))


def _answer(
    model: "LoadedModel",
    framing: Framing,
    one: OneText,
    asks: Asking,
    eyes: "ModelEyes",
    *,
    is_bundled: bool,
    goes_on_raw: bool,
) -> None:
    """Answers or continues one text."""
    template = None if framing.raw else chosen_template(
        framing.chat_template, model.chat_template, model.gguf, model.tokenizer
    )  # fmt: skip
    if framing.asks(template, asks, model.path.name, is_bundled=is_bundled, goes_on_raw=goes_on_raw):
        from ..run.message import OneMessage, answer

        assert template is not None
        answer(model, OneMessage(one, template, framing.system, asks, eyes))
    elif one.images:
        raise UsageError(f"{shown(model.path.name)} continues texts here: a picture belongs to a message of a chat.")
    else:
        from ..run.text import complete

        complete(model, one)


def _refuse(given: Mapping[str, object], how: str) -> None:
    """UsageError if one of the options is given."""
    for name, value in given.items():
        if value:
            raise UsageError(f"{name} {how} a file of prompts (-f FILE.jsonl).")


@dataclass(frozen=True, eq=False, repr=False)
class PromptFile:
    """A file of prompts, and how it is answered.

    asking   tools and thoughts for lines that do not set them
    plain    see PromptBatch
    eyes     read the pictures of messages
    is_bundled  no model was named
    options  how the model was loaded; the workers of `cluster`, which answer instead of this process, load it likewise
    """

    file: Path
    answers: AnswerOptions
    batch: BatchOptions
    asking: Asking
    options: "LoadOptions"
    cluster: ClusterAddress | None = None
    plain: bool = False
    eyes: "ModelEyes | None" = None
    is_bundled: bool = False


def answer_file(model: "LoadedModel", asked: PromptFile) -> None:
    """Writes the answers to a file of prompts to a file or stdout."""
    from hybrid.infer.answers.constraints.forms import Forms
    from hybrid.infer.answers.prompt_files.prompt_files import PromptBatch

    answers, probabilities = asked.answers, asked.answers.probabilities
    batch = PromptBatch(
        model,
        answers.params(model),
        answers.max_tokens,
        answers.stop,
        asked.batch.parallel or PARALLEL,
        asked.batch.n_samples or 1,
        answers.keep,
        answers.speculate,
        Forms(model.tokenizer),
        probabilities.n_probs,
        probabilities.post_sampling_probs,
        asked.plain,
    )
    if asked.cluster is None:
        _write_answers(batch, batch, asked)
        return
    from ..cluster.prompts import batch_on

    with batch_on(asked.cluster, batch, asked.options, answers.form, asked.asking.over(), console.note) as spread:
        _write_answers(spread, batch, asked)


def _write_answers(by: "PromptBatch | ClusterBatch", batch: "PromptBatch", asked: PromptFile) -> None:
    """Writes the answers and a summary. by: the batch itself, or the cluster that runs it."""
    from hybrid.infer.answers.prompt_files.line_pictures import LinePictures
    from hybrid.infer.answers.prompt_files.prompt_files import read_prompts

    output, form = asked.batch.output, asked.answers.form
    if output is not None and not output.parent.is_dir():
        raise UsageError(f"{output.parent} is not a folder. Make it first.")
    lines = text_options.read_text(asked.file)
    pictures = None
    if asked.eyes is not None and asked.cluster is None:  # a cluster's workers have other files
        pictures = LinePictures(asked.eyes, asked.file.parent)
    prompts = read_prompts(lines, shown(asked.file), batch.model, form, batch.forms, asked.asking.over(), pictures)
    if (
        not asked.is_bundled
        and batch.model.chat_template is not None
        and (n := sum(prompt.chat is None for prompt in prompts))
    ):
        console.note(
            f'{n} of {len(prompts)} prompts are continued as they stand; {{"messages": [{{"role": "user", "content": '
            "TEXT}]} is answered in the chat template, as -p TEXT is"
        )
    start = time.perf_counter()
    try:
        with console.ProgressBar("answers", "answers") as progress:
            result = by.run(prompts, output or sys.stdout, progress.step)
    except KeyboardInterrupt:
        if output is None:
            raise
        goes_on = f"interrupted; the same command goes on after the answers that are in {output}"
        raise KeyboardInterrupt(goes_on) from None
    seconds = time.perf_counter() - start
    if result.discarded:
        console.note(tokens_left_out(batch.model, result.discarded))
    before = f" ({result.n_before} were there)" if result.n_before else ""
    console.note(
        f"{result.n_answers} answers{before}, {result.tokens} tokens{console.rate(result.tokens, seconds)}"
        f"{guesses_text(result.accepted, result.guessed)}; "
        f"{result.processed_tokens} of {result.prompt_tokens} prompt tokens were new"
    )
    if result.set_aside:
        raise HybridError(
            f'{len(result.set_aside)} of the answers are set aside: their lines have "error" and no text. Where that '
            "was not the prompt's fault, remove the lines from there on and run the same command again."
        )
