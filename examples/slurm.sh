#!/bin/bash
# A sweep on Slurm, from a login node, in a folder that all nodes see. Run it under tmux or nohup: it waits for the
# array and brings the records home; if it dies, the tasks go on, and "sweep --resume" finds what they wrote.
set -e
source ~/wattention-env/bin/activate # has wattention[slurm,energy]

options=(
  --launcher slurm
  --slurm partition=gpu
  --slurm time=120      # minutes a block may take; it is requeued after that, and goes on with what is missing
  --slurm parallel=16   # blocks at a time
  --slurm 'setup=source ~/wattention-env/bin/activate'
)
wattention sweep examples/sweep.toml --dry-run "${options[@]}"
wattention sweep examples/sweep.toml --out sweeps/lengths "${options[@]}"
wattention report sweeps/lengths/* --out lengths.html
