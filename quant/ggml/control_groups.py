"""The control groups that this process is in (Linux, versions 1 and 2)."""

from collections.abc import Iterator
from pathlib import Path


def group_folders(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Folders that may contain limits of `controller` ("cpu", "memory"), of our group and of all groups around it.

    The limit of any surrounding group applies; in a container the path may lead nowhere, and the mount is our group.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            mount = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            mount = root / "sys/fs/cgroup" / controller
        else:
            continue
        place = Path(path.lstrip("/"))
        for group in (place, *place.parents):
            yield mount / group
