"""`hybrid run`: a chat in the terminal, or one completion for a script."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from hybrid.quant.ggml.errors import UsageError

from .. import console

if TYPE_CHECKING:
    from hybrid.infer import Model
    from hybrid.infer.sampling import SamplingParams

COMPLETION_TOKENS = 256
SAMPLING = "Sampling (defaults: the model's own, else as shown)"


def run(
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help="GGUF file or Hugging Face folder. Default: bundled model.")
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option("-p", "--prompt", help="Complete this text and exit.", show_default=False),
    ] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Complete this file's text; - is stdin.")] = None,
    n_predict: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--n-predict",
            min=-1,
            help=f"Tokens to generate at most; -1: while the context lasts. Default: {COMPLETION_TOKENS}, in chat -1.",
        ),
    ] = None,
    n_ctx: Annotated[
        int, typer.Option("-c", "--ctx", min=0, help="Context length in tokens; 0: what the model was trained on.")
    ] = 0,
    threads: Annotated[int, typer.Option("-t", "--threads", min=0, help="Worker threads; 0: all cores.")] = 0,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Go on from FILE when it exists (the prompt is appended to what it holds); save there at the end.",
        ),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Do not round activations to 8 bits; slower.")] = False,
    no_template: Annotated[
        bool, typer.Option("--no-template", help="Chat as plain completion, without the model's chat template.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print text, token ids and timings as JSON, at the end.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(help="Makes sampling repeatable. Default: random.", rich_help_panel=SAMPLING),
    ] = None,
    temp: Annotated[
        float | None,
        typer.Option(min=0.0, help="Temperature; 0 always takes the likeliest token.", rich_help_panel=SAMPLING),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=0, help="Keep the k likeliest tokens; 0: all.", rich_help_panel=SAMPLING),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Keep the likeliest tokens that sum up to this.", rich_help_panel=SAMPLING),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Drop tokens below this share of the likeliest.", rich_help_panel=SAMPLING),
    ] = None,
    repeat_penalty: Annotated[
        float | None,
        typer.Option(min=0.01, help="Above 1: recent tokens become less likely.", rich_help_panel=SAMPLING),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End before this text; may be given several times."),
    ] = None,
) -> None:
    """Chat with a model, or complete a text.

    In a terminal: a chat in the model's own template. With -p, -f or a pipe: the text is continued once, the
    continuation goes to stdout and everything else to stderr.
    """
    from hybrid.cli import models, texts

    if prompt is not None and file is not None:
        raise UsageError("-p and -f are both given. Use one of them.")
    text: str | None = None
    if prompt is not None:
        text = texts.checked(prompt, "-p")
    elif file is not None:
        text = texts.read_text(file)
    elif not sys.stdin.isatty():
        text = texts.read_text(texts.STDIN)
    elif as_json or not sys.stdout.isatty():
        raise UsageError("there is no prompt. Give one with -p TEXT or -f FILE; a chat needs a terminal.")

    chosen = {
        "seed": seed,
        "temp": temp,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repeat_penalty": repeat_penalty,
    }
    with models.load(model, n_ctx=n_ctx, n_threads=threads, exact=exact) as loaded:
        params = sampling(loaded, chosen)
        if text is None:
            from .chat import chat

            chat(loaded, params, -1 if n_predict is None else n_predict, stop or [], state, no_template)
        else:
            complete(
                loaded, params, text, COMPLETION_TOKENS if n_predict is None else n_predict, stop or [], state, as_json
            )


def sampling(model: "Model", chosen: dict[str, Any]) -> "SamplingParams":
    """The library's defaults, then what the model's file says, then what was given on the command line."""
    from hybrid.infer.sampling import SamplingParams

    params = SamplingParams.from_metadata(model.gguf)
    return replace(params, **{name: value for name, value in chosen.items() if value is not None})


def complete(
    model: "Model",
    params: "SamplingParams",
    prompt: str,
    max_tokens: int,
    stop: list[str],
    state: Path | None,
    as_json: bool,
) -> None:
    """One continuation of `prompt`, streamed to stdout."""
    from hybrid.infer.generate import generate
    from hybrid.infer.sampling import Sampler

    from .. import texts

    sampler = Sampler(params, model.n_vocab)
    if state is not None and state.exists():
        seq = model.restore(state)
        if "sampler" in (seq.extra or {}):
            sampler.set_state(seq.extra["sampler"])
        console.note(f"restored {len(seq.tokens)} tokens from {state}")
    else:
        seq = model.sequence()
    ids = texts.continued(model.tokenizer, prompt) if seq.tokens else model.tokenizer.encode(prompt)
    if not ids and not seq.tokens:
        raise UsageError("the prompt is empty. Give a text with -p or -f.")
    room = model.n_ctx - len(seq.tokens) - len(ids)
    if room <= 0:
        raise UsageError(
            f"the prompt makes {len(seq.tokens) + len(ids)} tokens, the context is {model.n_ctx}. Use a larger -c."
        )
    last = ""
    with console.Progress("prompt", "tokens") as progress:
        pieces = generate(
            seq,
            ids,
            sampler,
            max_tokens=room if max_tokens < 0 else min(max_tokens, room),
            stop=stop,
            progress=progress.step,
        )
        for piece in pieces:
            progress.close()
            if not as_json and piece.text:
                console.out(piece.text, end="")
                last = piece.text
    if as_json:
        console.out_json(pieces.result)
    elif not last.endswith("\n"):
        console.out()
    if state is not None:
        seq.save(state, {"sampler": sampler.state()})
