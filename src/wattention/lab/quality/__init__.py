"""How quality is held equal: sizes matched, when a target counts as reached, and what of a run cannot ask for it."""
