"""From a Hugging Face checkpoint to one GGUF file, without torch and in constant memory."""

from .architectures import ARCHITECTURES
from .convert import ConvertReport, Progress, convert, default_output, plan
from .plan import ConvertPlan, PlannedTensor
from .verify import VerifyReport, verify

__all__ = [
    "ARCHITECTURES",
    "ConvertPlan",
    "ConvertReport",
    "PlannedTensor",
    "Progress",
    "VerifyReport",
    "convert",
    "default_output",
    "plan",
    "verify",
]
