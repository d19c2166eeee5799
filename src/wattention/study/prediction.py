"""Predict one point: trace what the model runs, and ask the analysis what a device needs for it.

The trace is kept for the next question about the same shapes, whatever the device.
"""

from __future__ import annotations

from wattention.analysis.predict import Prediction, PredictionQuery


def predict(query: PredictionQuery) -> Prediction:
    """Return all costs of one point; see :mod:`wattention.analysis.predict`.

    Raises:
        UserError: an unknown mechanism or device, a model that cannot exist, a profile that lacks a level or a rate.
    """
    raise NotImplementedError
