"""What the operator counts, in one registry; gauges are in the rooms of what they show."""
