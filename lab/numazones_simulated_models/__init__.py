"""The parts that placement models have in a simulated cluster: their nodes, pods, agents and schedulers."""
