"""One model on several devices: the ways to spread a step over ranks, and one reading out of many."""
