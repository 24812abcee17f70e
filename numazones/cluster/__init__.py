"""Many nodes at once: nodes and pods as values, and what the scheduler filters by."""
