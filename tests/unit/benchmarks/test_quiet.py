"""What counts as a disturbed run."""

from dataclasses import replace
from pathlib import Path

import pytest
import quiet

from hybrid.infer.bench.machine import Machine

MACHINE = Machine("EPYC", "avx2", 2, 30.0, 190.0, {"ub": 380.0, "s16": 200.0})


def test_quiet() -> None:
    assert quiet.disturbed(MACHINE, MACHINE, None) == []
    assert quiet.disturbed(MACHINE, replace(MACHINE, read_gb_s=36.0), quiet.Usage(0.2, 0.01)) == []


def test_disturbed() -> None:
    slower = replace(MACHINE, read_gb_s=20.0, dot_gop_s={"ub": 500.0})
    for before, after, words in [
        (MACHINE, slower, ["read GB/s went from 30 to 20", "int8 Gop/s went from 380 to 500"]),
        (slower, MACHINE, ["read GB/s went from 20 to 30", "int8 Gop/s went from 500 to 380"]),
    ]:
        assert quiet.disturbed(before, after, None) == words
    usage = quiet.Usage(1.04, 0.08)
    assert quiet.disturbed(MACHINE, MACHINE, usage) == ["others use 1.0 cores, the hypervisor takes 0.08 cores"]


def test_no_limit_of_8_bits() -> None:
    plain = replace(MACHINE, dot_gop_s={})
    assert quiet.disturbed(plain, plain, None) == []


def test_others_are_all_but_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    # wall, busy, stolen, ours
    samples = iter([(10.0, 100.0, 5.0, 50.0), (14.0, 107.0, 5.2, 54.0)])
    monkeypatch.setattr(quiet.Watch, "_sample", staticmethod(lambda: next(samples)))
    with quiet.Watch() as watch:
        pass
    assert watch.usage is not None
    assert watch.usage.others == pytest.approx(0.75)
    assert watch.usage.stolen == pytest.approx(0.05)


def test_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet.Watch, "_sample", staticmethod(lambda: None))
    monkeypatch.setattr("os.getloadavg", lambda: (1.5, 0.0, 0.0))
    assert quiet.busy_now(0.0) == "load average 1.50"
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 9.0, 9.0))
    assert quiet.busy_now(0.0) == ""


def test_the_real_counters() -> None:
    if not Path("/proc/stat").exists():
        pytest.skip("not Linux")
    first, second = quiet.Watch._sample(), quiet.Watch._sample()
    assert first is not None
    assert second is not None
    assert all(b >= a > 0 or a == 0 for a, b in zip(first, second, strict=True))
