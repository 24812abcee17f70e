"""Writes what the mirror shows about an object on that object: a field of its status, or an event."""
