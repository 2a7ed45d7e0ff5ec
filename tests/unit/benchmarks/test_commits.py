"""Two commits: which differences count, and how the other commit is imported."""

import math
import subprocess
from pathlib import Path

import commits
import pytest

from hybrid.quant.ggml.errors import UsageError

PROFILE = """\
hybrid 0.1.0

| op      | kernel           | calls |    time | share | GB/s | Gop/s | of limit |
| ------- | ---------------- | ----: | ------: | ----: | ---: | ----: | -------: |
| ssm_in  | gemm_int_q8_0_16 |    26 |   12 ms | 75.0% | 60.0 | 113.2 |      80% |
| norm    | rms_norm         |    26 |   500 us |  5.0% |  1.0 |   0.2 |       1% |
| norm    | norm_pack        |     3 |   500 us |  5.0% |  1.0 |   0.2 |       1% |
| nothing | nothing          |     1 |    0 us |  0.0% |  0.0 |   0.0 |       0% |

pp512: 16 ms in operations.
"""


def test_a_difference_beyond_the_noise() -> None:
    d = commits.difference("pp512", [100.0, 101.0, 99.0, 100.0], [110.0, 111.5, 109.0, 110.0])
    assert d.ratio == pytest.approx(1.1, rel=0.01)
    assert d.noise is not None
    assert 0 < d.noise < 0.01
    assert d.mark == "faster"
    assert commits.difference("x", [110.0, 111.0, 110.0], [100.0, 101.0, 100.0]).mark == "SLOWER"


def test_no_difference() -> None:
    noisy = commits.difference("x", [100.0, 140.0, 90.0], [120.0, 100.0, 130.0])
    assert noisy.mark == ""
    sure_and_small = commits.difference("x", [100.0] * 5, [101.0] * 5)
    assert sure_and_small.noise == pytest.approx(0, abs=1e-9)
    assert sure_and_small.mark == ""
    once = commits.difference("x", [100.0], [200.0])
    assert once.noise is None
    assert once.mark == "", "one round knows no noise"


def test_noise_is_students_interval() -> None:
    d = commits.difference("x", [1.0, 1.0, 1.0], [math.exp(0.1), math.exp(0.2), math.exp(0.3)])
    assert d.noise == pytest.approx(4.303 * 0.1 / math.sqrt(3))
    assert d.ratio == pytest.approx(math.exp(0.2))


def test_only_what_both_measured() -> None:
    compared = commits.differences({"a": [1.0, 1.0], "b": [1.0], "c": [1.0]}, {"a": [2.0, 2.0], "b": [1.0, 1.0]})
    assert [d.test for d in compared] == ["a"]
    assert "| a " in commits.table(compared, ("old", "new"), "t/s")


def test_profile() -> None:
    assert commits.parse_profile(PROFILE) == pytest.approx({"ssm_in": 1 / 0.012, "norm": 1 / 0.001})


def test_profile_is_what_hybrid_prints() -> None:
    from hybrid.infer.bench.benchmark import BenchTest
    from hybrid.infer.bench.machine import Machine
    from hybrid.infer.bench.profile import Profile, ProfileRow
    from hybrid.infer.bench.tables import profile_markdown

    rows = (ProfileRow("ssm_in", "gemv Q8_0", 26, 0.012, 0.75, 60.0, 113.25, 0.8),)
    machine = Machine("EPYC", "avx2", 2, 75.0, 500.0, {})
    text = profile_markdown(Profile(BenchTest(0, 1), machine, 0.016, rows))
    assert commits.parse_profile(text) == pytest.approx({"ssm_in": 1 / 0.012})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "cli").mkdir(parents=True)
    (folder / "cli" / "main.py").write_text("import numpy, sys\ndef main():\n    print('other', *sys.argv[1:])\n")
    (folder / "pyproject.toml").write_text(
        '[project.scripts]\nhybrid = "hybrid.cli.main:main"\n[tool.setuptools.package-dir]\n"hybrid.cli" = "cli"\n'
    )
    return folder


def test_the_other_commit_is_what_is_imported(checkout: Path, tmp_path: Path) -> None:
    side = commits.Side("other", commits.environment(checkout, tmp_path / "venv"), tmp_path / "cache")
    assert side.hybrid("bench", "-p", "512") == "other bench -p 512\n"
    place = subprocess.run(
        [side.python[0], "-c", "import hybrid.cli.main as m, os; print(os.path.realpath(m.__file__))"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert Path(place.stdout.strip()) == (checkout / "cli" / "main.py").resolve()


def test_a_package_that_holds_others_is_imported(checkout: Path, tmp_path: Path) -> None:
    """`hybrid` is the folder library, `hybrid.cli` another folder: nothing is linked into the checkout."""
    (checkout / "library").mkdir()
    (checkout / "library" / "__init__.py").write_text("")
    (checkout / "library" / "model.py").write_text("import hybrid.cli.main\nprint('model')\n")
    pyproject = (checkout / "pyproject.toml").read_text()
    (checkout / "pyproject.toml").write_text(pyproject.replace('"hybrid.cli"', '"hybrid" = "library"\n"hybrid.cli"'))
    python = commits.environment(checkout, tmp_path / "venv")[0]
    done = subprocess.run([python, "-c", "import hybrid.model"], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "model\n", done.stderr
    assert sorted(path.name for path in (checkout / "library").iterdir() if path.suffix) == ["__init__.py", "model.py"]
    assert not (checkout / "library" / "cli").exists()


def test_commits_that_cannot_be(checkout: Path, tmp_path: Path) -> None:
    (checkout / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(UsageError, match="has no command hybrid"):
        commits.entry_point(checkout)
    with (
        pytest.raises(UsageError, match="REF no-such-ref cannot be checked out: "),
        commits.checked_out("no-such-ref", tmp_path),
    ):
        pass
