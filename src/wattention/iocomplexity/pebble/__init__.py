"""The red-blue pebble game: graphs, rules as a table, a verifier, an exact solver and a heuristic.

``graph`` and ``graphs`` say what is to be computed, ``rules`` what a move may do, ``verify`` whether a move list is
legal and what it costs, ``exact`` and ``heuristic`` find move lists, ``bridge`` confronts them with the schedules and
the lower bounds of the I/O engine. Finder and verifier share no code.
"""
