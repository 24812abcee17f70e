"""Readers for the parts of API objects that recur everywhere: quantities, durations, selectors, JSONPath."""
