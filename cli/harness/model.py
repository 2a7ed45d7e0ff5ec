"""A loaded model as lm-evaluation-harness wants it: what its tasks ask for, in texts, answered in our own words.

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

LabelledProgress = Callable[[str, int, int], None]  # what is being done, how much of it is done, how much there is


class HarnessModel(LM):  # type: ignore[misc]
    """What tasks ask a model.

    add_bos   whether BOS begins texts that do not have it; None: what the model says
    seed      of answers that are sampled
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
        self.n_truncated = 0  # requests that lost the beginning of their context
        self.n_without_system = 0  # prompts whose system message the template refused
        self.n_tokens = self.n_processed = 0

    # --- what tasks ask ---
    def loglikelihood(self, requests: "list[Instance]") -> list[tuple[float, bool]]:
        """ln p of continuations, and whether each is what the model itself would say."""
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
        """ln p of whole texts, each by itself."""
        windows = [self.pairs.windows(request.args[0]) for request in requests]
        scored = iter(self._scored([pair for some in windows for pair in some], "scoring texts"))
        results = [sum(next(scored).ln_p for _ in some) for some in windows]
        for request, result in zip(requests, results, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, result)
        return results

    def generate_until(self, requests: "list[Instance]") -> list[str]:
        """What the model says after contexts."""
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
        """Messages as the model's template writes them; without `add_generation_prompt` the last one is left open.

        As the harness does it for models of transformers, a system message that the template refuses is left out.
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
        """The source of the template that is applied."""
        template = self.model.chat_template
        return template.source if chat_template and template is not None else None

    @property
    def tokenizer_name(self) -> str:
        """What identifies the tokenizer: the model's file."""
        return self.model.fingerprint

    def get_model_info(self) -> dict[str, Any]:
        """What the results say of the model."""
        return {
            "model_num_parameters": self.model.n_params,
            "model_dtype": self.model.file_type,
            "model_revision": self.model.description,
            "model_sha": self.model.fingerprint,
            "max_length": self.model.n_ctx,
            "precision": self.model.precision,
        }
