"""The commands, one module each; each module's ``command`` is what ``main`` runs."""
