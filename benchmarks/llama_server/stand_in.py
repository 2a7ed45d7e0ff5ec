"""A program with llama-server's options that becomes `hybrid serve`: llama.cpp's server tests start it.

It runs in the environment of this package. SUITE_MODELS names the folder of the models that stand in for the tests'
models from the hub. Ignored options are reported on stderr, with the reason; an option without which a test would be
meaningless ends the program.
"""

import os
import sys
from itertools import pairwise
from pathlib import Path

# llama-server's option -> ours, with the same value
SAME = {
    "--port": "--port",
    "--host": "--host",
    "--temp": "--temp",
    "--seed": "--seed",
    "--parallel": "--parallel",
    "--threads": "--threads",
    "--alias": "--alias",
    "--n-predict": "--n-predict",
    "--lora": "--lora",
    "--pooling": "--pooling",
    "--models-max": "--models-max",
}
FLAGS = {
    "--context-shift": "--context-shift",
    "--slots": "--slots",
    "--no-slots": "--no-slots",
    "--no-models-autoload": "--no-models-autoload",
}
# flags and options without a counterpart, and why they may be ignored
NOTHING_FLAGS = {
    "--offline": "nothing is fetched",
    "--cont-batching": "always so",
    "--metrics": "always there",
    "--kv-unified": "every answer has its own context",
    "--jinja": "always so",
    "--no-jinja": "always with Jinja",
    "--verbose": "the tests' driver asks for `verbose` instead",
    "--swa-full": "always so",
    "--no-ui": "there is no page",
    "--backend_sampling": "there is one place where tokens are drawn",
    "--no-cache-idle-slots": "texts are kept by budget, not by slot",
    "--no-mmproj": "text only",
    "--embedding": "always there",
    "--reranking": "always there",
}
NOTHING = {
    "--batch-size": "one size fits",
    "--ubatch-size": "one size fits",
    "--n-gpu-layers": "this runs on the CPU",
    "-fa": "one kind of attention",
    "-ctk": "see --k-type",
    "-ctv": "see --v-type",
    "--cache-reuse": "prefixes are reused, and pieces in between never",
}
# replacements of the hub's models, by a part of the name; others are missing
STAND_INS = {
    "stories15M-q8_0-00001-of-00003": "parts-00001-of-00003.gguf",
    "stories260K-infill": "filling.gguf",
    "stories260K": "text.gguf",
    "stories15M_MOE": "text.gguf",
    "jina-reranker": "ranker.gguf",
}
# models of a server without a given model: llama-server finds them in its tests' cache
ROUTED = {
    "ggml-org/tinygemma3-GGUF:Q8_0": "text.gguf",
    "ggml-org/test-model-stories260K:F32": "text.gguf",
    "ggml-org/test-model-stories260K-infill:F32": "filling.gguf",
}
ENCODER = ("bert-bge-small", "encoder.gguf")  # if the runner was given one
ROUTED_CONTEXT = 8192  # long enough for answers that take as long as the tests need
REASONING = {"on": [], "auto": [], "off": ["--think", "off"]}


class NoCounterpartError(Exception):
    """An option without which a test is meaningless."""


def translated(arguments: list[str], models: Path) -> tuple[list[str], list[str]]:
    """The arguments of `hybrid serve`, and the ignored options."""
    ours, ignored, given = _sorted(arguments)
    slots = next((int(value) for option, value in pairwise(ours) if option == "--parallel"), 4)
    if context := given.pop("--ctx-size", None):
        # their context is shared by all slots, ours is per slot
        n = int(context) if "--kv-unified" in arguments else int(context) // slots
        ours += ["--ctx", str(n if _is_of_one(given) else ROUTED_CONTEXT)]
    if key := given.pop("--api-key", None):
        ours += ["--api-key-file", _file(models, "keys", key)]
    if memory := given.pop("--cache-ram", None):
        ours += ["--checkpoint-budget", f"{max(0, int(memory))}MiB"]
    if template := given.pop("--chat-template-file", None):
        ours += ["--chat-template", template]
    if template := given.pop("--chat-template", None):
        path = models / f"{template}.jinja"
        ours += ["--chat-template", str(path) if path.exists() else _file(models, "template", template)]
    if folder := given.pop("--slot-save-path", None):
        ours += ["--state-dir", folder]
    if (reasoning := given.pop("--reasoning", "auto")) not in REASONING:
        raise NoCounterpartError(f"--reasoning {reasoning}")
    ours += REASONING[reasoning]
    if seconds := given.pop("--sleep-idle-seconds", None):
        ours += ["--idle", f"{seconds}s"]
    model = _model(given, models)
    if given:
        raise NoCounterpartError(" ".join(f"{name} {value}" for name, value in given.items()))
    threads = [] if "--threads" in ours else ["--threads", "1"]  # several servers with a tiny model run at a time
    return [*model, *ours, *threads], ignored


def _sorted(arguments: list[str]) -> tuple[list[str], list[str], dict[str, str]]:
    """(our arguments for options with a counterpart, ignored options with reasons, other options)."""
    ours: list[str] = []
    ignored: list[str] = []
    given: dict[str, str] = {}
    rest = iter(arguments)
    for name in rest:
        if name in FLAGS:
            ours.append(FLAGS[name])
        elif name in NOTHING_FLAGS:
            ignored.append(f"{name}: {NOTHING_FLAGS[name]}")
        elif name in SAME:
            ours += [SAME[name], next(rest)]
        elif name in NOTHING:
            ignored.append(f"{name} {next(rest)}: {NOTHING[name]}")
        else:
            given[name] = next(rest, "")
    return ours, ignored, given


def _model(given: dict[str, str], models: Path) -> list[str]:
    """The arguments that name the model, or several."""
    if not _is_of_one(given):
        tables = (f'["{name}"]\nmodel = "{models / file}"\n' for name, file in ROUTED.items())
        return ["--models-file", _file(models, "models", "".join(tables), ".toml")]
    asked = f"{given.pop('--model', '')} {given.pop('--hf-repo', '')} {given.pop('--hf-file', '')}"
    if ENCODER[0] in asked and (path := models / ENCODER[1]).exists():
        return [str(path)]
    for part, name in STAND_INS.items():
        if part in asked:
            return [str(models / name)]
    raise NoCounterpartError(f"the model {asked.strip()}")


def _is_of_one(given: dict[str, str]) -> bool:
    return bool({"--model", "--hf-repo", "--hf-file"} & given.keys())


def _file(folder: Path, name: str, text: str, suffix: str = "") -> str:
    """Write a file in a folder that is removed at the end."""
    path = folder / f"suite-{name}-{os.getpid()}{suffix}"
    path.write_text(text)
    return str(path)


def main() -> None:
    """Become the server."""
    try:
        ours, ignored = translated(sys.argv[1:], Path(os.environ["SUITE_MODELS"]))
    except NoCounterpartError as error:
        sys.exit(f"stand-in: no counterpart for {error}")
    for line in ignored:
        print(f"stand-in: left out {line}", file=sys.stderr, flush=True)
    print(f"stand-in: hybrid serve {' '.join(ours)}", file=sys.stderr, flush=True)
    os.environ["PYTHONPATH"] = os.environ.get("SUITE_PYTHONPATH", "")  # it was the tests' until here
    os.execv(sys.executable, [sys.executable, "-m", "hybrid.cli", "serve", *ours])


if __name__ == "__main__":
    main()
