"""What a step would run, told without running it: operators with their sizes, and every byte from birth to end.

::

    tracing             trainer, model and mechanism run once, for a device that need not be here
    sized_tensor        on tensors without contents; outcomes: what an operator returns, asked once
    fake_model          what stands in for model and trainer, and what torch chooses on CUDA
    operator_recorder   sees every operator and storage; operator_facts: what one call does
    whole_model         from one traced layer to a model of many
    stand_in            a mechanism that cannot be traced: its cost record
"""
