"""Converts a Hugging Face checkpoint to GGUF, without torch and in constant memory.

    convert, plan     write a checkpoint as a GGUF file, and its vision tower as a second one; plan it only
    convert_vision    write only the vision tower
    vision_beside     the same, beside a text model that another program writes
    verify            compare a file with the checkpoint it was made from
    convert_lora      convert a LoRA adapter of PEFT
    ARCHITECTURES     the known architectures with their families

Long operations accept a callback progress(name, done, total); errors are `hybrid.quant.ggml.errors.HybridError`.
"""

from hybrid.quant.ggml.progress import Progress

from .architectures import ARCHITECTURES
from .convert import ConvertReport, convert, convert_vision, plan, vision_beside
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
    "convert_vision",
    "plan",
    "verify",
    "vision_beside",
]
