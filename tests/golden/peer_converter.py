"""Runs llama.cpp's converter on several checkpoints in one process of its own Python (torch, transformers), which has
nothing of this package: peer_converter.py FOLDER_OF_LLAMA_CPP JOBS, where JOBS is a JSON list of objects:

    arguments  of convert_hf_to_gguf.py
    pre        value for tokenizer.ggml.pre if it does not know the tokenizer's hash
"""

import importlib
import json
import sys
from typing import Any

# Models for which it expects special tokenizers; ours is byte-level BPE, as for the others.
OWN_TOKENIZERS = (
    ("conversion.ernie", "Ernie4_5Model"),
    ("conversion.glm", "Glm4Model"),
    ("conversion.glm", "Glm4MoeModel"),
    ("conversion.hunyuan", "HunYuanMoEModel"),
    ("conversion.glm", "Glm5NextModel"),
    ("conversion.deepseek", "DeepseekV32Model"),
    ("conversion.glm", "GlmMoeDsaModel"),
)


def main() -> None:
    source, jobs = sys.argv[1], json.loads(sys.argv[2])
    sys.path.insert(0, source)
    import convert_hf_to_gguf as program  # type: ignore[import-not-found]
    from conversion.base import TextModel  # type: ignore[import-not-found]

    known = TextModel.get_vocab_base_pre
    for module, name in OWN_TOKENIZERS:
        getattr(importlib.import_module(module), name).set_vocab = TextModel._set_vocab_gpt2
    for job in jobs:

        def pre(self: Any, tokenizer: Any, job: dict[str, Any] = job) -> str:
            try:
                return known(self, tokenizer)
            except NotImplementedError:
                return job["pre"]

        TextModel.get_vocab_base_pre = pre
        sys.argv = ["convert_hf_to_gguf.py", *job["arguments"]]
        try:
            program.main()
        except (Exception, SystemExit) as error:  # the others continue; the test reports the missing file
            print(f"REFUSED {job['arguments'][0]}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
