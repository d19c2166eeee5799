"""The fast Fourier transform's butterfly graph: log2(points) stages, node b of a stage from b and b xor 2^stage.

Hong and Kung 1981: its I/O is Theta(points log(points) / log(S)).
"""

from __future__ import annotations

from wattention.core.errors import UserError
from wattention.iocomplexity.pebble.graph import Graph
from wattention.iocomplexity.pebble.graphs.family import Family, Option
from wattention.iocomplexity.pebble.graphs.sketch import Sketch


def fft(*, points: int = 4) -> Graph:
    """Return the butterfly graph on ``points`` inputs, a power of two."""
    if points < 2 or points & (points - 1):
        raise UserError("points is not a power of two", got=points, wanted="2, 4, 8, ...")
    sketch = Sketch("chain")
    row = [sketch.input(f"x{b}") for b in range(points)]
    for stage in range(points.bit_length() - 1):
        row = [sketch.value(f"f{stage + 1}.{b}", row[b], row[b ^ (1 << stage)]) for b in range(points)]
    return sketch.graph(f"FFT on {points} points", row)


FAMILY = Family(
    what="butterfly graph of the fast Fourier transform",
    options={"points": Option(default=4, what="inputs, a power of two")},
    build=fft,
)
