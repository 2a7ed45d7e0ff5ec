"""A pytest plugin for llama.cpp's server tests: values that depend on their tiny model are replaced by ours.

It runs in the environment of the tests, in their folder. What it changes:
- every server gets a free port, and no model is downloaded before the tests; the only file that they download is an
  adapter, for which one of our model stands in;
- any text of our model is accepted instead of their model's (`match_regex`), except in tests of its form;
- numbers of tokens are our tokenizer's (cases.py);
- header names are compared without regard to case, as HTTP has it;
- `verbose` is requested if a test starts its server with --verbose;
- tests that they skip because they fail there run (cases.ENABLED), also with a temperature that they leave out.
"""

import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import cases  # beside this file: PYTHONPATH names its folder
import pytest
from requests.structures import CaseInsensitiveDict


def pytest_configure(config: pytest.Config) -> None:
    """Runs before collection: their driver starts our program."""
    sys.path.insert(0, str(Path.cwd()))
    import utils

    utils.ServerPreset.load_all = staticmethod(lambda: None)
    utils.download_file = lambda url, output_file_path=None: str(Path(os.environ["SUITE_MODELS"]) / "adapter.gguf")
    begin, request, stream = (
        utils.ServerProcess.__init__,
        utils.ServerProcess.make_request,
        utils.ServerProcess.make_stream_request,
    )

    def init(self: Any) -> None:
        begin(self)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.server_port = probe.getsockname()[1]

    def told(self: Any, path: str, data: Any) -> Any:
        chat = isinstance(data, dict) and "/chat/completions" in path
        return {"verbose": True, **data} if self.debug and chat else data

    def make_request(self: Any, method: str, path: str, data: Any = None, *more: Any, **named: Any) -> Any:
        response = request(self, method, path, told(self, path, data), *more, **named)
        response.headers = CaseInsensitiveDict(response.headers)
        return response

    utils.ServerProcess.__init__ = init
    utils.ServerProcess.make_request = make_request
    utils.ServerProcess.make_stream_request = lambda self, method, path, data=None, *a, **k: stream(
        self, method, path, told(self, path, data), *a, **k
    )
    exactly = utils.match_regex

    def match(regex: str, text: str) -> bool:
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        if any(name in test for name in cases.EXACT_TEXT):
            return bool(exactly(regex, text))
        return isinstance(text, str) and len(text) > 0

    utils.match_regex = match


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, parameter, value in cases.MORE_VALUES:
        if metafunc.definition.name == name:
            for mark in metafunc.definition.iter_markers("parametrize"):
                if mark.args[0] == parameter and value not in mark.args[1]:
                    mark.args[1].append(value)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that do not apply, and note why."""
    kept, left = [], []
    for item in items:
        why = cases.why_not(_name(item.nodeid), item.get_closest_marker("slow") is not None)
        if why is not None:
            left.append(item)
            if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
                _report(item.nodeid, *why)
            continue
        kept.append(item)
        if item.name in cases.ENABLED:
            item.own_markers = [mark for mark in item.own_markers if mark.name != "skip"]
        parameters = getattr(getattr(item, "callspec", None), "params", None)
        for change in cases.PARAMETERS.get(getattr(item, "originalname", item.name), ()):
            if parameters is not None and all(parameters.get(name) == value for name, value in change.where.items()):
                parameters.update(change.instead)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown" or (report.when == "setup" and report.outcome == "passed"):
        return
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        _report(report.nodeid, report.outcome, "" if report.outcome == "passed" else _reason(report))


def _name(node: str) -> str:
    return node.removeprefix("unit/")


def _report(node: str, outcome: str, why: str) -> None:
    """Write a line of JSON for a test: its name, outcome, and the reason."""
    if path := os.environ.get("SUITE_REPORT"):
        with Path(path).open("a") as file:
            print(json.dumps({"test": _name(node), "outcome": outcome, "why": why}), file=file)


def _reason(report: pytest.TestReport) -> str:
    text = report.capstdout + report.capstderr + str(report.longrepr)
    missing = re.search(r"stand-in: no counterpart for .*", text)
    if missing:
        return missing.group(0)
    errors = re.findall(r"^E +(.*)", text, re.MULTILINE)
    return errors[0][:200] if errors else str(report.longrepr)[-200:]
