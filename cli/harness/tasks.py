"""Loads tasks with their data: the harness's own by name, tasks in folders, and task files."""

import contextlib
import difflib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import UsageError, shown

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager

MOST_SHOWN = 5  # similar names listed for a missing one


@contextlib.contextmanager
def quiet(verbose: bool) -> Iterator[None]:
    """While open, the harness and its data loaders print nothing: no logging, no bars, no stdout. verbose: they print
    to stderr."""
    # bootstrapping would fork this process with its threads
    before = os.environ.get("DISABLE_MULTIPROC")
    os.environ["DISABLE_MULTIPROC"] = "1"
    disabled = logging.root.manager.disable
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr if verbose else io.StringIO()))
            if not verbose:
                logging.disable(logging.CRITICAL)
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                stack.enter_context(_no_bars())
            yield
    finally:
        logging.disable(disabled)
        if before is None:
            del os.environ["DISABLE_MULTIPROC"]
        else:
            os.environ["DISABLE_MULTIPROC"] = before


@contextlib.contextmanager
def _no_bars() -> Iterator[None]:
    """While open, tqdm (used by the harness, datasets and the hub's client) draws no bars."""
    from tqdm import std

    original = std.tqdm.__init__

    def disabled(self: Any, *args: Any, **more: Any) -> None:
        original(self, *args, **{**more, "disable": True})

    std.tqdm.__init__ = disabled
    try:
        yield
    finally:
        std.tqdm.__init__ = original


def found(names: Sequence[str], folders: Sequence[Path], metadata: dict[str, Any] | None = None) -> "TaskManager":
    """A manager that knows all these tasks. The harness's many thousand files are read only if a task is not in the
    folders. UsageError: a folder or task is missing."""
    from lm_eval.tasks import TaskManager

    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{shown(folder)} is not a folder. Name one with task files (.yaml).")
    paths = [str(folder.resolve()) for folder in folders]
    manager = TaskManager(include_path=paths, include_defaults=False, metadata=metadata)
    if _missing(manager, names):
        manager = TaskManager(include_path=paths, metadata=metadata)
    missing = _missing(manager, names)
    if missing:
        near = difflib.get_close_matches(missing[0], manager.all_tasks, MOST_SHOWN)
        near += [name for name in manager.all_tasks if missing[0] in name and name not in near]
        like = f" Like it: {', '.join(near[:MOST_SHOWN])}." if near else ""
        where = "among the harness's tasks" + (f" or in {', '.join(map(shown, folders))}" if folders else "")
        raise UsageError(f"there is no task {shown(missing[0], 80)!r} {where}.{like}")
    return manager


def _missing(manager: "TaskManager", names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in manager.task_index and not _is_file(name)]


def _is_file(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) and Path(name).is_file()


@dataclass(frozen=True)
class Loaded:
    """Tasks and groups with their data, and the manager of their files."""

    items: list[Any]
    manager: "TaskManager"

    @property
    def kinds(self) -> set[str]:
        """Kinds of requests that the tasks make: multiple_choice, generate_until..."""
        groups = [item.get_all_tasks() if hasattr(item, "get_all_tasks") else [item] for item in self.items]
        return {str(task.get_config("output_type")) for tasks in groups for task in tasks}


def loaded(manager: "TaskManager", names: Sequence[str]) -> Loaded:
    """Tasks by name. UsageError: one cannot be loaded; one line with the reason.

    Local data needs no network; no usage report is sent.
    """
    import datasets

    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    items: list[Any] = []
    for name in names:
        try:
            known = _loaded(manager, name)
        except Exception as error:  # a task file, or the place of its data, may be wrong in any way
            raise UsageError(f"task {shown(name)} cannot be loaded: {reason(error)}") from error
        groups = known.get("groups", {})
        items += [groups[name]] if name in groups else known["tasks"].values()
    return Loaded(items, manager)


def _loaded(manager: "TaskManager", name: str) -> Any:
    """The harness's task of a name. Its data files are looked up in the current folder, then beside the task file."""
    try:
        return manager.load([name])
    except FileNotFoundError:
        entry = manager.task_index.get(name)
        file = Path(name) if entry is None else entry.yaml_path
        if file is None:
            raise
        with contextlib.chdir(file.parent):
            return manager.load([name if entry is not None else file.name])


def reason(error: BaseException) -> str:
    """An error of other people's code in one line: its first sentence or two."""
    text = " ".join(str(error).split()) or type(error).__name__
    offline = type(error).__name__ in ("OfflineModeIsEnabled", "ConnectionError", "LocalEntryNotFoundError")
    offline |= "couldn't reach" in text.lower()
    hint = " Its data is downloaded on first use, which needs a network." if offline else ""
    return f"{shown(text, 300).rstrip('.')} ({type(error).__name__}).{hint}"
