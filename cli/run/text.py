"""`hybrid run --raw -p TEXT`: continues a text once, on stdout; notes go to stderr."""

from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import UsageError

from .. import console
from ..options.guess_options import guesses_text
from ..options.probability_options import Probabilities, table
from ..terminal.code_blocks import CodeText
from ..terminal.context_shift import tokens_left_out
from ..terminal.reading_line import ReadingLine
from .one_text import OneText

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer import Sequence as TokenSequence
    from hybrid.infer.answers.batch.generate import GenerationResult
    from hybrid.infer.answers.constraints import Constraint, Grammar
    from hybrid.infer.answers.drawing.drawing import TextPiece


def complete(model: "LoadedModel", asked: OneText) -> None:
    """Streams one continuation to stdout."""
    from hybrid.infer.answers.batch.generate import generate
    from hybrid.infer.answers.drawing.context_shift import kept_tokens
    from hybrid.infer.answers.sampling import Sampler
    from hybrid.infer.text.encode import continuation_ids, rendered_ids

    answers, state, probabilities = asked.answers, asked.state, asked.answers.probabilities
    params = answers.params(model)
    if state is not None and not state.parent.is_dir():
        raise UsageError(f"{state.parent} is not a folder: the state cannot be saved there. Make it first.")
    sampler = Sampler(params, model.n_vocab, model.tokenizer)
    if state is not None and state.exists():
        from hybrid.infer.answers.state_files.saved_states import restored

        seq = restored(model, state, sampler, answers.keep)
        console.paragraph(f"restored {len(seq.tokens)} tokens from {state}")
        ids = continuation_ids(model.tokenizer, asked.text, parse_special=asked.parse_special)
    else:
        seq = model.sequence()
        ids = rendered_ids(model.tokenizer, asked.text) if asked.parse_special else model.tokenizer.encode(asked.text)
    constraint = _form_of(seq, answers.form, goes_on=not ids)
    kept = None if answers.keep is None else kept_tokens(model, [*seq.tokens, *ids], answers.keep)
    last = ""
    drawn: list[TextPiece] = []
    shown = CodeText()
    with ReadingLine() as progress:
        answer = generate(
            seq,
            ids,
            sampler,
            max_tokens=answers.max_tokens,
            stop=answers.stop,
            progress=progress.step,
            speculate=answers.speculate,
            keep=kept,
            constraint=constraint,
            n_top=min(probabilities.n_probs, model.n_vocab) or None,
            sampled=probabilities.post_sampling_probs,
        )
        for piece in answer:
            progress.close()
            drawn += [piece] if probabilities.n_probs else []
            if piece.text and not asked.as_json:
                shown.write(piece.text)
                last = piece.text
    result = answer.result
    if asked.as_json:
        console.out_json({**console.plain(result), **_listed(model, drawn, probabilities)})
    elif not last.endswith("\n"):
        console.out()
    if result.reason == "interrupt":
        raise KeyboardInterrupt
    if probabilities.n_probs and not asked.as_json:
        console.note(table(model.tokenizer, drawn))
    if result.discarded:
        console.paragraph(tokens_left_out(model, result.discarded))
    console.paragraph(timings(model, result))
    if state is not None:
        seq.save(state, {"sampler": sampler.state(), "pending": result.pending, **answer.state()})


def _form_of(seq: "TokenSequence", form: "Grammar | None", *, goes_on: bool) -> "Constraint | None":
    """The constraint for the continuation of `seq`; notes if it differs from `form`."""
    if form is None and "form" not in seq.extra:
        return None
    from hybrid.infer.answers.constraints.forms import Forms
    from hybrid.infer.answers.state_files.saved_states import form_behind

    constraint = form_behind(seq, form, Forms(seq.tokenizer), goes_on=goes_on)
    if form is None:
        console.note(
            "the answer goes on in its form" if constraint else "the saved answer was not whole; its form ends"
        )
    return constraint


def _listed(model: "LoadedModel", drawn: "list[TextPiece]", asked: Probabilities) -> dict[str, Any]:
    if not asked.n_probs:
        return {}
    from hybrid.infer.answers.drawing.probabilities import listed

    return {"completion_probabilities": listed(model.tokenizer, drawn, asked.post_sampling_probs)}


def timings(model: "LoadedModel", result: "GenerationResult") -> str:
    """One line: tokens read and generated, their rates, and why the answer ended."""
    guesses = guesses_text(max(0, result.accepted - result.forced), result.guessed - result.forced)
    ended = {"length": f"the limit of {len(result.ids)} tokens"}
    ended |= {"eos": "the model ended", "stop": "stop text", "context": "context full"}
    return (
        f"prompt {result.prompt_tokens} tokens{console.rate(result.prompt_tokens, result.prompt_seconds)}, "
        f"generated {len(result.ids)}{console.rate(result.gen_tokens, result.gen_seconds)}{guesses}, "
        f"{ended[result.reason]}; loaded in {console.duration(model.load_seconds)}"
    )
