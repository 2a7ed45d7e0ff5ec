"""A model's answers to schemas, sampled in every possible way, and whether they are valid."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
from verdicts import value_of

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.batcher import Job, answer_all
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.constraints import Grammar
from hybrid.infer.answers.constraints.forms import Forms
from hybrid.infer.answers.drawing.drawing import Drawing, GenerationResult
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.answers.state_files.saved_states import form_behind, restored

PROMPT = "Say it in JSON, JSON: {"
HOT = SamplingParams(temp=2.0, top_k=0, top_p=1.0, min_p=0.0)


class Answers:
    """A model's answers to some schemas. counts: "whole", "cut" (by length), "invalid", "other" (differs from the
    batch)."""

    def __init__(self, model: LoadedModel, schemas: Sequence[dict[str, Any]], most: int = 200) -> None:
        self.model, self.schemas, self.most = model, schemas, most
        self.forms = Forms(model.tokenizer)
        self.counts: Counter[str] = Counter()
        self.wrong: list[tuple[Any, str]] = []
        self._texts: list[str] = []

    def run(self, folder: Path, n_alone: int) -> None:
        """Answer all schemas in batches of eight; answer n_alone of them again alone, with guesses, and saved in the
        middle."""
        try:
            self._in_batch()
            for i in range(0, len(self.schemas), max(1, len(self.schemas) // max(1, n_alone))):
                for result in (self._alone(i), self._saved(i, folder / "state")):
                    self._count(i, result)
                    self.counts["other"] += result.text != self._texts[i]
        finally:
            self.forms.close()

    def _drawing(self, i: int, most: int) -> Drawing:
        form = self.forms.compiled(Grammar.json_schema(self.schemas[i])).copy()
        return Drawing(self._sampler(i), self.model.tokenizer, most, (), constraint=form)

    def _sampler(self, i: int) -> Sampler:
        params = SamplingParams(**{**vars(HOT), "seed": i})
        return Sampler(params, self.model.n_vocab, self.model.tokenizer)

    def _in_batch(self) -> None:
        ids = self.model.tokenizer.encode(PROMPT)
        jobs = [
            Job(ids, self._drawing(i, self.most), remember=False, speculate=i % 2 == 0)
            for i in range(len(self.schemas))
        ]
        for i, result in enumerate(answer_all(self.model, jobs, 8)):
            self._texts.append(result.text)
            self._count(i, result)

    def _alone(self, i: int) -> GenerationResult:
        seq, ids = self.model.sequence(), self.model.tokenizer.encode(PROMPT)
        form = self.forms.compiled(Grammar.json_schema(self.schemas[i])).copy()
        run = generate(seq, ids, self._sampler(i), max_tokens=self.most, speculate=True, constraint=form)
        for _ in run:
            pass
        seq.close(remember=False)
        return run.result

    def _saved(self, i: int, path: Path) -> GenerationResult:
        """The answer in parts of a few tokens; each part continues from a state file."""
        whole, seq, sampler = GenerationResult(), self.model.sequence(), self._sampler(i)
        ids = self.model.tokenizer.encode(PROMPT)
        form = self.forms.compiled(Grammar.json_schema(self.schemas[i])).copy()
        tokens: list[int] = []
        while True:
            most = min(1 + len(tokens) % 7, self.most - len(tokens))
            run = generate(seq, ids, sampler, max_tokens=most, speculate=True, constraint=form)
            for _ in run:
                pass
            tokens += run.result.ids
            if run.result.reason != "length" or len(tokens) >= self.most:
                break
            seq.save(path, {"sampler": sampler.state(), "pending": run.result.pending, **run.state()})
            seq.close(remember=False)
            sampler = self._sampler(0)
            seq, ids = restored(self.model, path, sampler), []
            behind = form_behind(seq, None, self.forms, goes_on=True)
            assert behind is not None
            form = behind
        seq.close(remember=False)
        whole.ids, whole.reason, whole.text = tokens, run.result.reason, self.model.tokenizer.decode(tokens)
        return whole

    def _count(self, i: int, result: GenerationResult) -> None:
        if result.reason != "eos":
            self.counts["cut"] += 1
            return
        schema = self.schemas[i]
        try:
            valid = jsonschema_rs.Draft202012Validator(schema, validate_formats=True).is_valid(value_of(result.text))
        except ValueError:
            valid = False
        self.counts["whole" if valid else "invalid"] += 1
        if not valid:
            self.wrong.append((schema, result.text))
