"""Files that are not imported for a run have nothing that it would run."""

import pytest
from marks import is_left_out

CLUSTER = "import pytest\n\npytestmark = [pytest.mark.cluster, pytest.mark.exhaustive]\n"
ONE_CASE = "import pytest\n\n\n@pytest.mark.cluster\ndef test_it() -> None: ...\n"
PLAIN = "def test_it() -> None: ...\n"


@pytest.mark.parametrize(
    ("text", "expression", "left_out"),
    [
        (CLUSTER, "not long", True),
        (CLUSTER, "not slow and not exhaustive", True),
        (CLUSTER, "not slow", False),
        (CLUSTER, "cluster", False),
        (CLUSTER, "page", True),
        (CLUSTER, "not slow and not long and (kernel or not exhaustive)", False),
        (ONE_CASE, "not long", False),
        (ONE_CASE, "cluster", False),
        (PLAIN, "not long", False),
        (PLAIN, "soak", True),
        (PLAIN, "", False),
    ],
)
def test_what_is_left_out(text: str, expression: str, left_out: bool) -> None:
    assert is_left_out(text, expression) is left_out
