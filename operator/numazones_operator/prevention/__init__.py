"""Prevention of bad bindings: the admission gate, the scheduler extender, and the room they hold."""
