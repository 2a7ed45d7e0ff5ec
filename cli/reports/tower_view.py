"""A vision tower, and what pictures cost, for `hybrid inspect`."""

from typing import TYPE_CHECKING

from .. import console

if TYPE_CHECKING:
    from hybrid.pipeline.tower_facts import TowerFacts


def show_tower(facts: "TowerFacts | str") -> None:
    """Prints the tower from patches to features, and pictures of several sizes; or why they are not known."""
    console.out("\n" + console.bold("vision tower"))
    if isinstance(facts, str):
        console.out(f"  not known: {facts}")
        return
    steps = (
        f"patches of {facts.patch_size} x {facts.patch_size}",
        f"{facts.n_layer} layers of width {facts.n_embd}: {facts.n_head} heads, {facts.n_ff} in the feed-forward part",
        f"projector {facts.projector} to width {facts.n_out}",
    )
    for i, step in enumerate(steps):
        console.out(f"  {'' if i == 0 else '-> '}{step}")
    console.out("\n" + console.bold("pictures"))
    rows = [
        (f"{each.width} x {each.height}", str(each.tokens), str(each.patches), console.size(each.nbytes))
        for each in facts.pictures
        if not each.trouble
    ]
    console.out(console.table(("pixels", "tokens", "patches", "memory"), rows, "lrrr"))
    for each in facts.pictures:
        if each.trouble:
            console.out(f"  {each.width} x {each.height}: {each.trouble}")
