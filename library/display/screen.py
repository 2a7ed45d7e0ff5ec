"""What reports on stderr and, in a notebook, in its cell."""

from ..reporting import Reporter
from .bars import ProgressBar
from .lines import note

SCREEN = Reporter(note, ProgressBar)
