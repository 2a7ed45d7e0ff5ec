"""Answers to random schemas by random models of every family: how many are invalid (none should be); and the cost of a
schema.

    python benchmarks/constrained.py valid [--schemas 1000] [--families mamba qwen3 ...] [--alone 40]
    python benchmarks/constrained.py cost [--shape llama-1b] [--vocabularies 2048 65536 151936 256000] [--tokens 128]

`valid`: temperature 2, eight at a time, half of them with guesses; then --alone of them again alone with guesses, and
again in parts of one to seven tokens, each continued from a state file: the text must be the same. `cost`: tokens per
second of a Q8_0 model of this shape with and without a schema, alternating, and microseconds per token of masking and
sampling. Nothing else may compute meanwhile. The schema has long strings, so that almost no token is forced, which
would be faster.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "unit" / "infer" / "answers")]

import random_checkpoints  # noqa: E402
from random_schemas import schemas  # noqa: E402
from schema_answers import HOT, Answers  # noqa: E402

from hybrid.convert import convert  # noqa: E402
from hybrid.infer import LoadedModel  # noqa: E402
from hybrid.infer.answers.batch.generate import generate  # noqa: E402
from hybrid.infer.answers.constraints import Constraint, Grammar  # noqa: E402
from hybrid.infer.answers.sampling import Sampler, SamplingParams  # noqa: E402
from hybrid.infer.bench.shapes import SHAPES, write_shape  # noqa: E402
from hybrid.quant.ggml.types import FileType  # noqa: E402

PROMPT = "Say it in JSON:"
LONG = {"type": "array", "items": {"type": "string", "minLength": 40, "maxLength": 400}, "minItems": 1000}


def valid(families: list[str], n: int, n_alone: int) -> int:
    """Print a line for each family; return the number of wrong answers."""
    made, sums = schemas(n), Counter[str]()
    print(f"{n} schemas, temperature {HOT.temp}\n\n| family | whole | cut | invalid | other | seconds |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in families:
        with tempfile.TemporaryDirectory() as folder:
            path, start = Path(folder) / "model.gguf", time.perf_counter()
            source = random_checkpoints.write(random_checkpoints.CONFIGS[name], Path(folder) / "checkpoint")
            convert(source, path, outtype="f32", tokenizer=ROOT / "tests" / "data" / "checkpoints" / "mamba-bf16")
            with LoadedModel.load(path, n_ctx=512, n_seq_max=8, checkpoint_budget=0) as model:
                answers = Answers(model, made)
                answers.run(Path(folder), n_alone)
        sums += answers.counts
        row = [answers.counts[what] for what in ("whole", "cut", "invalid", "other")]
        print(f"| {name} | {' | '.join(map(str, row))} | {time.perf_counter() - start:.0f} |", flush=True)
        for schema, text in answers.wrong[:3]:
            print(f"wrong: {json.dumps(schema)}\n       {text!r}")
    print(f"| all | {' | '.join(str(sums[what]) for what in ('whole', 'cut', 'invalid', 'other'))} | |")
    return sums["invalid"] + sums["other"]


def cost(shape: str, vocabularies: list[int], n_tokens: int, rounds: int) -> None:
    """Print a line for each vocabulary size."""
    print("| vocabulary | tokens/s | with a schema | costs | mask and draw | draw alone |\n|--:|--:|--:|--:|--:|--:|")
    for n_vocab in vocabularies:
        with tempfile.TemporaryDirectory() as folder:
            path = write_shape(replace(SHAPES[shape], n_vocab=n_vocab), Path(folder) / "model.gguf", FileType.Q8_0)
            with LoadedModel.load(path, n_ctx=max(512, 2 * n_tokens), checkpoint_budget=0) as model:
                form = Constraint(Grammar.json_schema(LONG), model.tokenizer)
                free, formed = [], []
                for _ in range(rounds):
                    free.append(speed(model, n_tokens, None))
                    formed.append(speed(model, n_tokens, form))
                masked, drawn = microseconds(model, form)
        lost = 1 - median(formed) / median(free)
        rates = f"{median(free):.1f} | {median(formed):.1f} | {100 * lost:.1f} %"
        print(f"| {n_vocab} | {rates} | {masked:.0f} us | {drawn:.0f} us |", flush=True)


def speed(model: LoadedModel, n_tokens: int, form: Constraint | None) -> float:
    """Tokens per second of one answer after its first token."""
    seq, sampler = model.sequence(), Sampler(SamplingParams(seed=1), model.n_vocab, model.tokenizer)
    ids = model.tokenizer.encode(PROMPT)
    run = generate(
        seq, ids, sampler, max_tokens=n_tokens, ignore_eos=True, constraint=None if form is None else form.copy()
    )
    for _ in run:
        pass
    seq.close(remember=False)
    return run.result.gen_tokens / run.result.gen_seconds


def microseconds(model: LoadedModel, form: Constraint, n: int = 200) -> tuple[float, float]:
    """Median times of a token's mask, sampling and acceptance, and of sampling from all tokens."""
    state, rng = form.copy(), np.random.default_rng(1)
    sampler = Sampler(SamplingParams(seed=1), model.n_vocab, model.tokenizer)
    rows = rng.normal(0, 2.2, (8, model.n_vocab)).astype(np.float32)
    masked, drawn = [], []
    for i in range(n):
        row = rows[i % len(rows)]
        start = time.perf_counter()
        token = sampler.sample(state.masked(row))
        state.accept(token)
        state.forced()
        middle = time.perf_counter()
        sampler.sample(row)
        drawn.append(time.perf_counter() - middle)
        masked.append(middle - start)
    return 1e6 * median(masked), 1e6 * median(drawn)


def main() -> int:
    """Run `valid` or `cost`, see the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    of_valid = commands.add_parser("valid")
    of_valid.add_argument("--schemas", type=int, default=1000)
    of_valid.add_argument("--families", nargs="+", default=list(random_checkpoints.CONFIGS))
    of_valid.add_argument("--alone", type=int, default=40)
    of_cost = commands.add_parser("cost")
    of_cost.add_argument("--shape", default="llama-1b", choices=SHAPES)
    of_cost.add_argument("--vocabularies", nargs="+", type=int, default=[2048, 65_536, 151_936, 256_000])
    of_cost.add_argument("--tokens", type=int, default=128)
    of_cost.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    if asked.command == "cost":
        cost(asked.shape, asked.vocabularies, asked.tokens, asked.rounds)
        return 0
    return 1 if valid(asked.families, asked.schemas, asked.alone) else 0


if __name__ == "__main__":
    sys.exit(main())
