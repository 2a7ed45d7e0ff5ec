"""`hybrid run`: a chat in the terminal, or one completion for a script."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.infer.answers.generation.context_shift import ALL, DEFAULT_KEEP
from hybrid.quant.ggml.errors import HybridError, UsageError, shown

from .. import console
from ..options import form_options, model_argument
from ..options.cluster import Cluster, cluster_address
from ..options.form_options import Choice, GrammarFile, JsonSchema, Regex
from ..options.guessing import GUESSES, DraftOption, Spec, guesses_text
from ..options.loading_options import (
    DEFAULT_BUDGET,
    CheckpointBudget,
    CheckpointType,
    Context,
    Cpus,
    Exact,
    KVType,
    KVTypeOption,
    Lora,
    NumaOption,
    Threads,
    check_here,
    load_options,
)
from ..options.probabilities import NProbs, PostSamplingProbs
from ..options.sampling_options import Sampling, takes_sampling
from ..options.stages import Stages, answering, check_stages
from ..options.tool_options import Asking, ThinkBudget, ThinkOption, ToolChoice, Tools, asking
from ..screen.context_shift import tokens_left_out

if TYPE_CHECKING:
    from hybrid.infer import Model
    from hybrid.infer.answers.constraints import Constraint, Grammar
    from hybrid.infer.answers.prompts.prompt_files import PromptBatch

    from ..cluster.prompts import ClusterBatch

COMPLETION_TOKENS = 256
CHAT_TOKENS_WITHOUT_TEMPLATE = 128  # a model that was not trained to answer does not stop
BATCH = 'With -f FILE.jsonl: lines of {"prompt": TEXT} or {"messages": [...]}, and the form of their answers'
PARALLEL = 8


@takes_sampling
def run(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help=model_argument.DEFAULT)] = None,
    prompt: Annotated[
        str | None,
        typer.Option("-p", "--prompt", help="Complete this text and exit.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", help="Complete this file's text; - is stdin. FILE.jsonl: answer all its prompts."),
    ] = None,
    n_predict: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--n-predict",
            min=-1,
            help=f"Most tokens to generate; -1: until the context is full. Default: {COMPLETION_TOKENS}; in a chat -1, "
            f"without a chat template {CHAT_TOKENS_WITHOUT_TEMPLATE}.",
        ),
    ] = None,
    n_ctx: Context = 0,
    threads: Threads = 0,
    cpus: Cpus = None,
    numa: NumaOption = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Go on from FILE when it exists (the prompt is appended to what it holds); save there at the end.",
        ),
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--continue", help="Go on with the last chat with this model; `hybrid state` lists them.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the answers there; go on after those it already has.",
            rich_help_panel=BATCH,
        ),
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(min=1, help=f"Answers at a time. Default: {PARALLEL}.", rich_help_panel=BATCH),
    ] = None,
    n_samples: Annotated[
        int | None,
        typer.Option("--n-samples", min=1, help="Answers to each prompt. Default: 1.", rich_help_panel=BATCH),
    ] = None,
    cluster: Cluster = None,
    stages: Stages = None,
    lora: Lora = None,
    spec: Annotated[
        Spec,
        typer.Option(help=f"{GUESSES}."),
    ] = Spec.NONE,
    draft: DraftOption = None,
    context_shift: Annotated[
        bool,
        typer.Option(
            "--context-shift",
            help="When the context is full, its older half leaves the attention layers and the text goes on.",
        ),
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            min=ALL,
            metavar="N",
            help="With --context-shift: tokens of the prompt (in a chat: of the system message) that stay beside BOS; "
            f"{ALL}: all.  [default: {DEFAULT_KEEP}]",
        ),
    ] = None,
    exact: Exact = False,
    kv_type: KVTypeOption = None,
    checkpoint_budget: CheckpointBudget = DEFAULT_BUDGET,
    checkpoint_type: CheckpointType = KVType.F32,
    system: Annotated[
        str,
        typer.Option(metavar="TEXT", help="In the chat template: what the model is told first.", show_default=False),
    ] = "",
    template: Annotated[
        bool | None,
        typer.Option(
            "--template/--no-template",
            help="Whether a text is a message in the model's chat template. Default: in a chat it is (but not to the "
            "bundled model); from -p, -f or a pipe it is continued as it stands.",
        ),
    ] = None,
    tools: Tools = None,
    tool_choice: ToolChoice = None,
    think: ThinkOption = None,
    think_budget: ThinkBudget = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print text, token ids and timings as JSON, at the end.")
    ] = False,
    json_schema: JsonSchema = None,
    grammar: GrammarFile = None,
    regex: Regex = None,
    choice: Choice = None,
    sampling: Sampling = Sampling(),  # noqa: B008  replaced by its options
    n_probs: NProbs = 0,
    post_sampling_probs: PostSamplingProbs = False,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End before this text; may be given several times."),
    ] = None,
) -> None:
    """Chat with a model, or complete a text.

    In a terminal: a chat in the model's own template, in which /help lists commands. With -p, -f or a pipe: the text
    is continued once, the continuation goes to stdout and everything else to stderr; with --template it is answered.
    With -f FILE.jsonl: all prompts of the file, several at a time.
    """
    # what only some runs need is imported where they need it: a test lists what all do
    from hybrid.infer.answers.prompts import SUFFIX

    from ..options import probabilities, texts

    if prompt is not None and file is not None:
        raise UsageError("-p and -f are both given. Use one of them.")
    many = file is not None and file.suffix == SUFFIX
    refused: dict[str, object]
    if many:
        refused = {
            "--state": state, "--continue": go_on, "--json": as_json, "--system": system,
            "--template": template is True, "--no-template": template is False,
        }  # fmt: skip
    else:
        refused = {"-o": output, "--parallel": parallel, "--n-samples": n_samples}
        refused |= {"--cluster": cluster} if stages is None else {}
    for name, value in refused.items():
        if value:
            raise UsageError(
                f"{name} {'does not go with' if many else 'belongs to'} a file of prompts (-f FILE.jsonl)."
            )
    if keep is not None and not context_shift:
        raise UsageError("--keep says what stays when the context is shifted: give --context-shift too.")
    check_stages(cluster, stages, divides=True)
    check_here(cpus, numa, cluster)
    address = cluster_address(cluster) if stages is None else None
    kept = (DEFAULT_KEEP if keep is None else keep) if context_shift else None
    text: str | None = None
    if many:
        pass
    elif prompt is not None:
        text = texts.checked(prompt, "-p")
    elif file is not None:
        text = texts.read_text(file, empty=state is not None)
    elif not sys.stdin.isatty():
        text = texts.read_text(texts.STDIN, empty=True)
        if not text and state is None:
            raise UsageError(
                "there is no prompt: stdin is empty. Give one with -p TEXT or -f FILE; a chat needs a terminal."
            )
    elif as_json or not sys.stdout.isatty():
        raise UsageError("there is no prompt. Give one with -p TEXT or -f FILE; a chat needs a terminal.")

    if go_on and (text is not None or state is not None):
        raise UsageError(f"--continue goes on with a chat; {'--state' if state else 'a prompt'} does not go with it.")
    asks = asking(tools, tool_choice, think, think_budget)
    in_template = template is not False if text is None else bool(template)
    if model is None and template is None and not asks.given and not system:
        in_template = False  # the bundled model has a template, and has not learned what to say in it
    if asks.given and not in_template:
        how = "leave out --no-template" if text is None else "add --template"
        raise UsageError(f"{asks.given} needs the model's chat template: {how}.")
    if system and text is not None and not in_template:
        raise UsageError("--system needs the model's chat template: add --template.")
    probabilities.check(n_probs, post_sampling_probs, in_chat=not many and (text is None or in_template))
    asked = form_options.grammar(json_schema, grammar, regex, choice)
    options = load_options(
        n_ctx=n_ctx,
        threads=threads,
        cpus=cpus,
        numa=numa,
        exact=exact,
        kv_type=kv_type,
        lora=lora,
        checkpoint_budget=checkpoint_budget,
        checkpoint_type=checkpoint_type,
    )
    guesses = spec is not Spec.NONE or draft is not None
    n_texts = (parallel or PARALLEL) if many else 1
    with answering(model, replace(options, n_seq_max=n_texts), cluster, stages, spec, draft) as loaded:
        params = sampling.params(loaded)
        if many and file is not None:
            from hybrid.infer.answers.constraints.forms import Forms
            from hybrid.infer.answers.prompts.prompt_files import PromptBatch

            most = COMPLETION_TOKENS if n_predict is None else n_predict
            forms = Forms(loaded.tokenizer)
            batch = PromptBatch(
                loaded, params, most, stop or [], parallel or PARALLEL, n_samples or 1, kept, guesses, forms,
                n_probs, post_sampling_probs,
            )  # fmt: skip
            if address is None:
                answer_file(batch, file, output, asked, asks)
            else:
                from ..cluster.prompts import batch_on

                with batch_on(address, batch, options, asked, asks.over(), console.note) as spread:
                    answer_file(batch, file, output, asked, asks, spread)
        elif text is None:
            from ..chat.opening import Start, chat

            told = texts.checked(system, "--system")
            start = Start(
                sampling, options, n_predict, stop or [], state, go_on, in_template, told, guesses, kept,
                asks, is_bundled=model is None, most_continued=CHAT_TOKENS_WITHOUT_TEMPLATE,
            )  # fmt: skip
            chat(loaded, start, _compiled(loaded, asked))
        elif in_template:
            from hybrid.infer.answers.conversations.conversation import Conversation

            from ..single.message import answer

            most = COMPLETION_TOKENS if n_predict is None else n_predict
            told = texts.checked(system, "--system")
            form = _compiled(loaded, asked)
            conversation = Conversation(
                loaded, params, loaded.chat_template, most, stop or [], told, guesses, kept, form
            )
            answer(conversation, text, asks, state, as_json)
        else:
            from ..single.text import complete

            most = COMPLETION_TOKENS if n_predict is None else n_predict
            complete(
                loaded, params, text, most, stop or [], state, as_json, guesses, kept, asked,
                n_probs, post_sampling_probs,
            )  # fmt: skip


def _compiled(model: "Model", form: "Grammar | None") -> "Constraint | None":
    if form is None:
        return None
    from hybrid.infer.answers.constraints.forms import Forms

    return Forms(model.tokenizer).compiled(form)


def answer_file(
    batch: "PromptBatch",
    file: Path,
    output: Path | None,
    form: "Grammar | None",
    asks: Asking,
    spread: "ClusterBatch | None" = None,
) -> None:
    """All answers to a file of prompts, to `output` or stdout. form, asks: of those to lines that do not say it.
    spread: who does it instead of this process."""
    from hybrid.infer.answers.prompts.prompt_files import read_prompts

    from ..options import texts

    if output is not None and not output.parent.is_dir():
        raise UsageError(f"{output.parent} is not a folder. Make it first.")
    prompts = read_prompts(texts.read_text(file), shown(file), batch.model, form, batch.forms, asks.over())
    start = time.perf_counter()
    try:
        with console.ProgressBar("answers", "answers") as progress:
            result = (spread or batch).run(prompts, output or sys.stdout, progress.step)
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
        f"{result.n_answers} answers{before}, {result.tokens} tokens {console.rate(result.tokens, seconds)}"
        f"{guesses_text(result.accepted, result.guessed)}; "
        f"{result.processed_tokens} of {result.prompt_tokens} prompt tokens were new"
    )
    if result.set_aside:
        raise HybridError(
            f'{len(result.set_aside)} of the answers are set aside: their lines have "error" and no text. Where that '
            "was not the prompt's fault, remove the lines from there on and run the same command again."
        )
