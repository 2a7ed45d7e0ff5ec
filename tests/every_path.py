"""Golden, property and kernel tests under every code path that this machine can execute beside its own.

    python tests/every_path.py              the short ones, on all cores
    python tests/every_path.py avx2 plain   these paths only

The machine's own path is what `pytest` alone runs. Kernels of a forced path are compiled once and cached like others.
"""

import subprocess
import sys

import forced_isa

from hybrid.infer.kernels.emit.isa import host

# what does not compute with the kernels of this process, or forces paths itself
INDEPENDENT = {
    "test_block_formats.py", "test_chat_answers.py", "test_chat_grammar.py", "test_code_paths.py",
    "test_gguf_roundtrip.py", "test_peer.py", "test_peer_converter.py", "test_peer_quantizer.py", "test_tokenizers.py",
}  # fmt: skip
CHOSEN = "not slow and (kernel or not exhaustive)"  # of models what `make quick` runs: their kernels are met one by one
KERNELS = ("attention", "products", "recurrent", "rows", "weights")


def files() -> list[str]:
    """Test files whose results depend on the path."""
    root = forced_isa.ROOT
    paths = [root / shelf for shelf in ("tests/golden", "tests/property")]
    tests = [path for folder in paths for path in folder.glob("test_*.py")]
    for room in KERNELS:
        tests += (root / "tests" / "unit" / "infer" / "kernels" / room).glob("test_*.py")
    return sorted(str(path.relative_to(root)) for path in tests if path.name not in INDEPENDENT)


def run(path: str) -> int:
    """pytest's exit status under this path; its output goes to the terminal."""
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "worksteal", "-m", CHOSEN, *files()]
    return subprocess.run(command, env=forced_isa.forced_environment(path), cwd=forced_isa.ROOT).returncode


def main() -> int:
    """The first exit status that is not 0."""
    own = host().name
    others = sys.argv[1:] or [path for path in forced_isa.FEATURES if path != own and forced_isa.executable(path)]
    missing = [path for path in forced_isa.FEATURES if not forced_isa.executable(path)]
    for path in others:
        print(f"code path {path}:", flush=True)
        if status := run(path):
            return status
    print(f"code paths tested: {', '.join([own, *others])}")
    if missing:
        print(f"not executable here: {', '.join(missing)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
