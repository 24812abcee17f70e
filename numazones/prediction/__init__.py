"""Predict where a pod would be admitted, why not elsewhere, which node to prefer, and how many more fit."""
