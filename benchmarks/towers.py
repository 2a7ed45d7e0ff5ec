"""Time from a picture's pixels to the rows that a text model reads, with random weights in published sizes.

    python benchmarks/towers.py                                       in seconds: pixels to patches, and the tower
    python benchmarks/towers.py --peer path/to/llama.cpp/build/bin    beside llama-mtmd-cli on the same files, in turn
    python benchmarks/towers.py --cpu --peer ...                      CPU time of one thread, on a machine that is busy

Towers of SmolVLM-500M, LFM2-VL-450M and Qwen3.5-0.8B, in F16 and Q8_0, over pictures of 512 x 512 and 2000 x 1500.
Times are medians of the repetitions, which alternate with llama.cpp's; decoding the file is not in them. llama.cpp pads
where the reference stretches, and may cut a picture into other tiles: its number of patches is not always ours. Text
models beside towers are tiny. Runs that other processes disturbed count only if there are no others: * marks such
figures. llama.cpp's CPU time is the whole program's, without LOADING. Another code path: the variables of
tests/forced_isa.py; llama.cpp's other libraries: LD_LIBRARY_PATH.
"""

import argparse
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from quiet import MOST_OTHERS, Watch

from hybrid.convert import convert
from hybrid.infer.bench.machine import measure_machine
from hybrid.infer.bench.tables import duration, markdown_table
from hybrid.infer.loading.options import Precision
from hybrid.infer.pictures.processors import processor_of
from hybrid.infer.program.threads import default_threads
from hybrid.infer.towers.loading import load_tower
from hybrid.quant import quantize
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

import random_towers  # noqa: E402

LOADING = 0.2  # CPU seconds: from 0.05 to 0.23
PICTURES = ((512, 512), (2000, 1500))
TOKENIZER = ROOT / "tests" / "data" / "checkpoints" / "mamba-bf16"
BASE = {"hidden_size": 768, "intermediate_size": 3072}
SIGLIP = {**BASE, "num_hidden_layers": 12, "num_attention_heads": 12, "patch_size": 16, "layer_norm_eps": 1e-6}
PIXELS = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
# name -> (a random checkpoint, changes of its config, of vision_config, of preprocessor_config.json)
TOWERS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "SmolVLM-500M": (
        "smolvlm", {"hidden_size": 960, "scale_factor": 4}, {**SIGLIP, "image_size": 512},
        {**PIXELS, "size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}},
    ),
    "LFM2-VL-450M": (
        "lfm2-vl", {"hidden_size": 1024, "downsample_factor": 2, "projector_hidden_size": 2560},
        {**SIGLIP, "num_patches": 256},
        {
            **PIXELS, "encoder_patch_size": 16, "tile_size": 512, "downsample_factor": 2, "min_tiles": 2,
            "max_tiles": 10, "min_image_tokens": 64, "max_image_tokens": 256,
        },
    ),
    "Qwen3.5-0.8B": (
        "qwen35-vl", {"hidden_size": 1024},
        {
            **BASE, "depth": 12, "num_heads": 12, "patch_size": 16, "spatial_merge_size": 2, "out_hidden_size": 1024,
            "num_position_embeddings": 2304, "rope_parameters": {"rope_theta": 10000.0},
        },
        {**PIXELS, "patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 65536, "longest_edge": 4194304}},
    ),
}  # fmt: skip


def written(name: str, folder: Path) -> tuple[Path, Path]:
    """The text model and the vision tower, F16."""
    base, changes, vision, picture = TOWERS[name]
    config, settings, outer = random_towers.CONFIGS[base]
    width = changes["hidden_size"]
    text = {"hidden_size": width, "head_dim": 64, "num_attention_heads": width // 64, "num_key_value_heads": 1}
    text |= {name: 16 for name in config["text_config"] if name in ("linear_key_head_dim", "linear_value_head_dim")}
    config = {
        **config, **{key: value for key, value in changes.items() if key != "hidden_size"},
        "text_config": {**config["text_config"], **text}, "vision_config": {**config["vision_config"], **vision},
    }  # fmt: skip
    outer = {**outer, "image_seq_len": 64} if "image_seq_len" in outer else outer  # of SmolVLM's tiles
    random_towers.CONFIGS[base] = config, {**settings, **picture}, outer
    source = random_towers.write(base, folder / "checkpoint")
    target = folder / "text.gguf"
    convert(source, target, outtype="f16", tokenizer=TOKENIZER)
    return target, next(folder.glob("mmproj*.gguf"))


class Runs:
    """Seconds of the runs of one program, and of its undisturbed runs."""

    def __init__(self, run: Callable[[], float]) -> None:
        self.run, self.all, self.quiet = run, list[float](), list[float]()

    def again(self, always: bool) -> None:
        """Runs once. always: others do not disturb it."""
        with Watch() as watch:
            self.all.append(self.run())
        if always or watch.usage is None or watch.usage.others <= MOST_OTHERS:
            self.quiet.append(self.all[-1])

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(self.quiet or self.all)

    def __str__(self) -> str:
        return duration(self.seconds) + ("" if self.quiet else "*")


class Ours:
    """A loaded tower and a picture. clock: in seconds."""

    def __init__(
        self, tower: Path, size: tuple[int, int], n_threads: int, precision: Precision, clock: Callable[[], float]
    ) -> None:
        self.clock = clock
        self.rgb = np.asarray(picture(size))
        with GGUFFile.open(tower) as file:
            self.make = processor_of(file)
        self.loaded = load_tower(tower, n_threads=n_threads, precision=precision)
        self.patches = self.make.pixels(self.rgb)
        self.loaded.see(self.patches)  # compiles

    def cut(self) -> float:
        """Seconds from pixels to patches."""
        start = self.clock()
        self.make.pixels(self.rgb)
        return self.clock() - start

    def encode(self) -> float:
        """Seconds of the tower."""
        start = self.clock()
        self.loaded.see(self.patches)
        return self.clock() - start


def picture(size: tuple[int, int]) -> Image.Image:
    """Noise over a gradient."""
    width, height = size
    ramp = np.add.outer(np.arange(height), np.arange(width))[..., None] * np.array([1, 2, 3]) // 8
    noise = np.random.default_rng(1).integers(0, 64, (height, width, 3))
    return Image.fromarray(((ramp + noise) % 256).astype(np.uint8))


def peer(folder: Path, text: Path, tower: Path, image: Path, n_threads: int, *, cpu: bool) -> float:
    """Seconds that llama-mtmd-cli takes to encode a picture. cpu: CPU seconds of the program."""
    command = [folder / "llama-mtmd-cli", "-m", text, "--mmproj", tower, "--image", image, "-p", "x", "-n", "1"]
    command += ["-t", n_threads, "--chat-template", "vicuna", "-c", "16384"]
    before = children_seconds()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    found = re.findall(r"encod\w+ (?:done )?in (\d+) ms", done.stdout + done.stderr)
    if not found:
        raise SystemExit(f"llama-mtmd-cli says no time: {(done.stderr or done.stdout)[-400:]}")
    return children_seconds() - before - LOADING if cpu else sum(map(int, found)) / 1000


def children_seconds() -> float:
    """CPU seconds of the programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure all towers and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TOWERS), help="names of towers, with commas")
    parser.add_argument("--pictures", default=",".join(f"{w}x{h}" for w, h in PICTURES), help="sizes, with commas")
    parser.add_argument("--weights", default="F16,Q8_0", help="types, with commas")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="CPU seconds of one thread")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--peer", type=Path, help="folder of llama.cpp's programs")
    args = parser.parse_args()
    precision: Precision = "exact" if args.exact else "fast"
    clock, n_threads = (time.thread_time, 1) if args.cpu else (time.perf_counter, args.threads)
    rows = []
    sizes = [tuple(map(int, size.split("x"))) for size in args.pictures.split(",")]
    for name in args.only.split(","):
        with tempfile.TemporaryDirectory() as there:
            folder = Path(there)
            text, tower = written(name, folder)
            quantize(tower, folder / "q8_0.gguf", FileType.Q8_0)
            files = {"F16": tower, "Q8_0": folder / "q8_0.gguf"}
            for width, height in sizes:
                picture((width, height)).save(image := folder / "picture.png")
                for kind in args.weights.split(","):
                    ours = Ours(files[kind], (width, height), n_threads, precision, clock)
                    cut, encode = Runs(ours.cut), Runs(ours.encode)
                    other = Runs(partial(peer, args.peer, text, files[kind], image, n_threads, cpu=args.cpu))
                    for _ in range(args.repetitions):
                        for runs in (cut, encode, *([other] if args.peer else [])):
                            runs.again(args.cpu)
                    ours.loaded.close()
                    size = f"{width}x{height}"
                    row = [name, kind, size, str(len(ours.patches.patches)), str(cut), str(encode)]
                    if args.peer:
                        row += [str(other), f"{other.seconds / (cut.seconds + encode.seconds):.2f}"]
                    rows.append(row)
                    print(*row, file=sys.stderr, flush=True)
    machine = measure_machine(n_threads)
    header = [
        "tower",
        "weights",
        "picture",
        "patches",
        "pixels",
        "tower",
        *(["llama.cpp", "times"] if args.peer else []),
    ]
    print(markdown_table(header, rows), end="")
    print(f"{machine.cpu}, {machine.isa}, {n_threads} threads{', CPU time' if args.cpu else ''}")


if __name__ == "__main__":
    main()
