"""What a step would run, told without running it: operators with their sizes, and every byte from birth to end.

::

    tracing             a Run for a device that need not be here -> StepTrace; what is tried where it fails
    runs                trainer, model and mechanism run once, for their log
    sized_tensor        on tensors without contents; outcomes: what an operator returns, asked once
    described           what is known of such a tensor
    fake_model          what stands in for model and trainer, and what torch chooses on CUDA
    prepared            models that are kept for the next run
    operator_recorder   sees every operator and storage; operator_facts: what one call does
    whole_model         from one traced layer to a model of many; growth: to other batches
    stand_in            a mechanism that cannot be traced: its cost record
"""
