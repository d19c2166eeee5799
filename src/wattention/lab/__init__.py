"""The only place that both runs a model and measures it.

Each of these knows only those below it in this list, never its neighbours on a line::

    cells/ preflight calibration/                a cell end to end; what cannot work; this machine by itself
    phases/ quality/ traces/                     what a cell measures; quality held equal; steps told, not run
    training                                     the trainer
    parallel/ conformance/                       a step spread over ranks; the gate, which needs no trainer
"""
