"""The least work for a token: bytes of weights to read, and products of weights and activations.

Counts only weights: the work of attention, states and norms depends on the text before the token, and is the reason
why a model does not reach the machine's limits.
"""

from dataclasses import dataclass
from math import prod

from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType

from ..kernels.emit.isa import host
from ..kernels.products.gemm import scheme
from ..kernels.weights import INT_BLOCKS
from .machine import Machine

_EXPERTS = ("_exps.weight",)
_NO_PRODUCTS = ("norm", "conv1d", "token_embd")


@dataclass(frozen=True)
class TokenNeeds:
    """Work for one token of one sequence, with only the experts that it uses."""

    nbytes: int
    """Weights that a generated token reads."""
    flops: dict[GGMLType, int]
    """Operations for a token of a prompt by weight type, two for a multiply-add; without the output matrix, which only
    the last token of a prompt needs."""
    has_experts: bool

    @classmethod
    def of(cls, gguf: GGUFFile) -> "TokenNeeds":
        arch = gguf.get("general.architecture")
        n_expert = int(gguf.get(f"{arch}.expert_count", 0) or 0)
        used = int(gguf.get(f"{arch}.expert_used_count", 0) or 0)
        tied = "output.weight" not in gguf.tensors
        nbytes = 0
        flops: dict[GGMLType, int] = {}
        for name, tensor in gguf.tensors.items():
            # all experts are in one tensor
            part = used / n_expert if n_expert and name.endswith(_EXPERTS) else 1.0
            rows = tensor.shape[0] if name.startswith("token_embd") and not tied else 1
            nbytes += round(tensor.nbytes * part) // rows
            if name.endswith(".weight") and len(tensor.shape) > 1 and name != "output.weight":
                if any(word in name for word in _NO_PRODUCTS):
                    continue
                flops[tensor.type] = flops.get(tensor.type, 0) + round(2 * prod(tensor.shape) * part)
        return cls(nbytes, flops, n_expert > 0)

    def of_bandwidth(self, tokens_per_second: float, read_gb_s: float) -> float:
        """Share of the read bandwidth that generation uses."""
        return tokens_per_second * self.nbytes / 1e9 / read_gb_s

    def of_peak(self, tokens_per_second: float, machine: Machine) -> float:
        """Share of the arithmetic peak that a prompt uses, by the peak for each weight type."""
        return tokens_per_second * sum(n / 1e9 / peak_of(kind, machine) for kind, n in self.flops.items())


def peak_of(kind: GGMLType, machine: Machine) -> float:
    """Peak operations per ns, in registers, of the instructions for products with weights of this type."""
    if kind is GGMLType.BF16 and host().bf16:
        return machine.dot_gop_s.get("pairs", machine.f32_gflop_s)
    if kind not in INT_BLOCKS:
        return machine.f32_gflop_s
    return machine.dot_gop_s.get(scheme(kind, host()).name, machine.f32_gflop_s)
