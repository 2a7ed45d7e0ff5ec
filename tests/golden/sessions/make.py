"""python make.py LLAMA_CPP_BIN FOLDER NAME...: a session file of each model FOLDER/NAME.gguf, and its continuation."""

import json
import subprocess
import sys
from pathlib import Path

PROMPT, MORE, N = "The session file", " holds what was said", 16


def complete(program: Path, model: Path, prompt: str, *options: str) -> str:
    command = [program, "-m", model, "-no-cnv", "--temp", "0", "-t", "2", "-c", "256", "--no-display-prompt"]
    done = subprocess.run(
        [*map(str, command), "-p", prompt, *options], stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    return done.stdout.decode("utf-8", "replace").removesuffix("\n\n")


def main() -> None:
    program, folder = Path(sys.argv[1]) / "llama-completion", Path(sys.argv[2])
    here = Path(__file__).parent
    texts = {}
    for name in sys.argv[3:]:
        model, session = folder / f"{name}.gguf", here / f"{name}.session"
        session.unlink(missing_ok=True)
        complete(program, model, PROMPT, "-n", "1", "--prompt-cache", str(session))
        again = ("--prompt-cache", str(session), "--prompt-cache-ro", "-n", str(N))
        texts[name] = complete(program, model, PROMPT + MORE, *again)
    expected = {"prompt": PROMPT, "more": MORE, "n": N, "texts": texts}
    (here / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
