"""A document as one HTML page: ``page`` is the whole, ``tables`` and ``figures`` its parts, beside its own files."""
