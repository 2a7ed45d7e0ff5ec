"""How many prompt tokens a step reads beside answers, on a machine with known step times."""

from hybrid.infer.answers.batch.slices import FIRST, LEAST, Slices


def settled(step: float, token: float, most: int = 512) -> Slices:
    slices = Slices(most, 0.2)
    slices.timed(0, 4, step)
    for _ in range(60):
        n = slices.beside_answers
        slices.timed(n, 4, step + n * token)
    return slices


def test_a_step_takes_as_long_as_it_may() -> None:
    assert settled(0.05, 0.001).beside_answers in (149, 150)
    assert settled(0.05, 0.00001).beside_answers == 512, "never more than a ubatch"
    assert settled(0.05, 0.05).beside_answers == LEAST, "never nothing: the prompt must end some day"
    assert settled(0.3, 0.001).beside_answers == LEAST


def test_guesses_are_columns_like_others() -> None:
    """A step without prompts says nothing about the cost of a column in a wide step, nor about a plain step."""
    slices = settled(0.05, 0.001)
    slices.timed(0, 4, 0.3, n_guessed=4)
    assert slices.beside_answers in (149, 150)
    slices.timed(100, 4, 0.05 + 120 * 0.001, n_guessed=20)
    assert slices.beside_answers in (149, 150) and abs((slices.token_seconds or 0) - 0.001) < 1e-4
    assert Slices(512).token_seconds is None


def test_before_anything_is_known() -> None:
    assert Slices(512).beside_answers == FIRST
    assert Slices(5).beside_answers == 5
    assert Slices(512, float("inf")).beside_answers == 512
    only_prompts = Slices(512)
    only_prompts.timed(512, 0, 9.0)  # nobody waited
    assert only_prompts.beside_answers == FIRST


def test_a_slower_machine_counts_at_once_and_a_faster_one_by_and_by() -> None:
    slices = settled(0.05, 0.001)
    slices.timed(150, 4, 0.05 + 150 * 0.004)
    assert slices.beside_answers == 37
    slices.timed(37, 4, 0.05 + 37 * 0.001)
    assert 37 < slices.beside_answers < 45
    for _ in range(60):
        slices.timed(100, 4, 0.05 + 100 * 0.001)
    assert slices.beside_answers in (149, 150)


def test_answers_that_got_slower_leave_less() -> None:
    slices = settled(0.05, 0.001)
    slices.timed(0, 8, 0.1)
    assert slices.beside_answers in (99, 100)


def test_beside_watched_answers_of_another_model() -> None:
    """A step that only reads prompts is short while people watch answers of another model in this process."""
    one, other, unwatched = Slices(512, 0.2), Slices(512, 0.2), Slices(512, float("inf"))
    unwatched.is_watched = True  # nobody sees its answers grow
    assert one.beside_others == other.beside_others == 512
    other.is_watched = True
    assert one.beside_others == FIRST, "nothing is known yet"
    assert other.beside_others == 512, "its own answers are not another model's"
    one.timed(32, 0, 0.032)
    assert one.beside_others == 100, "half of the limit, at a millisecond for each token"
    other.is_watched = False
    assert one.beside_others == 512
