"""What people and programs are shown: data -> document -> renderer, and the only place that formats units.

Analysis returns values; ``documents`` arrange them, of ``sections`` and ``figures``, in the vocabulary of ``document``,
``units``, ``ratios`` and ``wording``; ``renderers`` print any document in one format each. Two short ways pass the
document by: ``json`` gives values to programs, and ``standalone`` draws what is its own page. ``progress`` is live.
"""
