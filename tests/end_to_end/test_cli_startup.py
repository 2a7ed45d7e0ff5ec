"""The modules that a run imports before it begins."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.exhaustive

CODE = """
import sys
import hybrid.cli.main as m
code = m.run(sys.argv[1:])
print(*sys.modules, sep="\\n", file=sys.stderr)
sys.exit(code)
"""
# rooms of hybrid that not every run needs entirely; every model needs kernels, layers and the floor
ROOMS = (
    "cli.", "display.", "hub.", "pipeline.", "convert.", "quant.", "infer.answers.", "infer.evaluate.", "infer.text.",
)  # fmt: skip
PLAIN = {
    "quant", "cli", "cli.aliases", "cli.main", "cli.interrupts", "cli.console", "cli.commands", "cli.commands.run",
    "cli.run", "cli.run.one_text", "cli.run.text",
    "cli.terminal", "cli.terminal.code_blocks", "cli.terminal.context_shift",
    "cli.terminal.reading_line", "cli.terminal.terminal", "cli.terminal.word_wrap",
    "display", "display.lines", "display.notebook", "display.screen",
    "pipeline", "pipeline.model_eyes", "pipeline.models", "pipeline.recent",
    "cli.options", "cli.options.answer_options", "cli.options.cluster_options", "cli.options.stage_options",
    "cli.options.form_options", "cli.options.framing", "cli.options.given_text",
    "cli.options.groups", "cli.options.guess_options", "cli.options.loading_options",
    "cli.options.model_argument", "cli.options.model_loading", "cli.options.probability_options",
    "cli.options.sampling_options", "cli.options.text_options", "cli.options.tool_options",
    "cli.options.vision_options",
    "infer.answers", "infer.answers.prompt_files",
    "infer.answers.batch", "infer.answers.batch.batcher", "infer.answers.batch.figures",
    "infer.answers.batch.generate", "infer.answers.batch.guesses", "infer.answers.batch.helped",
    "infer.answers.batch.job", "infer.answers.batch.planning", "infer.answers.batch.sharing",
    "infer.answers.batch.slices", "infer.answers.batch.job_queue", "infer.answers.batch.under_way",
    "infer.answers.drawing", "infer.answers.drawing.context_shift", "infer.answers.drawing.drawing",
    "infer.answers.drawing.prompt_logprobs", "infer.answers.drawing.stop_strings",
    "infer.answers.guessing", "infer.answers.guessing.ngrams",
    "infer.answers.sampling", "infer.answers.sampling.chain", "infer.answers.sampling.dry",
    "infer.answers.sampling.largest", "infer.answers.sampling.params", "infer.answers.sampling.sampler",
    "infer.answers.sampling.selection",
    "infer.text", "infer.text.encode", "infer.text.literal_text", "infer.text.stops",
    "infer.text.tokenizer", "infer.text.tokenizer.base",
    "infer.text.tokenizer.sentencepiece_model",
    "infer.text.tokenizer.fill", "infer.text.tokenizer.special", "infer.text.tokenizer.vocabulary",
}  # fmt: skip
FLOOR = "quant.ggml."
HEAVY = {
    "asyncio", "email", "fractions", "html", "http", "importlib.metadata", "jinja2", "llguidance", "numba", "numpy.fft",
    "numpy.ma", "numpy.polynomial", "numpy.testing", "prompt_toolkit", "pydantic", "pygments", "rich", "safetensors",
    "ssl", "starlette", "tokenizers", "urllib.request",
}  # fmt: skip
CHAT = {"html", "jinja2", "tokenizers"}  # of HEAVY; jinja2 imports html


def imported(*args: object) -> set[str]:
    """All modules that a command line has imported at its end, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *map(str, args)], capture_output=True, text=True, timeout=240, check=True
    )
    return set(done.stderr.split())


def ours(modules: set[str]) -> set[str]:
    """The names in ROOMS, without `hybrid.`."""
    names = {name.removeprefix("hybrid.") for name in modules if name.startswith("hybrid.")}
    return {name for name in names if f"{name}.".startswith(ROOMS) and not f"{name}.".startswith(FLOOR)}


def test_a_completion_imports_what_it_needs(files: dict[str, object]) -> None:
    """No chat, template, forms or files of prompts: these took 50 ms of every run."""
    given = ("run", files["q8_0"], "--raw", "-p", "A cache", "-n", 2, "--greedy")
    modules = imported(*given)
    if "numba" in modules:  # it compiled kernels
        modules = imported(*given)
    more = ours(modules) - PLAIN
    assert not more, f"`hybrid run -p` imports {sorted(more)}: import it where it is needed"
    assert PLAIN - ours(modules) == set(), "the list names what is not imported"
    assert sorted(modules & HEAVY) == []
    families = {m.rpartition(".")[2] for m in modules if m.startswith("hybrid.infer.architectures.")}
    assert families == {"base", "jamba"}, "all of them take 0.2 s"


def test_a_question_imports_what_it_needs(files: dict[str, object], tmp_path: object) -> None:
    """`hybrid run -p` of a model with a chat template, whose kernels are compiled."""
    given = ("run", files["q8_0"], "-p", "Hi", "-n", 1)
    modules = imported(*given)
    if "numba" in modules:
        modules = imported(*given)
    assert "jinja2" in modules
    assert sorted(modules & HEAVY - CHAT) == []


def test_what_is_asked_for_is_imported(files: dict[str, object], tmp_path: object) -> None:
    """The test above can fail."""
    modules = ours(imported("run", files["q8_0"], "--raw", "-p", "A cache", "-n", 2, "--choice", "yes", "--n-probs", 2))
    assert {"infer.answers.constraints.forms", "infer.evaluate.windows"} <= modules
    assert not any(m.startswith("infer.answers.chat") for m in modules)
