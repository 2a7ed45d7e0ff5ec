"""From logits to a token: the settings' plan of samplers, then a random draw.

The default plan, and any part of it in the same order, is exact but lazy: candidates are the few logits that reach a
bound taken from maxima, and only as many as top_k or top_p can keep are ever sorted. Every other plan goes through
chain.py. Equal logits are ordered by id, so the result does not depend on how numpy sorts.
"""

import math
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import HybridError, Remedy, StateError, UsageError

from .chain import Chain, penalized
from .dry import TokenTexts, breakers_of
from .largest import descending, every, growing, largest, until
from .params import SamplingParams
from .selection import Adaptive, Mirostat, Selection

QUICK = ("penalties", "top_k", "top_p", "min_p", "temperature")  # in this order


class Sampler:
    """Samples tokens. Its state: the random generator, the recent tokens, and the values that mirostat and adaptive_p
    adapt.

    The same params, seed and logits give the same tokens with any version of numpy: PCG64's raw 64-bit output is used,
    which numpy promises never to change.

    vocabulary  the model's tokenizer, in which DRY looks up its breakers; needed for DRY only
    """

    def __init__(self, params: SamplingParams, n_vocab: int, vocabulary: TokenTexts | None = None) -> None:
        self.params = params
        self.n_vocab = n_vocab
        self.seed = params.seed if params.seed is not None else secrets.randbits(32)
        self._drawn_from: tuple[np.ndarray, np.ndarray, float] | None = None  # tokens, their weights, the sum of these
        self._random = np.random.PCG64(self.seed)
        breakers = {}
        if params.dries and params.dry_breakers:
            if vocabulary is None:
                raise UsageError("DRY's breakers need the model's tokenizer.")
            breakers = breakers_of(vocabulary, params.dry_breakers)
        self._chain = Chain(params, self._uniform, breakers)
        self._selection = _selection(params, n_vocab)
        self._plan = params.plan
        self._quick = _is_quick(params, self._plan) and self._selection is None
        self._greedy = self._quick and params.greedy
        self._banned: frozenset[int] = frozenset()
        outside = [token for token in params.logit_bias if not 0 <= token < n_vocab]
        if outside:
            raise UsageError(f"logit_bias names token {outside[0]}, the vocabulary has {n_vocab} tokens")

    def ban(self, tokens: Iterable[int]) -> None:
        """Forbids these tokens (`ignore_eos`), in place of the tokens banned before."""
        self._banned = frozenset(token for token in tokens if 0 <= token < self.n_vocab)

    def accept(self, token: int) -> None:
        """Notes a token of the text, of the prompt or sampled."""
        self._chain.accept(token)
        if self._selection is not None:
            self._selection.accept(token)

    def accept_all(self, tokens: Iterable[int]) -> None:
        """`accept` for a prompt; only its end can matter."""
        self._chain.accept_all(tokens)

    def sample(self, logits: np.ndarray) -> int:
        """The next token for f32 logits [n_vocab], which are not changed.

        Raises HybridError if they hold NaN, UsageError if the settings leave no token. Sets `probabilities`.
        """
        if logits.shape != (self.n_vocab,):
            raise UsageError(f"logits have shape {logits.shape}, expected ({self.n_vocab},)")
        given, logits = logits, self._adjusted(logits)
        best = int(logits.argmax())  # the first NaN, if there is one
        top = float(logits[best])
        if top == -math.inf < given.max():
            raise UsageError("logit_bias forbids every token that could come next. Leave one that may be sampled.")
        if not math.isfinite(top):
            raise HybridError(
                f"the logits hold {'NaN' if math.isnan(top) else 'no finite maximum'} (token {best}): "
                "the weights are damaged or out of range. Convert the model again.",
                remedy=Remedy.VERIFY,
            )
        self._drawn_from = None
        if self._greedy:
            return best
        if self._quick:
            tokens, weights = self._quickly(logits, top)
        else:
            left = self._chain.run(logits, self._plan)
            left = left if self._selection is None else self._selection.chosen_from(left)
            tokens, weights = left.ids, left.weights()
        edges = weights.cumsum()
        draw = self._uniform() * edges[-1]
        place = min(int(edges.searchsorted(draw, side="right")), len(tokens) - 1)
        self._drawn_from = tokens, weights, edges[-1]
        token = int(tokens[place])
        if self._selection is not None:
            self._selection.drawn(token, float(weights[place] / edges[-1]))
        return token

    @property
    def probabilities(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The ids that `sample` chose from, and their probabilities, f64; None if it took the most probable at once."""
        if self._drawn_from is None:
            return None
        tokens, weights, total = self._drawn_from
        return tokens, weights / total

    def forced(self) -> None:
        """Notes that the next token is not sampled: only one is possible."""
        self._drawn_from = None

    def state(self) -> dict[str, Any]:
        """All that the next tokens depend on except the params; plain JSON."""
        inner = self._random.state["state"]
        state = {
            "seed": self.seed,
            "generator": "PCG64",
            "state": str(inner["state"]),  # 128 bits: JSON readers elsewhere would round it
            "inc": str(inner["inc"]),
            "recent": list(self._chain.recent.tokens),
        }
        if self.params.dries:
            state["said"] = list(self._chain.said)
        if self._selection is not None:
            state |= {"learner": self._selection.NAME, "learnt": self._selection.state()}
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`. Raises StateError if it is not a state of this class."""
        try:
            if state["generator"] != "PCG64":
                raise ValueError
            inner = {"state": int(state["state"]), "inc": int(state["inc"])}
            seed, recent = int(state["seed"]), [int(token) for token in state["recent"]]
            said = [int(token) for token in state.get("said", recent)]
            if not all(0 <= value < 2**128 for value in inner.values()):
                raise ValueError
            if not all(0 <= token < self.n_vocab for token in (*recent, *said)):
                raise ValueError
            selection = _selection(self.params, self.n_vocab)
            # values that another sampler has adapted are useless
            if selection is not None and "learnt" in state and state.get("learner", selection.NAME) == selection.NAME:
                selection.set_state(state["learnt"])
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):  # OverflowError: infinity
            raise StateError("the sampler state is not of this version.", remedy=Remedy.WITHOUT_STATE) from None
        self.seed, self._selection = seed, selection
        whole: Any = {"bit_generator": "PCG64", "state": inner, "has_uint32": 0, "uinteger": 0}
        self._random.state = whole
        self._chain.hold(recent, said)

    def _uniform(self) -> float:
        """A number in [0, 1) of 53 random bits."""
        return (int(self._random.random_raw()) >> 11) * 2.0**-53

    def _adjusted(self, logits: np.ndarray) -> np.ndarray:
        """Logits with bias, bans, and a quick plan's penalties; the caller's array if there is nothing to change."""
        params, counts = self.params, self._chain.recent.counts
        penalizes = self._plan[:1] == ("penalties",) and self._quick and bool(counts)
        if not (penalizes or params.logit_bias or self._banned):
            return logits
        logits = logits.astype(np.float32)
        for token, bias in params.logit_bias.items():
            logits[token] += np.float32(bias)
        if self._banned:
            logits[list(self._banned)] = -np.inf
        if penalizes:
            tokens = np.fromiter(counts.keys(), np.intp, len(counts))
            logits[tokens] = penalized(logits[tokens], np.fromiter(counts.values(), np.float32, len(counts)), params)
        return logits

    def _quickly(self, logits: np.ndarray, top: float) -> tuple[np.ndarray, np.ndarray]:
        """Tokens that pass top_k, top_p and min_p, and their weights at the temperature. top: the largest logit."""
        tokens, values = self._candidates(logits, top)
        temp = self.params.temp if "temperature" in self._plan else 1.0
        with np.errstate(over="ignore"):  # a temperature near 0 sends all but the best to -inf
            return tokens, np.exp((values.astype(np.float64) - top) / temp)

    def _candidates(self, logits: np.ndarray, top: float) -> tuple[np.ndarray, np.ndarray]:
        """Tokens that pass top_k, top_p and min_p, with their logits; sorted only for top_p. top: the largest logit."""
        params, plan = self.params, self._plan
        # min_p looks at the best token only, so it commutes with the others and goes first where it can.
        floor = top + math.log(params.min_p) if "min_p" in plan else -math.inf
        n_keep = params.top_k if "top_k" in plan and params.top_k < self.n_vocab else self.n_vocab
        if "top_p" not in plan:
            if n_keep == self.n_vocab and floor == -math.inf:
                return every(self.n_vocab), logits
            if n_keep == self.n_vocab:
                tokens = np.flatnonzero(logits >= floor)
            else:
                tokens = np.sort(largest(logits, n_keep))
                tokens = tokens[logits[tokens] >= floor]
            return tokens, logits[tokens]
        if n_keep < self.n_vocab:
            tokens, values, weights = descending(logits, n_keep, top)
            return until(tokens, values, weights, params.top_p * float(weights.sum()), floor)
        total = float(np.exp(logits - np.float32(top)).sum(dtype=np.float64))
        for n in growing(256, self.n_vocab):
            tokens, values, weights = descending(logits, n, top)
            reached = float(weights.sum()) >= params.top_p * total
            if reached or n == self.n_vocab or values[-1] < floor:
                break
        return until(tokens, values, weights, params.top_p * total, floor)


def _is_quick(params: SamplingParams, plan: tuple[str, ...]) -> bool:
    """Whether the plan is some of QUICK's samplers in their order, without settings that only chain.py supports."""
    in_order = [name for name in QUICK if name in plan] == list(plan)
    # a temperature of 0 takes the best token: see `Sampler._greedy`
    return in_order and params.min_keep <= 1 and params.dynatemp_range <= 0


def _selection(params: SamplingParams, n_vocab: int) -> Selection | None:
    if params.mirostat:
        return Mirostat(params, n_vocab)
    return Adaptive(params) if params.adaptive_target >= 0 else None
