"""python make.py LLAMA_CPP_BIN MODEL: texts of llama-completion after a context shift that keeps more or less of the
prompt."""

import json
import subprocess
import sys
from pathlib import Path

PROMPT, N, KEPT = "The session file holds what was said", 500, (0, 4, -1)
CONTEXT = 256  # llama.cpp rounds contexts up to a multiple of this


def said(command: list[str]) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace").removesuffix("\n\n").removesuffix("\n")


def main() -> None:
    program, model = Path(sys.argv[1]) / "llama-completion", sys.argv[2]
    options = ["-no-cnv", "--no-display-prompt", "--temp", "0", "-t", "1", "--context-shift"]
    options += ["-ctk", "f32", "-ctv", "f32", "-fa", "off"]
    texts = {}
    for keep in KEPT:
        command = [program, "-m", model, *options, "-c", CONTEXT, "-n", N, "--keep", keep, "-p", PROMPT]
        # the program sometimes ends before all its text is printed
        texts[str(keep)] = max((said(list(map(str, command))) for _ in range(3)), key=len)
    expected = {"prompt": PROMPT, "n": N, "context": CONTEXT, "texts": texts}
    path = Path(__file__).with_name("expected.json")
    path.write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
