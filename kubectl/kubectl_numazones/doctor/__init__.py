"""``doctor``: what is looked at, the checks, and what they find."""
