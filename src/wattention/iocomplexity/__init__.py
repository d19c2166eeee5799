"""Data movement of attention: how many words have to move, and which algorithm moves how many.

Each folder knows only those above it in this list (and the two plugin folders hold one thing a file):

    problem     what is computed: sizes, masks, cuts, widths of words
    bounds/     lower bounds, one theorem a file
    memory      the two-level machine that counts every word: slow arrays, ledger, tiles, streamed products
    parts       what schedules share: products, passes, bodies
    schedules/  algorithms, one a file, each with plan, prediction and program
    execution   one run of a schedule: counted, checked, traced, lowered to a pebble game
    planning    schedules ranked beside the bounds: plans, curves, crossings, levels, claims
    cache       address traces under LRU replacement
    pebble      the red-blue pebble game: exact optima of tiny graphs, and the bridge to all of the above
"""
