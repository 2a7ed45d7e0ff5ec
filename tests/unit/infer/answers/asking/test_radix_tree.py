"""Common prefixes of texts and tokens are held once, in whatever order entries are added and dropped."""

from array import array
from sys import getsizeof
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hybrid.infer.answers.asking.radix_tree import NODE_BYTES, RadixTree, common_length


def check(tree: RadixTree[Any]) -> None:
    nodes = list(tree)
    assert tree.nbytes == sum(NODE_BYTES + getsizeof(node.run) for node in nodes)
    for node in nodes:
        assert node.parent is not None and len(node.run) and node.parent.children[node.run[0]] is node
        assert node.n_owners or len(node.children) > 1, "nobody needs it"


@given(st.lists(st.text("ab", max_size=6), max_size=12), st.randoms(use_true_random=False))
def test_it_holds_what_somebody_owns(texts: list[str], random: Any) -> None:
    tree = RadixTree("")
    owned = [(tree.add(text), text) for text in texts]
    random.shuffle(owned)
    while owned:
        check(tree)
        for node, text in owned:
            assert node.whole() == text
            assert (node, len(text)) in list(tree.path(text + "c"))
        for _, n in tree.path("abaab"):
            assert any(text.startswith("abaab"[:n]) for _, text in owned)
        tree.drop(owned.pop()[0])
    assert not list(tree) and tree.nbytes == 0


def test_tokens_below_a_node() -> None:
    tree = RadixTree(array("i"))
    first = tree.add(array("i", [1, 2, 3]))
    more = tree.add(array("i", [4, 5]), first)
    other = tree.add(array("i", [1, 2, 9]))
    assert tree.add(array("i"), more) is more and more.n_owners == 2
    assert [node.whole().tolist() for node in (first, more, other)] == [[1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 9]]
    assert sum(len(node.run) for node in tree) == 6, "each beginning once"
    assert tree.root.whole() == array("i"), "a copy"
    tree.drop(first)
    check(tree)
    assert [(node, n) for node, n in tree.path(array("i", [1, 2, 3, 4, 5, 6])) if node is more] == [(more, 5)]


@given(st.text("ab"), st.text("ab"))
def test_common_length(a: str, b: str) -> None:
    same = common_length(a, b)
    assert a[:same] == b[:same] and (same == min(len(a), len(b)) or a[same] != b[same])
