"""Where the CPUs, memory and devices of running pods lie, and whether they could lie better."""
