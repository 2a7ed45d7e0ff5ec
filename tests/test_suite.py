"""A run's cost is told in units, which a busy machine stretches equally, and judged by a figure of the tree."""

import json

import pytest
import suite


@pytest.mark.parametrize(("cost", "status"), [(1000.0, 0), (1490.0, 0), (1510.0, 1)])
def test_half_as_much_again_is_too_much(
    cost: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = suite.llvm.get_host_cpu_name()
    monkeypatch.setattr(suite, "known_costs", lambda: {kind: 1000})
    assert suite.judged(cost) == status
    assert ("1.51 times the 1000" in capsys.readouterr().err) is bool(status)


def test_a_processor_without_a_figure_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite, "known_costs", dict)
    assert suite.judged(1234.5) == 0
    assert "no figure" in (said := capsys.readouterr().out) and "1234" in said


def test_the_figures_of_the_tree_are_numbers() -> None:
    assert all(isinstance(cost, int) and cost > 0 for cost in suite.known_costs().values())
    assert json.loads(suite.FIGURES.read_text(encoding="utf-8")) == suite.known_costs()


def test_a_meter_measures_children() -> None:
    with suite.Meter() as meter:
        assert suite.run("--version") == 0
        meter.units.append(suite._unit())
    assert 0 < meter.cpu < 60 and meter.wall > 0 and meter.cost > 1
    assert str(meter).endswith("units")


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert suite.main(["all", "pages"]) == 2
    assert "pages: no part of the long suite; paths, emulated" in capsys.readouterr().err
