"""From a Hugging Face checkpoint to one GGUF file, without torch and in constant memory."""

from hybrid.quant.ggml.progress import Progress

from .architectures import ARCHITECTURES
from .convert import ConvertReport, convert, plan
from .lora import LoraReport, convert_lora
from .planned import ConvertPlan, PlannedTensor
from .verify import VerifyReport, verify

__all__ = [
    "ARCHITECTURES",
    "ConvertPlan",
    "ConvertReport",
    "LoraReport",
    "PlannedTensor",
    "Progress",
    "VerifyReport",
    "convert",
    "convert_lora",
    "plan",
    "verify",
]
