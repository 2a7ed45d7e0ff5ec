"""Which tasks are meant: names of the harness's own, of files in folders, and files; loaded with their data."""

import contextlib
import difflib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import UsageError, shown

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager

MOST_SHOWN = 5  # names that are like a missing one


@contextlib.contextmanager
def quiet(verbose: bool) -> Iterator[None]:
    """Within, the harness and what it loads data with say nothing: no logging, no bars, no text on stdout.

    Must surround the first import of the harness: some of this is read then.
    """
    # bootstraps would start processes that are copies of this one, with its threads
    settings = {"DISABLE_MULTIPROC": "1", "TOKENIZERS_PARALLELISM": "false"}
    if not verbose:
        settings |= {"TQDM_DISABLE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    said = io.StringIO()
    disabled = logging.root.manager.disable
    try:
        if verbose:
            with contextlib.redirect_stdout(sys.stderr):
                yield
        else:
            logging.disable(logging.CRITICAL)
            with contextlib.redirect_stdout(said), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
    finally:
        logging.disable(disabled)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def found(names: Sequence[str], folders: Sequence[Path], metadata: dict[str, Any] | None = None) -> "TaskManager":
    """What knows all these tasks. The harness's own, of which there are many thousand files, are read only when one is
    not in the folders. UsageError: a folder or a task is missing.
    """
    from lm_eval.tasks import TaskManager

    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{shown(folder)} is not a folder. Name one with task files (.yaml).")
    paths = [str(folder) for folder in folders]
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


def loaded(manager: "TaskManager", names: Sequence[str]) -> list[Any]:
    """Tasks and groups of them, with their data. UsageError: one cannot be loaded; the reason in one line."""
    items: list[Any] = []
    for name in names:
        try:
            known = manager.load([name])
        except Exception as error:  # what is wrong with a task file, or with where its data is, can be anything
            raise UsageError(f"task {shown(name, 80)} cannot be loaded: {reason(error)}") from error
        groups = known.get("groups", {})
        items += [groups[name]] if name in groups else known["tasks"].values()
    return items


def kinds(items: Sequence[Any]) -> set[str]:
    """What tasks and groups of them ask a model for: loglikelihood, generate_until..."""
    tasks = [task for item in items for task in (item.get_all_tasks() if hasattr(item, "get_all_tasks") else [item])]
    return {str(task.get_config("output_type")) for task in tasks}


def reason(error: BaseException) -> str:
    """An error of somebody else's code in a line: its first sentence or two."""
    text = " ".join(str(error).split()) or type(error).__name__
    offline = type(error).__name__ in ("OfflineModeIsEnabled", "ConnectionError", "LocalEntryNotFoundError")
    offline |= "couldn't reach" in text.lower()
    hint = " Its data is downloaded on first use: this needs a network." if offline else ""
    return f"{shown(text, 300).rstrip('.')} ({type(error).__name__}).{hint}"
