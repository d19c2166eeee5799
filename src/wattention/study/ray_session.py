"""Connect to a Ray cluster, or start a local one, and leave it as it was found."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wattention.core.errors import UserError


@contextlib.contextmanager
def ray_session(address: str | None, claims: Sequence[Mapping[str, float]]) -> Iterator[Any]:
    """Yield the module ``ray``, connected; a session that is open already is used and left open.

    Args:
        address: of a cluster, or None for a local one with all cores of this process.
        claims: what tasks will ask for; a local cluster that can never serve one is refused.

    Raises:
        UserError: Ray is not installed, the cluster does not answer, or a local one is too small.
    """
    with usable_amdsmi():
        ray = import_ray()
        opened = not ray.is_initialized()
        try:
            if opened:
                _connect(ray, address)
            if address is None:
                _check_claims(claims, ray.cluster_resources())
            yield ray
        finally:
            if opened:
                ray.shutdown()


def import_ray() -> Any:
    """Return the module, or say how to get it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UserError(
            "the Ray launcher needs Ray", got=str(error), do="pip install 'wattention[ray]', or use --launcher local"
        ) from None


def _connect(ray: Any, address: str | None) -> None:
    from wattention.study.local import available_threads

    size = {} if address else {"num_cpus": available_threads(), "include_dashboard": False}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **size)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(
            "cannot connect to the Ray cluster",
            got=f"{address or 'a local one'}: {str(error).splitlines()[0]}",
            do="see ray status, and give the address that ray start --head printed",
        ) from error


def _check_claims(claims: Sequence[Mapping[str, float]], has: Mapping[str, float]) -> None:
    for claim in claims:
        short = {name: amount for name, amount in claim.items() if amount > has.get(name, 0.0)}
        if short:
            raise UserError(
                "this machine can never run a block",
                got=", ".join(f"{name}={amount:g}" for name, amount in short.items()),
                wanted=", ".join(f"{name}={has.get(name, 0.0):g}" for name in short),
                do="ask for less with --ray-resources or --threads, or connect to a cluster with --ray-address",
            )


@contextlib.contextmanager
def usable_amdsmi() -> Iterator[None]:
    """Hide AMD's management library from Ray where it is installed without its driver.

    ``amdsmi`` comes with the extra [energy] and, on a machine without ROCm, raises KeyError when imported; every
    process of Ray 2.60 imports it and dies of that. Ray takes an ImportError well.
    """
    if "amdsmi" in sys.modules or _imports_or_is_missing("amdsmi"):
        yield
        return
    before = os.environ.get("PYTHONPATH")
    with tempfile.TemporaryDirectory(prefix="wattention-") as folder:
        (Path(folder) / "amdsmi.py").write_text('raise ImportError("installed without its driver")\n')
        sys.modules["amdsmi"] = None  # type: ignore[assignment]  # the documented way to make an import fail
        os.environ["PYTHONPATH"] = folder if before is None else f"{folder}{os.pathsep}{before}"
        try:
            yield
        finally:
            del sys.modules["amdsmi"]
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before


def _imports_or_is_missing(name: str) -> bool:
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints where its library is missing
            importlib.import_module(name)
    except ImportError:
        return True
    except Exception:
        return False
    return True
