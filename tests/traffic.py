"""A seeded stream of prompts such as agents and people send to one model, and a run of it through a batch.

    python tests/traffic.py [--requests 50000] [--seed 0] [--model jamba|llama|mamba]

Kinds of prompts: agents with a changing value near the beginning, before constant text, and growing lists of tools;
conversations that are continued, edited, branched, cut and repeated; texts with trailing whitespace; several answers to
a prompt; forms, stop strings, logprobs; cancelled and refused requests.

Each answer has to equal, bit for bit, the answer to the same request alone from a model without a cache. After each
answer the counts have to add up, and the cache has to fit its budget.
"""

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path

import tiny_models

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.batcher import Batcher, Job
from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.drawing.drawing import Drawing, TextPiece
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.faults import SidePath
from hybrid.quant.ggml.errors import UsageError

BOS, SPACE, FIRST, N_VOCAB = 1, 3, 4, tiny_models.N_VOCAB
N_CTX, N_UBATCH, N_PARALLEL, BUDGET = 768, 96, 6, 1 << 19
LONGEST = 500  # tokens of a prompt that is not refused
FORMS = ('root ::= "ab" [a-f]+ "xyz"', 'root ::= [a-c]+ | "q" [d-h]*')
STOPS = ("ab", "z", "e f", "nothing that is ever said")
ENDINGS = ("eos", "stop", "length", "context")

Ids = tuple[int, ...]
Said = tuple[object, ...]


@dataclass(frozen=True)
class Ask:
    """A request for one answer.

    form: index in FORMS; top: number of logprobs per token; prompt_top: see Job
    """

    ids: Ids
    seed: int = 0
    temp: float = 0.0
    most: int = 8
    stop: tuple[str, ...] = ()
    form: int | None = None
    top: int | None = None
    prompt_top: int | None = None

    def job(self, model: LoadedModel, **more: object) -> Job:
        """The request's job in a batch of the model."""
        form = None if self.form is None else Constraint(Grammar.of_text(FORMS[self.form]), model.tokenizer)
        sampler = Sampler(SamplingParams(temp=self.temp, seed=self.seed), model.n_vocab)
        drawing = Drawing(sampler, model.tokenizer, self.most, self.stop, n_top=self.top, constraint=form)
        return Job(list(self.ids), drawing, key=self, prompt_top=self.prompt_top, **more)  # type: ignore[arg-type]


def said(job: Job, logprobs: list[object]) -> Said:
    """Everything reported about an answer."""
    result = job.result
    return tuple(result.ids), result.reason, result.text, tuple(job.prompt_logprobs), tuple(logprobs)


def hear(logprobs: list[object], piece: TextPiece) -> None:
    logprobs.append(piece.logprobs)


# --- senders ---
@dataclass
class Agent:
    """Sends nearly the same prompt repeatedly: a value near the beginning changes, the list of tools grows."""

    rng: random.Random
    before: Ids
    after: Ids
    tools: list[Ids] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)

    @classmethod
    def begun(cls, rng: random.Random) -> "Agent":
        return cls(rng, words(rng, rng.randint(0, 20)), words(rng, rng.randint(64, 120)))

    def prompt(self) -> list[int]:
        """The next prompt."""
        if self.rng.random() < 0.15 and len(self.tools) < 5:
            self.tools.append(words(self.rng, self.rng.randint(5, 30)))
        if self.rng.random() < 0.3 or len(self.turns) > 60:
            self.turns = []
        value = words(self.rng, self.rng.randint(1, 6))
        return [BOS, *self.before, *value, *self.after, *chain.from_iterable(self.tools), *self.turns]

    def heard(self, ids: Ids) -> None:
        self.turns += [*ids, SPACE, *words(self.rng, 6)]


@dataclass
class Person:
    """Holds a conversation: continues, edits, returns to another branch, repeats."""

    rng: random.Random
    text: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def prompt(self) -> list[int]:
        kind = self.rng.random()
        if not self.text or len(self.text) > LONGEST - 100 or kind < 0.05:
            self.text, self.ends = [BOS, *words(self.rng, self.rng.randint(3, 40))], []
        elif kind < 0.15:
            return list(self.text)  # repeat
        elif kind < 0.3 and self.ends:
            del self.text[self.rng.choice(self.ends) :]  # a branch
            self.ends = [end for end in self.ends if end <= len(self.text)]
        elif kind < 0.4:
            self.text[self.rng.randrange(1, len(self.text))] = FIRST + self.rng.randrange(20)  # an edit
        self.text += [*words(self.rng, self.rng.randint(1, 20)), *([SPACE] * self.rng.choice((0, 0, 1, 2)))]
        return list(self.text)

    def heard(self, ids: Ids) -> None:
        self.ends.append(len(self.text))
        self.text += ids


@dataclass
class Stranger:
    """Sends texts of any kind, some of which share a prefix with an earlier one."""

    rng: random.Random
    sent: list[list[int]] = field(default_factory=list)

    def prompt(self) -> list[int]:
        kind, rng = self.rng.random(), self.rng
        if kind < 0.3 and self.sent:
            known = rng.choice(self.sent)
            text = [*known[: rng.randint(1, len(known))], *words(rng, rng.randint(0, 9))]
        elif kind < 0.5:
            text = list(words(rng, rng.randint(2, 7))) * rng.randint(2, 20)
        else:
            text = [BOS, *words(rng, rng.randint(1, 200))]
        self.sent = [*self.sent[-20:], text]
        return text

    def heard(self, ids: Ids) -> None:
        """Does nothing."""


Sender = Agent | Person | Stranger


def words(rng: random.Random, n: int) -> Ids:
    return tuple(rng.randrange(FIRST, N_VOCAB) for _ in range(n))


class Traffic:
    """An endless stream of requests from some agents, persons and a stranger."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.senders: list[Sender] = [
            *(Agent.begun(self.rng) for _ in range(5)),
            *(Person(self.rng) for _ in range(4)),
            Stranger(self.rng),
        ]

    def asks(self) -> tuple[Sender, list[Ask]]:
        """The next sender, and its requests for several answers to one prompt."""
        rng = self.rng
        at = rng.randrange(len(self.senders))
        if rng.random() < 0.01 and isinstance(self.senders[at], Agent):
            self.senders[at] = Agent.begun(rng)
        sender = self.senders[at]
        ids = tuple(sender.prompt()[:LONGEST])
        ask = Ask(ids, rng.getrandbits(16), rng.choice((0.0, 0.0, 0.8, 1.3)), rng.randint(1, 12))
        kind = rng.random()
        if kind < 0.08:
            ask = replace(ask, form=rng.randrange(len(FORMS)))
        elif kind < 0.16:
            ask = replace(ask, stop=tuple(rng.sample(STOPS, rng.randint(1, 3))))
        elif kind < 0.22:
            ask = replace(ask, top=rng.randrange(3))
        elif kind < 0.24:
            ask = replace(ask, prompt_top=rng.randrange(3))
        n = 1 if rng.random() < 0.9 else rng.randint(2, 3)
        return sender, [replace(ask, seed=ask.seed + i) for i in range(n)]

    def bad(self) -> Ids:
        """A prompt that has to be refused."""
        return self.rng.choice([(), (BOS,) * (N_CTX + 1), (BOS, N_VOCAB), (BOS, -1), (2**70,)])


# --- a run ---
@dataclass
class Tally:
    """Results of a run. kinds: number of requests by kind; most_kept: maximum bytes of the prompt cache; n_set_aside:
    answers that lost their slot to another one before they ended."""

    kinds: Counter[str] = field(default_factory=Counter)
    n_reused: int = 0
    n_read: int = 0
    most_kept: int = 0
    n_alone: int = 0
    n_set_aside: int = 0

    def __str__(self) -> str:
        kinds = ", ".join(f"{n} {kind}" for kind, n in self.kinds.most_common())
        return (
            f"{kinds}; {self.n_reused} tokens reused, {self.n_read} read; at most {self.most_kept} of {BUDGET} bytes "
            f"kept; {self.n_alone} answers drawn alone, {self.n_set_aside} set aside"
        )


class Run:
    """Sends traffic through the batch of one model, and compares each answer with the answer of `alone`."""

    def __init__(self, model: LoadedModel, alone: LoadedModel, seed: int) -> None:
        self.model, self.alone = model, alone
        self.traffic, self.rng = Traffic(seed), random.Random(seed + 1)
        self.batcher, self.tally = Batcher(model.runner, N_PARALLEL), Tally()
        self.known: dict[Ask, Said] = {}
        self.heard: dict[Job, list[object]] = {}
        self.senders: dict[Job, Sender] = {}

    def requests(self, n: int) -> Tally:
        """Send n requests. Raises AssertionError for a wrong answer."""
        left = n
        while left or self.heard:
            while left and self.batcher.n_waiting < 4 and self.rng.random() < 0.7:
                left -= 1
                self._submit()
            if self.heard and self.rng.random() < 0.01:
                self.batcher.cancel(self.rng.choice(list(self.heard)))
            self._read_or_not(left)
            for job in self.batcher.step():
                self._check(job)
        self._check_the_end()
        return self.tally

    def _submit(self) -> None:
        if self.rng.random() < 0.02:
            self._refused(self.traffic.bad())
            return
        sender, asks = self.traffic.asks()
        for ask in asks:
            logprobs: list[object] = []
            job = ask.job(
                self.model,
                remember=self.rng.random() < 0.9,
                speculate=self.rng.random() < 0.8,
                use_cache=self.rng.random() < 0.97,
                client=id(sender),
                on_text=partial(hear, logprobs),
                boundaries=tuple(self.rng.sample(range(1, len(ask.ids) + 1), min(2, len(ask.ids)))),
            )
            self.batcher.submit(job)
            self.heard[job], self.senders[job] = logprobs, sender

    def _read_or_not(self, left: int) -> None:
        """Sometimes pause an answer, as if nobody reads it, or resume a paused one."""
        if left and self.heard and self.rng.random() < 0.2:
            self.batcher.pause(self.rng.choice(list(self.heard)), paused=True)
        paused = [job for job in self.heard if job.paused]
        if paused and (self.rng.random() < 0.2 or not left):
            self.batcher.pause(self.rng.choice(paused), paused=False)

    def _refused(self, ids: Ids) -> None:
        self.tally.kinds["refused"] += 1
        try:
            self.batcher.submit(Ask(ids).job(self.model))
        except UsageError:
            return
        raise AssertionError(f"{ids[:5]} was not refused")

    def _check(self, job: Job) -> None:
        ask, logprobs, sender = job.key, self.heard.pop(job), self.senders.pop(job)
        assert isinstance(ask, Ask) and job.done and job.error is None, f"{ask}: {job.error}"
        result = job.result
        self.tally.n_set_aside += job.set_aside is not None
        if job.reuse is not None:
            reuse = job.reuse
            assert reuse.n_reused == job.n_known and reuse.n_reused + reuse.n_processed == len(ask.ids), ask
            assert sum(tokens for _, tokens in reuse.parts) == reuse.n_processed, ask
            self.tally.n_reused += reuse.n_reused
            self.tally.n_read += result.prompt_tokens
        if job.cancelled:
            self.tally.kinds["cancelled"] += 1
        else:
            assert result.reason in ENDINGS and result.prompt_tokens == len(ask.ids) - job.n_known, ask
            assert said(job, logprobs) == self._alone(ask), ask
            self.tally.kinds[type(sender).__name__.lower()] += 1
            sender.heard(tuple(result.ids))
        cache = self.model.cache
        # a sequence that continues in other sequences leaves its last row and page to the cache
        moving = self.model.memory.bytes_state_per_seq + self.model.memory.attention.bytes_per_page
        most = BUDGET + N_PARALLEL * moving
        assert cache is not None and cache.nbytes <= most, f"{cache.nbytes} bytes are kept"
        self.tally.most_kept = max(self.tally.most_kept, cache.nbytes)

    def _alone(self, ask: Ask) -> Said:
        if ask not in self.known:
            self.tally.n_alone += 1
            if len(self.known) > 5000:
                self.known.clear()
            logprobs: list[object] = []
            job = ask.job(self.alone, on_text=partial(hear, logprobs))
            batcher = Batcher(self.alone.runner, 1)
            batcher.submit(job)
            for _ in batcher.run():
                pass
            assert job.error is None, job.error
            self.known[ask] = said(job, logprobs)
        return self.known[ask]

    def _check_the_end(self) -> None:
        """Assert that nothing is left over and that no side path has failed."""
        model, figures = self.model, self.batcher.figures
        assert self.batcher.n_faults == 0 and not any(path.n_faults for path in SidePath.all.values())
        assert figures.n_reused == self.tally.n_reused and not self.heard
        assert model.n_free == N_PARALLEL and model.cache is not None
        model.cache.clear()
        assert model.memory.recurrent.pool.used == model.memory.attention.pool.used == 0


def run(path: Path, n: int, seed: int) -> Tally:
    """Send n requests to a model of tiny_models."""
    load: Callable[..., LoadedModel] = LoadedModel.load
    with (
        load(
            path, n_ctx=N_CTX, n_ubatch=N_UBATCH, n_seq_max=N_PARALLEL, n_threads=1, checkpoint_budget=BUDGET
        ) as model,
        load(path, n_ctx=N_CTX, n_ubatch=N_UBATCH, n_seq_max=1, n_threads=1) as alone,
    ):
        return Run(model, alone, seed).requests(n)


def main() -> None:
    """Print the tally."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", choices=("jamba", "llama", "mamba"), default="jamba")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = getattr(tiny_models, given.model)().write(Path(folder) / "tiny.gguf")
        print(run(path, given.requests, given.seed))


if __name__ == "__main__":
    main()
