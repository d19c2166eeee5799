"""Lower bounds on data movement, one theorem a file; each exports ``BOUND``. Proofs: docs/theory."""

from wattention.core.catalog import Catalog
from wattention.iocomplexity.bounds.base import Bound

BOUNDS: Catalog[Bound] = Catalog(
    kind="bound",
    package="wattention.iocomplexity.bounds",
    export="BOUND",
    record=Bound,
    not_plugins=frozenset({"base", "literature", "matmul"}),
)
