"""Makes plamo2_ids.json with llama.cpp (README.md): PYTHONPATH=tests python make_plamo2.py path/to/llama-tokenize"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import random_checkpoints
from reference.plamo2_vocabulary import TEXTS, rows, write

from hybrid.convert import convert


def main() -> None:
    entries = []
    with TemporaryDirectory() as name:
        folder, text_file, path = Path(name, "model"), Path(name, "text"), Path(name, "model.gguf")
        config = {**random_checkpoints.CONFIGS["plamo2-full"], "vocab_size": len(rows())}
        convert(write(random_checkpoints.write(config, folder)), path, outtype="f32")
        for text in TEXTS:
            if not text or "\0" in text:  # these end a text there
                continue
            text_file.write_bytes(text.encode())
            command = [sys.argv[1], "-m", path, "-f", text_file, "--ids", "--no-bos", "--no-parse-special"]
            output = subprocess.run([*command, "--log-disable"], capture_output=True, text=True, check=True).stdout
            ids = next(line for line in output.splitlines() if line.startswith("["))
            entries.append({"text": text, "ids": json.loads(ids)})
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    (Path(__file__).parent / "plamo2_ids.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
