"""Tokens per second with `--spec auto` or `--draft` compared with `--spec none`: the same output, medians of
interleaved rounds.

    python benchmarks/speculation.py MODEL.gguf [--tokens 64] [--rounds 5] [--case quotes words story ...] [--cold]
    python benchmarks/speculation.py MODEL.gguf --draft SMALL.gguf [--predicts 0 0.5 0.7 0.9] [--tokens 256]

own     the model's own greedy answer to a prompt that asks for a summary of a text
asked   (summarise, rewrite, code, story, json) its greedy answer to a message, in its chat template; story-0.8 and
        rewrite-0.8 at temperature 0.8
random  its greedy continuation of random tokens; random-2: at temperature 2
quotes  a summary made of sentences of the text, as models often write them
words   a summary in other words, where hardly any guess is right: the cost of guessing

--cold: every answer begins without known costs of passes, as in a new process.

Untrained models cannot write the last two. Their tokens are taken from a given text instead of the logits, which are
computed all the same: the passes, and the right guesses, are those of a model that writes this text.

With --draft the text is the prose's own continuation. The draft predicts each token with the given chance, and is
equally confident in right and wrong ones: all its passes are computed, and their results replaced. A real draft is sure
of some tokens and not of others, which is worth more.
"""

import argparse
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from quiet import Watch

from hybrid.infer import LoadedModel, Sequence
from hybrid.infer.answers.batch.generate import GenerationResult, generate
from hybrid.infer.answers.guessing.draft import AT_START, SEQUENCES, Draft, _Drafting
from hybrid.infer.answers.guessing.draft_odds import Odds
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.bench.machine import cpu_name
from hybrid.infer.guessers import Credit
from hybrid.infer.step_costs import StepCosts
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.reader import GGUFFile

PROSE = Path(__file__).parent.parent / "library" / "bundled" / "prose.txt"
PARAGRAPHS = 4
QUESTION = "\n\nSummarise this text.\n\n"
WORDS = """\
There are two designs for reading long inputs. One stores a record of each token, so that any detail can be looked \
up afterwards, but its cost rises with length. Its rival squeezes the past into notes of constant size; this is cheap, \
yet details fade. Combining both gives most of the speed without losing rare facts, which explains why recent systems \
put a few layers of the first kind between many of the second."""


CODE = """\
def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)
"""


class Case(NamedTuple):
    """A prompt, how its answer is sampled, and the dictated answer, if any."""

    prompt: list[int]
    params: SamplingParams
    answer: list[int] | None = None


class Dictated(Sampler):
    """Samples the tokens of a text, whatever the logits are."""

    def __init__(self, ids: list[int], n_vocab: int) -> None:
        super().__init__(SamplingParams(temp=0), n_vocab)
        self._ids = iter(ids)

    def sample(self, logits: np.ndarray) -> int:
        assert np.isfinite(logits[0])
        return next(self._ids)


class Foretelling(Draft):
    """Predicts the tokens of a text, each with the same chance, whatever its logits are."""

    def __init__(self, model: LoadedModel, main: LoadedModel) -> None:
        super().__init__(model, main)
        self.text, self.chance, self.rng = [0], 0.0, np.random.default_rng(0)

    def _likeliest(self, logits: np.ndarray, d: _Drafting) -> tuple[int | None, float]:
        assert np.isfinite(super()._likeliest(logits, d)[1])
        at = len(d.track.ids) + len(d.guess.tokens)
        right = self.text[at] if at < len(self.text) else 0
        return (right if self.rng.random() < self.chance else right + 1), self.chance


def cases(n_tokens: int, tok: Tokenizer, model: LoadedModel) -> dict[str, Case]:
    """All cases by name."""
    paragraphs = [p for p in PROSE.read_text(encoding="utf-8").split("\n\n") if p.count(". ") > 1][:PARAGRAPHS]
    text, greedy, warm = "\n\n".join(paragraphs), SamplingParams(temp=0), SamplingParams(temp=0.8, seed=3)
    summary = tok.encode(text + QUESTION)
    quoted = " ".join("It says: " + ". ".join(p.split(". ")[1:3]) + "." for p in paragraphs)
    made = {"own": Case(summary, greedy)}
    for name, answer in (("quotes", quoted), ("words", WORDS)):
        made[name] = Case(summary, greedy, tok.encode(answer, add_special=False)[:n_tokens])
    asked = {
        "summarise": f"Summarise this text in three sentences.\n\n{text}",
        "rewrite": f"Repeat this text, with every 'model' replaced by 'network'.\n\n{text}",
        "code": f"Add a docstring to this function and print it.\n\n{CODE}",
        "story": "Tell a story of a lighthouse keeper who finds a strange boat.",
        "json": "Give five fictional people as a JSON list of objects with the keys name, age, city, job. Only JSON.",
    }
    for name, message in asked.items():
        if (template := model.chat_template) is not None:
            said = template.render([{"role": "user", "content": message}], add_generation_prompt=True)
            ids = tok.encode(said, parse_special=True)
        else:
            ids = tok.encode(f"{message}\n\n")
        made[name] = Case(ids, greedy)
        if name in ("rewrite", "story"):
            made[f"{name}-0.8"] = Case(ids, warm)
    wild = np.random.default_rng(1).integers(0, model.n_vocab, 300).tolist()
    made["random"] = Case(wild, greedy)
    made["random-2"] = Case(wild, SamplingParams(temp=2, top_k=0, top_p=1, min_p=0, seed=3))
    return made


def once(
    seq: Sequence, prompt: list[int], answer: list[int] | None, n: int, speculate: bool, params: SamplingParams
) -> tuple[float, GenerationResult]:
    """Tokens per second of the answer."""
    reused = seq.resume(prompt)
    n_vocab = seq.runner.n_vocab
    sampler = Sampler(params, n_vocab) if answer is None else Dictated(answer, n_vocab)
    run = generate(seq, prompt[reused:], sampler, max_tokens=n, ignore_eos=True, speculate=speculate)
    for _ in run:
        pass
    return run.result.gen_tokens / run.result.gen_seconds, run.result


def measure(model: LoadedModel, chosen: dict[str, Case], n_tokens: int, rounds: int, cold: bool) -> Iterator[list[str]]:
    """One row of the table for each case."""
    seq = model.sequence()
    for name, case in chosen.items():
        n = n_tokens if case.answer is None else len(case.answer)
        rates: dict[bool, list[float]] = {False: [], True: []}
        said: list[list[int]] = []
        guessed = came_true = 0
        for i in range(rounds + 1):  # the first round compiles
            for speculate in (False, True)[:: 1 if i % 2 else -1]:  # alternating, because the order matters
                if cold:
                    model.runner.costs = StepCosts()
                rate, result = once(seq, case.prompt, case.answer, n, speculate, case.params)
                said.append(result.ids)
                if i:
                    rates[speculate].append(rate)
                    guessed, came_true = guessed + result.guessed, came_true + result.accepted
        assert all(ids == said[0] for ids in said), "speculation changed the output"
        ratio = median(b / a for a, b in zip(rates[False], rates[True], strict=True))
        spread = max(max(r) / min(r) - 1 for r in rates.values())
        guesses = f"{came_true / rounds:.0f} of {guessed / rounds:.0f}"
        plain, auto = median(rates[False]), median(rates[True])
        yield [name, str(n), f"{plain:.1f}", f"{auto:.1f}", f"{ratio:.2f}", guesses, f"{spread:.0%}"]


def measure_draft(
    model: LoadedModel, small: Path, tokenizer: Tokenizer, chances: list[float], n: int, rounds: int
) -> None:
    """Print a row for each chance."""
    ids = tokenizer.encode(PROSE.read_text(encoding="utf-8"))
    prompt, answer = ids[:300], ids[300 : 300 + n]
    loaded = LoadedModel.load(small, n_ctx=2048, n_seq_max=SEQUENCES, n_threads=model.n_threads)
    guessers = model.runner.guessers
    guessers.ngrams, guessers.helper = False, Foretelling(loaded, model)
    draft = guessers.helper
    draft.text, seq = prompt + answer, model.sequence()
    for chance in chances:
        draft.chance = chance
        rates: dict[bool, list[float]] = {False: [], True: []}
        for i in range(rounds + 1):  # the first round compiles
            for speculate in (False, True)[:: 1 if i % 2 else -1]:
                if speculate and i <= 1:  # as for its first text, except for the known times of passes
                    draft.odds, draft.credit = Odds(), Credit(AT_START)
                rate, result = once(seq, prompt, answer, len(answer), speculate, SamplingParams(temp=0))
                if i:
                    rates[speculate].append(rate)
        plain, with_draft = median(rates[False]), median(rates[True])
        spread = max(max(r) / min(r) - 1 for r in rates.values())
        cells = [f"{chance:.0%} foretold", str(len(answer)), f"{plain:.1f}", f"{with_draft:.1f}"]
        cells += [f"{with_draft / plain:.2f}", f"{result.accepted} of {result.guessed}", f"{spread:.0%}"]
        print(f"| {' | '.join(cells)} |", flush=True)
    costs, one = model.runner.costs, draft.times.seconds(1)
    plain_seconds = costs.plain_seconds(1)
    wide = ", ".join(f"{n}: {s / plain_seconds:.2f}" for n, s in enumerate(costs.seconds(1, 8), 2))
    share = one / plain_seconds if one else 0.0
    print(f"\nPasses of the model, in those of one token: {wide}; a pass of the draft: {share:.3f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokenizer", type=Path, help="model with another tokenizer: random models know only bytes")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of an answer (default: 64)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", nargs="+", metavar="CASE", help="default: all")
    parser.add_argument("--cold", action="store_true", help="no known costs at the beginning of an answer")
    parser.add_argument("--draft", type=Path, help="a smaller model, whose predictions are replaced")
    parser.add_argument("--predicts", nargs="+", type=float, default=[0.0, 0.5, 0.7, 0.9], help="chances of its tokens")
    given = parser.parse_args()
    with LoadedModel.load(given.model, n_ctx=2048, checkpoint_budget=1 << 28) as model:
        with Watch() as watch:
            tokenizer = load_tokenizer(GGUFFile.open(given.tokenizer)) if given.tokenizer else model.tokenizer
            if given.draft:
                measure_draft(model, given.draft, tokenizer, given.predicts, given.tokens, given.rounds)
                rows = []
            else:
                known = cases(given.tokens, tokenizer, model)
                chosen = {name: known[name] for name in given.case or known}
                rows = list(measure(model, chosen, given.tokens, given.rounds, given.cold))
        print(f"{given.model.name}, {model.n_threads} threads; {cpu_name()}, numba {metadata.version('numba')}", end="")
    print(f"; others used {watch.usage.others:.1f} cores\n" if watch.usage else "\n")
    head = ["case", "tokens", "plain t/s", "auto t/s", "ratio", "guesses that came true", "spread"]
    if given.draft:
        return
    for row in (head, ["---", *["---:"] * (len(head) - 1)], *rows):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    sys.exit(main())
