"""Counters of the operator, in one registry; gauges are in the packages of what they show."""
