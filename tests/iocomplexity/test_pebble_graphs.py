"""Graph families: the exact nodes and edges of the definitions, and what bad input answers."""

from __future__ import annotations

import json

import pytest

from wattention.core.errors import UserError
from wattention.iocomplexity.pebble.graph import Graph, build, from_networkx, loads, to_json, to_networkx
from wattention.iocomplexity.pebble.graphs.family import FAMILIES, parse
from wattention.iocomplexity.pebble.symmetry import automorphisms


def edges(graph: Graph) -> set[tuple[str, str]]:
    return {(graph.nodes[u], graph.nodes[v]) for v, before in enumerate(graph.operands) for u in before}


def test_matmul_is_a_chain_of_products_for_each_entry() -> None:
    graph = parse("matmul:m=2,k=2,n=2")
    assert len(graph) == 16
    assert {("A10", "C11.0"), ("B01", "C11.0"), ("C11.0", "C11"), ("A11", "C11"), ("B11", "C11")} <= edges(graph)
    assert {graph.nodes[v] for v in graph.outputs} == {"C00", "C01", "C10", "C11"}


def test_attention_has_the_nodes_of_the_running_sum_softmax() -> None:
    graph = parse("attention:tokens=2,dim=2")
    assert len(graph) == 36
    into = {name: {u for u, v in edges(graph) if v == name} for name in graph.nodes}
    assert into["S10"] == {"Q11", "K01", "S10.0"}
    assert into["L1"] == {"S11", "L1.0"}
    assert into["U10"] == {"S11", "V10", "U10.0"}
    assert into["O10"] == {"U10", "L1"}
    assert len(parse("attention:tokens=2,dim=1")) == 20


def test_accumulators_have_one_step_for_every_product_of_unmasked_pairs() -> None:
    graph = parse("attention:tokens=3,dim=2,value_dim=3,mask=causal,sum=word")
    assert len(graph.steps) == 6 * (2 + 3)
    backward = parse("attention-backward:tokens=2,dim=2,sum=word")
    assert len(backward) == 36
    assert len(backward.steps) == 4 * (3 * 2 + 2 * 2 + 1)
    last = [step for step in backward.steps if step.last]
    assert [(backward.nodes[s.target], backward.nodes[s.operands[0]]) for s in last[:2]] == [
        ("dS00", "P00"),
        ("dS01", "P01"),
    ]


def test_a_tree_of_sums_adds_pairs() -> None:
    graph = parse("matmul:m=1,k=4,n=1,sum=tree")
    assert len(graph) == 8 + 4 + 3
    assert {len(before) for before in graph.operands} == {0, 2}


@pytest.mark.parametrize(("mask", "pairs"), [("dense", 9), ("causal", 6), ("window2", 5), ("110/010/111", 6)])
def test_masks_leave_out_pairs_and_inputs_nobody_reads(mask: str, pairs: int) -> None:
    graph = parse(f"attention:tokens=3,dim=1,mask={mask},sum=word")
    assert len(graph.steps) == 2 * pairs
    assert all(graph.readers[v] for v in graph.inputs)


def test_the_running_maximum_rescales_from_the_second_key_on() -> None:
    graph = parse("attention:tokens=1,keys=2,dim=1,max=true")
    into = {name: {u for u, v in edges(graph) if v == name} for name in graph.nodes}
    assert into["X0.1"] == {"X0.0", "S01"}
    assert into["R0.1"] == {"X0.0", "X0.1"}
    assert into["U00.1"] == {"E01", "V10", "U00.0", "R0.1"}


def test_fft_tree_and_diamond_have_their_sizes() -> None:
    assert [len(parse(spec)) for spec in ("fft:points=8", "tree:leaves=9,arity=3", "diamond:rows=3,columns=4")] == [
        32, 13, 12,
    ]  # fmt: skip


def test_layers_put_operands_before_results() -> None:
    graph = parse("attention:tokens=2,dim=2")
    depth = {v: level for level, row in enumerate(graph.layers) for v in row}
    assert set(graph.layers[0]) == set(graph.inputs)
    assert all(depth[u] < depth[v] for v, before in enumerate(graph.operands) for u in before)


@pytest.mark.parametrize("name", FAMILIES.names())
@pytest.mark.parametrize("shape", ["chain", "tree", "word"])
def test_every_graph_survives_json(name: str, shape: str) -> None:
    graph = parse(name, sum=shape)
    again = loads(json.dumps(to_json(graph)))
    assert to_json(again) == to_json(graph)
    assert again.steps == graph.steps


def test_networkx_goes_both_ways() -> None:
    nx = pytest.importorskip("networkx", reason="networkx is not installed")
    graph = parse("fft:points=4")
    assert edges(from_networkx(to_networkx(graph))) == edges(graph)
    with pytest.raises(UserError, match="the graph has a cycle"):
        from_networkx(nx.DiGraph([("a", "b"), ("b", "a")]))


def test_nodes_that_lead_nowhere_are_not_part_of_the_game() -> None:
    graph = build("idle", {"a": [], "b": [], "c": [["a"]], "d": [["a", "b"]]}, ["c"])
    assert graph.useful.nodes == ("a", "c")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"nodes": [\n{"name": "a"},,\n]}', "line 2: malformed JSON"),
        ('{"nodes": [{"name": "a", "operands": ["b"]}]}', "unknown operand of node a"),
        ('{"nodes": [{"name": "a"}, {"name": "a"}]}', "two nodes of graph have one name"),
        ('{"nodes": [{"nam": "a"}]}', "node 0 of graph has no name"),
        ('{"nodes": [{"name": "a", "colour": 1}]}', "unknown key of node a"),
        ('{"nodes": [{"name": "a", "operands": [1]}]}', "the operands of node a are not names"),
        ('{"nodes": [{"name": "a"}], "outputs": ["z"]}', "unknown output"),
        ('{"nodes": []}', "the graph has no nodes"),
        ("[1, 2]", "graph is not a graph"),
        ('{"nodes": [{"name": "a", "operands": ["c"]}, {"name": "c", "operands": ["a"]}]}', "a -> c -> a"),
    ],
)
def test_bad_graphs_are_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        loads(text)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("matmull:m=2", "did you mean matmul"),
        ("matmul:rows=2", "unknown option of graph matmul"),
        ("matmul:m", "bad option of graph matmul"),
        ("matmul:m=two", "wanted: a whole number"),
        ("matmul:m=0", "m is too small"),
        ("matmul:sum=chian", "did you mean chain"),
        ("attention:mask=11/1", "draw 2 rows of 2 digits"),
        ("attention:mask=00/00", "the mask allows no pair"),
        ("attention:max=true,sum=tree", "a running maximum needs a chain"),
        ("attention:max=maybe", "true or false"),
        ("fft:points=6", "points is not a power of two"),
    ],
)
def test_bad_specs_say_what_is_wanted(spec: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse(spec)


def test_symmetries_are_the_permutations_of_rows_columns_tokens_and_features() -> None:
    counts = {}
    for spec in ("matmul:m=3,k=3,n=3", "matmul:m=3,k=3,n=3,sum=word", "attention:tokens=2,dim=2,sum=word"):
        graph = parse(spec)
        images, steps = automorphisms(len(graph), graph.steps, graph.outputs, limit=1000)
        counts[spec] = len(images)
        for image, step_image in zip(images, steps, strict=True):
            assert {int(image[v]) for v in graph.outputs} == graph.outputs
            for k, step in enumerate(graph.steps):
                mapped = graph.steps[step_image[k]]
                assert mapped.target == image[step.target]
                assert set(mapped.operands) == {int(image[u]) for u in step.operands}
    assert list(counts.values()) == [72, 432, 16]
