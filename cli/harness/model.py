"""A loaded model with the interface that lm-evaluation-harness expects.

Imports `lm_eval`. torch is not needed and never imported.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lm_eval.api.model import LM  # noqa: TID253  this module is imported where there are tasks

from hybrid.infer.answers.chat.continuing import begun
from hybrid.infer.evaluate import continuations
from hybrid.infer.evaluate.continuations import Pair
from hybrid.infer.evaluate.loglikelihood import PairMaker
from hybrid.infer.progress import TokenProgress
from hybrid.quant.ggml.errors import TemplateError, UsageError

from .generation import TaskPrompt, generated

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

    from hybrid.infer.evaluate.parts import Measurable

LabelledProgress = Callable[[str, int, int], None]  # (label, done, total)


class HarnessModel(LM):  # type: ignore[misc]
    """The harness's `LM` over one of our models.

    add_bos   whether to add BOS to texts that lack it; None: as the model says
    seed      of sampled answers
    """

    def __init__(
        self,
        model: "Measurable",
        *,
        add_bos: bool | None = None,
        progress: LabelledProgress | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.model, self.seed = model, seed
        self.pairs = PairMaker(model.tokenizer, model.n_ctx, add_bos)
        self._progress = progress
        self.n_truncated = 0  # requests whose context was cut at the beginning
        self.n_without_system = 0  # prompts whose system message the template refused
        self.n_tokens = self.n_processed = 0

    # --- requests of tasks ---
    def loglikelihood(self, requests: "list[Instance]") -> list[tuple[float, bool]]:
        """ln p of continuations, and whether each is the model's greedy continuation."""
        pairs = []
        for request in requests:
            pair, lost = self.pairs.pair(*request.args)
            self.n_truncated += bool(lost)
            pairs.append(pair)
        results = [(result.ln_p, result.greedy) for result in self._scored(pairs, "scoring")]
        for request, result in zip(requests, results, strict=True):
            self.cache_hook.add_partial("loglikelihood", request.args, result)
        return results

    def loglikelihood_rolling(self, requests: "list[Instance]") -> list[float]:
        """ln p of whole texts."""
        windows = [self.pairs.windows(request.args[0]) for request in requests]
        scored = iter(self._scored([pair for some in windows for pair in some], "scoring texts"))
        results = [sum(next(scored).ln_p for _ in some) for some in windows]
        for request, result in zip(requests, results, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, result)
        return results

    def generate_until(self, requests: "list[Instance]") -> list[str]:
        """The model's continuations of contexts."""
        prompts = []
        for number, request in enumerate(requests):
            context, settings = request.args
            prompt = TaskPrompt.of(self.pairs, context, settings, self.seed + number)
            self.n_truncated += bool(prompt.lost)
            prompts.append(prompt)
        results = generated(self.model, prompts, self._step("generating"))
        for request, result in zip(requests, results, strict=True):
            self.cache_hook.add_partial("generate_until", request.args, result)
        return results

    def _scored(self, pairs: Sequence[Pair], label: str) -> list[continuations.Likelihood]:
        scored = continuations.score(self.model, pairs, self._step(label))
        self.n_tokens += scored.n_tokens
        self.n_processed += scored.n_processed
        return scored.results

    def _step(self, label: str) -> TokenProgress | None:
        progress = self._progress
        return None if progress is None else lambda done, total: progress(label, done, total)

    # --- chats ---
    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Messages in the model's template; without `add_generation_prompt` the last one stays open.

        Like the harness's class for transformers, it drops a system message that the template refuses.
        """
        try:
            return self._rendered(chat_history, add_generation_prompt)
        except TemplateError:
            others = [message for message in chat_history if message["role"] != "system"]
            if len(others) == len(chat_history):
                raise
            self.n_without_system += 1
            return self._rendered(others, add_generation_prompt)

    def _rendered(self, messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
        template = self.model.chat_template
        if template is None:
            raise UsageError(f"{self.model.path.name} has no chat template. Leave out --apply-chat-template.")
        if add_generation_prompt:
            return template.render(messages)
        return begun(messages, template.render, None)[0]

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The source of the template."""
        template = self.model.chat_template
        return template.source if chat_template and template is not None else None

    @property
    def tokenizer_name(self) -> str:
        """A name that identifies the tokenizer: the model's file."""
        return self.model.fingerprint

    def get_model_info(self) -> dict[str, Any]:
        """Facts about the model for the results."""
        return {
            "model_num_parameters": self.model.n_params,
            "model_dtype": self.model.file_type,
            "model_revision": self.model.description,
            "model_sha": self.model.fingerprint,
            "max_length": self.model.n_ctx,
            "precision": self.model.precision,
        }
