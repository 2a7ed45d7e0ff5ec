"""From a Hugging Face checkpoint to GGUF, without torch and in constant memory.

    convert, plan     a checkpoint as a GGUF file; what would be written
    verify            a file compared with the checkpoint it was made from
    convert_lora      a LoRA adapter of PEFT as GGUF
    ARCHITECTURES     the architectures of checkpoints that are known, with their families

All that takes long accepts a callback progress(name, done, total); errors are `hybrid.quant.ggml.errors.HybridError`.
"""

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
