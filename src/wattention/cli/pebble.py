"""``wattention pebble``: the red-blue pebble game; exact optima of small graphs and verified games for any.

``pebble`` solves a graph, ``pebble verify`` judges a move list, ``pebble bridge`` confronts optima, schedules and
bounds of tiny attention.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattention.core.errors import UserError

if TYPE_CHECKING:
    from wattention.iocomplexity.pebble.graph import Graph
    from wattention.iocomplexity.pebble.rules import Rules

app = typer.Typer(name="pebble", help="The red-blue pebble game: exact I/O optima of small graphs, verified games.")

RulesName = Annotated[str, typer.Option("--rules", help="hong-kung, no-recompute, sliding, prbp or fma.")]
TimeLimit = Annotated[float, typer.Option(help="Seconds for the exact search; 0 asks for the heuristic alone.")]
AsJson = Annotated[bool, typer.Option("--json", help="Last line of stdout: one JSON object.")]


@app.callback(invoke_without_command=True)
def pebble(
    context: typer.Context,
    *,
    graph: Annotated[
        str | None, typer.Option(help="A family with options, e.g. attention:tokens=2,dim=2, or a graph.json file.")
    ] = None,
    fast_memory: Annotated[int | None, typer.Option(help="Words of fast memory, M.")] = None,
    rules: RulesName = "hong-kung",
    load_cost: Annotated[int, typer.Option(help="Cost of a load.")] = 1,
    store_cost: Annotated[int, typer.Option(help="Cost of a store.")] = 1,
    time_limit: TimeLimit = 60.0,
    memory_limit_gib: Annotated[float, typer.Option("--memory-limit", help="GiB for the exact search.")] = 4.0,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option(help="Write a page that plays the game.")] = None,
    save_graph: Annotated[Path | None, typer.Option(help="Write the graph as JSON.")] = None,
    save_moves: Annotated[Path | None, typer.Option(help="Write the moves as JSON.")] = None,
    list_graphs: Annotated[bool, typer.Option("--list", help="List graph families with their options.")] = False,
) -> None:
    """Find the cheapest game on a graph, with its moves, or the best one found and a proved lower bound.

    Exit code 0: an answer, proved or not; 2: bad input.
    """
    if context.invoked_subcommand is not None:
        return
    if list_graphs:
        _print_families()
        return
    if graph is None or fast_memory is None:
        missing = " and ".join(n for n, v in (("--graph", graph), ("--fast-memory", fast_memory)) if v is None)
        raise UserError(f"{missing} missing", do="e.g. wattention pebble --graph attention:tokens=2 --fast-memory 5")
    import json

    from wattention.iocomplexity.pebble.exact import solve
    from wattention.iocomplexity.pebble.graph import to_json
    from wattention.iocomplexity.pebble.rules import named

    table = named(rules)
    game = _graph(graph, table)
    solution = solve(
        game, fast_memory, table, load_cost=load_cost, store_cost=store_cost, time_limit_s=time_limit,
        memory_limit_bytes=int(memory_limit_gib * 2**30),
    )  # fmt: skip
    if html is not None:
        from wattention.report.standalone.pebble_game import game_page

        title = f"{game.name}, {table.name}, M = {fast_memory}"
        _write(html, game_page(game, solution.moves, fast_memory, title=title, proved=solution.proved))
    if save_graph is not None:
        _write(save_graph, json.dumps(to_json(game), indent=1))
    if save_moves is not None:
        _write(save_moves, json.dumps([move.to_json() for move in solution.moves]))
    if as_json:
        typer.echo(json.dumps(solution.to_json()))
        return
    from wattention.report.standalone.pebble_text import solution_text

    typer.echo(solution_text(game, solution, fast_memory, table))
    if html is not None:
        typer.echo(f"game: {html}")


@app.command()
def verify(
    graph: Annotated[Path, typer.Argument(metavar="GRAPH.json", help="The graph.")],
    moves: Annotated[Path, typer.Argument(metavar="MOVES.json", help="The moves, or the --json answer of pebble.")],
    *,
    fast_memory: Annotated[int, typer.Option(help="Words of fast memory, M.")],
    rules: RulesName = "hong-kung",
    as_json: AsJson = False,
) -> None:
    """Judge a move list: legal with its cost, or the first illegal move and why.

    Exit code 0: legal; 1: illegal; 2: bad input.
    """
    import json

    from wattention.iocomplexity.pebble.graph import loads
    from wattention.iocomplexity.pebble.rules import named
    from wattention.iocomplexity.pebble.verify import moves_from_json
    from wattention.iocomplexity.pebble.verify import verify as judge

    board = loads(_read(graph), source=str(graph))
    verdict = judge(board, moves_from_json(_read(moves), source=str(moves)), fast_memory, named(rules))
    if as_json:
        typer.echo(json.dumps({
            "legal": verdict.legal, "illegal": verdict.illegal, "at": verdict.at, "loads": verdict.loads,
            "stores": verdict.stores, "peak": verdict.peak,
        }))  # fmt: skip
    elif verdict.legal:
        typer.echo(f"legal: {verdict.loads} loads + {verdict.stores} stores = {verdict.cost()} words, "
                   f"at most {verdict.peak} red")  # fmt: skip
    else:
        typer.echo(f"illegal: {verdict.illegal}")
    if not verdict.legal:
        raise typer.Exit(1)


@app.command()
def bridge(
    *,
    time_limit: TimeLimit = 10.0,
    tokens: Annotated[int, typer.Option(help="Queries and keys.")] = 2,
    dim: Annotated[int, typer.Option(help="Features.")] = 1,
    masks: Annotated[str, typer.Option(help="Masks, separated by commas.")] = "dense,causal",
    as_json: AsJson = False,
) -> None:
    """Confront exact optimum, schedules and lower bounds of tiny attention, forward and backward."""
    import json

    from wattention.iocomplexity.pebble.bridge import cases, confront
    from wattention.report.json.pebble import confrontations_to_json
    from wattention.report.standalone.pebble_text import confrontation_table

    table = [confront(case, time_limit_s=time_limit) for case in cases(masks=masks.split(","), sizes=((tokens, dim),))]
    typer.echo(json.dumps(confrontations_to_json(table)) if as_json else confrontation_table(table))


def _graph(spec: str, rules: Rules) -> Graph:
    """Return the graph of a spec or of a JSON file; accumulator words are the default where the rules have them."""
    if spec.endswith(".json"):
        from wattention.iocomplexity.pebble.graph import loads

        return loads(_read(Path(spec)), source=spec)
    from wattention.iocomplexity.pebble.graphs.family import parse

    return parse(spec, sum="word" if rules.absorb == "step" else "chain")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("cannot read the file", got=path, wanted="a readable JSON file", do=str(error)) from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError("cannot write the file", got=path, wanted="a writable place", do=str(error)) from None


def _print_families() -> None:
    from wattention.iocomplexity.pebble.graphs.family import FAMILIES

    for name in FAMILIES.names():
        family = FAMILIES.load(name)
        typer.echo(f"{name.replace('_', '-')}: {family.what}")
        for key, option in family.options.items():
            typer.echo(f"  {key}={option.default}  {option.what}")
